"""Command lines as users type them, changed until nobody would."""

from __future__ import annotations

import shlex
from importlib import import_module
from random import Random

import click

from specsim.schemes import SCHEMES

SHAPES = "--target llama-3.1-8b --draft llama-3.2-1b --accelerator H100-SXM"
# Lines that are answered; FILE names stand for files of the session.
LINES = (
    "optimize --alpha 0.8 --c 0.05",
    "optimize --alpha 0.8,0.7 --c 0.05 --c-ops 0.1 --c-memory 0.1 --gamma-max 9",
    "optimize --marginal 0.8,0.6,0.4 --rounds 1000 --c 0.1 --heads",
    "optimize --conditional 0.8,0.7 --no-heads --c 0.1 --verify-slope 0.01 --overhead 0.1",
    "optimize --profile PROFILE --temperature 1",
    "optimize --profile PROFILE --batch 1,64 --context 64 --margin 0.1",
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
    "export vllm --profile PROFILE --most 8",
    f"export sglang {SHAPES} --alpha 0.8 --most 4 --model small",
    "workload --rate 4 --prompt lognormal:1155,0.9 --output 211 --requests 50",
    "workload --workload WORKLOAD --window 0,1 --scale 2",
    "serve --rate 10 --prompt uniform:50,400 --output uniform:1,60 --requests 30 "
    "--step-cost step_ms=5,token_us=20 --engine vllm:num_gpu_blocks=600 --slo ttft_p99=1",
    "serve --concurrency 4 --prompt 90 --output 20 --requests 20 --gamma 1-4=2,5-256=0 "
    "--alpha 0.8 --step-cost step_ms=5 --engine vllm:num_gpu_blocks=600 --replicas 2",
    "schema profile",
    *(f"evaluate {name} {kind.example}" for name, kind in SCHEMES.items()),
    *(f"simulate {name} {kind.example} --blocks 1000" for name, kind in SCHEMES.items()),
    "optimize bild --fallback 0.2 --rollback 0.05 --window 1:20 --c 0.1",
    "simulate speculative --alpha 0.8 --gamma 5 --c 0.05 --tokens 40 --requests 20",
)
_VALUES = (
    *("", " ", "-1", "0", "1", "2", "-0", "0.5", "1e-400", "1e400", "nan", "inf", "-inf", "1e9"),
    *("1,2", "1,,2", ",", "0:8", "8:0", "1:1000000000", "0:0", "1:2:3", "a:b", "0,1,2,3"),
    *("x", "\udcff", "\uff11", "0x10", "1_000", "9" * 400, "1/2", "a=b", "=", "a=", "--", "-"),
    *("/dev/zero", "/dev/null", "/dev/full", "/", ".", "n" * 300, "none.json", "a\nb", "%s", "{}"),
    *("PROFILE", "TRACE", "POSITIONS", "LOG", "WORKLOAD", "FOLDER", "PIPE"),
)
# What is written is not part of a question.
_WRITTEN = ("--out", "--figure", "--save-requests", "--save-steps", "--speculation-profile")
_ALWAYS = ("--help", "-h", "--version", "--nonsense", "--format", "json", "--seed")


def changed_line(random: Random) -> list[str]:
    """One of the lines with one to four changes."""
    words = shlex.split(random.choice(LINES))
    for _ in range(random.choice((1, 1, 2, 4))):
        words = _changed(words, random)
    return words


def _changed(words: list[str], random: Random) -> list[str]:
    at = random.randrange(len(words) or 1)
    match random.randrange(8):
        case 0:
            return words[:at] + words[at + 1 :]
        case 1:
            return words[: at + 1] + words[at : at + 1] + words[at + 1 :]
        case 2 | 3 | 4:
            # Mostly values, which stand behind options.
            places = [n for n, word in enumerate(words) if n and not word.startswith("--")]
            place = random.choice(places) if places else at
            return [*words[:place], random.choice(_VALUES), *words[place + 1 :]]
        case 5:
            other = random.randrange(len(words) or 1)
            swapped = list(words)
            if swapped:
                swapped[at], swapped[other] = swapped[other], swapped[at]
            return swapped
        case 6:
            extra = [_option(words, random), random.choice(_VALUES)]
            return words[: at + 1] + extra[: random.choice((1, 2))] + words[at + 1 :]
        case _:
            more = shlex.split(random.choice(LINES))
            first = random.randrange(len(more))
            return words[: at + 1] + more[first : first + 2] + words[at + 1 :]


def _option(words: list[str], random: Random) -> str:
    """An option that the command has, or one that every command is asked for."""
    try:
        command = import_module(f"specsim.commands.{words[0]}").command
    except (ImportError, AttributeError, IndexError, OSError, ValueError):
        return random.choice(_ALWAYS)
    options = [each for each in command.params if isinstance(each, click.Option)]
    names = [name for each in options for name in each.opts if name not in _WRITTEN]
    return random.choice((*names, *_ALWAYS))
