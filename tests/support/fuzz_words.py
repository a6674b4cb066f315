"""Command lines as users type them, changed a little or until nobody would type them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from random import Random
from typing import Any

import click

from specsim.cli import COMMANDS
from specsim.commands import _options
from specsim.schemes import SCHEMES

SHAPES = "--target llama-3.1-8b --draft llama-3.2-1b --accelerator H100-SXM"
STEPS = "--step-cost step_ms=5,token_us=20 --engine vllm:num_gpu_blocks=600"
# Lines that are answered; words in capitals stand for files of the session.
LINES = (
    "optimize --alpha 0.8 --c 0.05",
    "optimize --alpha 0.8,0.7 --c 0.05 --c-ops 0.1 --c-memory 0.1 --gamma-max 9",
    "optimize --marginal 0.8,0.6,0.4 --rounds 1000 --c 0.1 --heads",
    "optimize --conditional 0.8,0.7 --no-heads --c 0.1 --verify-slope 0.01 --overhead 0.1",
    "optimize --profile PROFILE --temperature 1",
    "optimize --profile PROFILE --batch 1,9 --context 64 --margin 0.1",
    "optimize --profile COUNTS --c 0.1 --temperature 0",
    f"optimize {SHAPES} --alpha 0.8 --batch 1:4,64 --context 512 --prompt 900",
    f"optimize {SHAPES} --alpha 0.8 --tensor-parallel 2 --dtype fp8 --kv-dtype fp8",
    "optimize --target qwen3-8b --drafter eagle3:alpha=0.7 --drafter ngram:alpha=0.4 "
    "--accelerator H100 --batch 1 --context 512",
    "evaluate --alpha 0.6 --c 0.02 --gamma 2 --verify-cost 1,1.1,1.2",
    "evaluate --profile PROFILE --gamma 3 --acceptance-law greedy-drafts",
    f"explain {SHAPES} --alpha 0.7 --gamma 4 --batch 8 --context 512",
    "allocate --drafter base:0.8:0.04 --drafter small:0.75:0.02 --gamma-max 12",
    "replay TRACE --gamma 0:6 --c 0.1 --verify-slope 0.05",
    "replay TRACE --gamma 2,4 --policy grow-shrink --acceptance-law exact-match",
    "defer POSITIONS --quality target --c 0.1",
    "defer POSITIONS --speedup 1.2 --c 0.1 --gamma 4 --decide-on tempered",
    "read LOG --temperature 1 --method draft_model",
    "read LOG --out FOLDER/written.json",
    "export vllm --profile PROFILE --most 8",
    f"export sglang {SHAPES} --alpha 0.8 --most 4 --model small",
    "workload --rate 4 --prompt lognormal:1155,0.9 --output 211 --requests 50",
    "workload --workload WORKLOAD --window 0,1 --scale 2",
    "workload --arrivals schedule:0=2,9=8 --prompt file:WORKLOAD --output uniform:1,60 "
    "--requests 30 --seed 3",
    f"serve --rate 10 --prompt uniform:50,400 --output uniform:1,60 --requests 30 {STEPS} "
    "--slo ttft_p99=1",
    f"serve --concurrency 4 --prompt 90 --output 20 --requests 20 --gamma 1-4=2,5-256=0 "
    f"--alpha 0.8 {STEPS} --replicas 2",
    f"serve --workload WORKLOAD {SHAPES} --alpha 0.7 --gamma 2 --warmup 0.1 --routing "
    "prefix-aware --replications 2",
    f"plan --rate 9 --prompt 90 --output 20 --requests 40 --alpha 0.8 {STEPS} --gamma 2,3 "
    "--slo tpot_p99=0.05,ttft_p99=1 --price 2.5 --analytic",
    "validate COUNTS",
    f"validate --serving BENCH {STEPS} --tolerance mean=0.9",
    "compare RESULT RESULT --level 0.9",
    "compare SWEPT SWEPT",
    "sweep SETTINGS --out FOLDER --workers 1 --chunk 2",
    "schema profile",
    "completion bash",
    "calibrate --target embedded/target --draft embedded/small --temperature 0,1 --requests 4 "
    "--gamma-max 4 --repeats 2 --out FOLDER/written.json",
    "score --target embedded/target --text PROMPTS --tokens 9 --out FOLDER/written.csv",
    "validate PROFILE --gamma 1:3 --requests 2 --median-tolerance 0.1",
    "study leviathan --out FOLDER",
    *(f"evaluate {name} {kind.example}" for name, kind in SCHEMES.items()),
    *(f"simulate {name} {kind.example} --blocks 1000" for name, kind in SCHEMES.items()),
    "optimize bild --fallback 0.2 --rollback 0.05 --window 1:20 --c 0.1",
    "simulate speculative --alpha 0.8 --gamma 5 --c 0.05 --tokens 40 --requests 20",
)
FILES = (
    *("PROFILE", "TRACE", "POSITIONS", "LOG", "WORKLOAD", "COUNTS", "BENCH", "RESULT", "SETTINGS"),
    *("PROMPTS", "FOLDER", "SWEPT", "PIPE"),
)
_FILE = re.compile(rf"\b({'|'.join(FILES)})\b")
_HOSTILE = (
    *("", " ", "-1", "0", "1", "2", "-0", "0.5", "1e-400", "1e400", "nan", "inf", "-inf", "1e9"),
    *("1,2", "1,,2", ",", "0:8", "8:0", "1:1000000000", "0:0", "1:2:3", "a:b", "0,1,2,3"),
    *("x", "\udcff", "\uff11", "0x10", "1_000", "9" * 400, "1/2", "a=b", "=", "a=", "--", "-"),
    *("/dev/zero", "/dev/null", "/dev/full", "/", ".", "n" * 300, "none.json", "a\nb", "%s", "{}"),
    *FILES,
)
# What is written is not part of a question.
_WRITTEN = (
    *("--out", "--figure", "--report", "--save-requests", "--save-steps"),
    *("--speculation-profile",),
)
_ALWAYS = ("--help", "-h", "--version", "--nonsense", "--format", "json", "--seed")
_PLACES = (
    *("FOLDER/written.json", "FOLDER/written.html", "FOLDER/written.csv", "FOLDER/none/x.json"),
    *("FOLDER", "PIPE"),
)
# Processes that are started take longer than what they are asked.
_PROCESSES = ("1", "1", "0", "-1", "x", "1.5")
# Share of lines that ask for a page, which takes seconds.
_PAGES = 0.002
_NUMBERS = ("0", "1", "0.5", "0.05", "0.9", "0.001", "1.5", "3", "12", "0.333", "1e-6", "40")
_WHOLE = ("0", "1", "2", "3", "4", "7", "8", "16", "33", "64")


def named(line: list[str], path_of: Callable[[str], str]) -> list[str]:
    """The words with the paths that those in capitals stand for."""
    return [_FILE.sub(lambda found: path_of(found[1]), word) for word in line]


def changed_line(random: Random) -> list[str]:
    """One of the lines with one to four changes, most of them such as a user might make."""
    words = shlex.split(random.choice(LINES))
    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        words = (_varied if random.random() < 0.85 else _broken)(words, random)
    if random.random() < 0.6 and "--format" in _parameters(words) and "--format" not in words:
        words += ["--format", random.choice(("json", "json", "json", "csv", "markdown"))]
    if random.random() < _PAGES and "--report" in _parameters(words):
        words += ["--report", "FOLDER/written.html"]
    return _harmless(words, random)


def _harmless(words: list[str], random: Random) -> list[str]:
    """Nothing is written but beside the files of the session, and none of them."""
    return [
        random.choice(_PLACES) if before in _WRITTEN and word not in _PLACES else word
        for before, word in zip(["", *words], words, strict=False)
    ]


def _varied(words: list[str], random: Random) -> list[str]:
    """Another value of an option, one option more or one less."""
    known = _parameters(words)
    given = [at for at, word in enumerate(words) if word in known and not known[word].is_flag]
    given = [at for at in given if at + 1 < len(words) and words[at] not in _WRITTEN]
    what = random.randrange(8)
    if given and what < 4:
        at = random.choice(given)
        return [*words[: at + 1], _value(words[at], known, random), *words[at + 2 :]]
    if given and what == 4:
        at = random.choice(given)
        return words[:at] + words[at + 2 :]
    if known:
        name = random.choice([name for name in known if name not in _WRITTEN] or ["--seed"])
        if name in known and known[name].is_flag:
            return [*words, name]
        return [*words, name, _value(name, known, random)]
    return _broken(words, random)


def _value(name: str, known: Mapping[str, click.Option], random: Random) -> str:
    """What might stand behind an option."""
    if name == "--workers":
        return random.choice(_PROCESSES)
    kind = known[name].type if name in known else None
    seen = _seen().get(name, ())
    if seen and random.random() < 0.4:
        return random.choice(seen)
    if isinstance(kind, click.Choice):
        return str(random.choice(kind.choices))
    if isinstance(kind, _options.Integer):
        return random.choice(_WHOLE)
    if isinstance(kind, _options.IntegerRange):
        one, other = random.choice(_WHOLE), random.choice(_WHOLE)
        return random.choice((one, f"{one},{other}", f"{one}:{other}"))
    if isinstance(kind, _options.Number):
        return random.choice(_NUMBERS)
    if isinstance(kind, _options.Numbers):
        return ",".join(random.choice(_NUMBERS) for _ in range(random.choice((1, 1, 2, 3))))
    if isinstance(kind, click.Path):
        return random.choice(FILES)
    if seen and random.random() < 0.7:
        return random.choice(seen)
    return random.choice((*_WHOLE, *_NUMBERS, *_HOSTILE))


def _broken(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words) or 1)
    match random.randrange(8):
        case 0:
            return words[:at] + words[at + 1 :]
        case 1:
            return words[: at + 1] + words[at : at + 1] + words[at + 1 :]
        case 2 | 3:
            # Mostly values, which stand behind options.
            places = [n for n, word in enumerate(words) if n and not word.startswith("--")]
            places = [n for n in places if words[n - 1] not in (*_WRITTEN, "--workers")]
            place = random.choice(places) if places else at
            return [*words[:place], random.choice(_HOSTILE), *words[place + 1 :]]
        case 4:
            other = random.randrange(len(words) or 1)
            swapped = list(words)
            if swapped:
                swapped[at], swapped[other] = swapped[other], swapped[at]
            return swapped
        case 5 | 6:
            known = [each for each in _parameters(words) if each not in (*_WRITTEN, "--workers")]
            extra = [random.choice((*known, *_ALWAYS)), random.choice(_HOSTILE)]
            return words[: at + 1] + extra[: random.choice((1, 2))] + words[at + 1 :]
        case _:
            more = shlex.split(random.choice(LINES))
            first = random.randrange(len(more))
            return words[: at + 1] + more[first : first + 2] + words[at + 1 :]


@lru_cache
def _seen() -> Mapping[str, tuple[str, ...]]:
    """Values that stand behind options in the lines, by option."""
    found: dict[str, dict[str, None]] = {}
    for line in LINES:
        words = shlex.split(line)
        for word, value in pairwise(words):
            if word.startswith("--") and not value.startswith("--") and word not in _WRITTEN:
                found.setdefault(word, {})[value] = None
    return {name: tuple(values) for name, values in found.items()}


def _parameters(words: list[str]) -> Mapping[str, click.Option]:
    """The options of a command by name."""
    serving = "--serving" in words
    return _options_of(words[0], words[1] if len(words) > 1 else "", serving) if words else {}


@lru_cache(maxsize=1024)
def _options_of(name: str, second: str, serving: bool) -> Mapping[str, click.Option]:
    if name not in COMMANDS:
        return {}
    module = "validate_serving" if serving and name == "validate" else name
    command: Any = import_module(f"specsim.commands.{module}").command
    if isinstance(command, click.Group) and second in SCHEMES:
        command = command.get_command(click.Context(command), second)
    return {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
    }
