"""Curves of acceptance by the kind of drafter, and what is asked of their first rates.

Of public drafters what was printed (tests/reference/acceptance_by_drafter.csv and
acceptance_curves.csv), of the embedded pairs what is shipped in studies/measured, at temperatures 0
and 1.  Two questions: what are the *further* positions of a curve, and what are the tokens per call
of *longer* blocks than were counted.  Read by extrapolation_by_drafter.py.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.effective_drafts import of_blocks, of_every_place
from specsim.extrapolation import GapLaw
from specsim.profiles import read_profile

ROOT = Path(__file__).parents[1]
REFERENCE, MEASURED = ROOT / "tests" / "reference", ROOT / "studies" / "measured"
KNOWN = (1, 2, 3, 5)
# Profiles of the embedded target, each with texts of its own; the draft decides the family.
PROFILES = (
    "embedded-cpu/profile.json",
    "blind/quiet/small-1.json",
    "blind/quiet/middle-1.json",
    "blind/quiet/prompt-lookup-1.json",
)
# What vLLM counted, draft length by draft length.
ENGINE_COUNTS = (
    "middle-greedy",
    "middle-probabilistic",
    "ngram-2-4",
    "ngram-5-5",
    "small-greedy",
    "small-probabilistic",
)
LONGEST = 8
# Behind the name of a run: of its blocks, not of drafts from every place.
BLOCKS = ", blocks"


class Curve(NamedTuple):
    """S_1..S_K of one run, or what adding one draft token at a time gained.

    family : what is left out together; curves of one target or draft resemble each other
    drafter : "heads", "draft model" or "lookup"
    pair : "public" or "embedded"
    asked : "further" or "longer"
    rates : shape (K,); of "longer" the gains, E[N at K = i] - E[N at K = i - 1]
    counts : drafts that they are worth, where that is known; by position if it was found from the
        requests (effective_drafts.py)
    unit : half of the last digit that was printed
    temperature : of the embedded target; None is not said, or not of one
    """

    family: str
    drafter: str
    pair: str
    asked: str
    name: str
    rates: tuple[float, ...]
    counts: float | tuple[float, ...] | None = None
    unit: float = 0.0
    temperature: float | None = None

    @property
    def run(self) -> str:
        """Of what drafter, on which text, at which temperature: drafts from every place of a text
        and those of blocks of it are one run.
        """
        return f"{self.family}: {self.name.removesuffix(BLOCKS)} at {self.temperature}"


class Question(NamedTuple):
    """What a user knows, and what is asked.

    rates : S_1..S_n
    further : S_{n+1}..S_K, where they are asked for
    tokens : per call at n + 1..K
    """

    curve: Curve
    rates: tuple[float, ...]
    further: tuple[float, ...]
    tokens: tuple[float, ...]


@cache
def curves() -> tuple[Curve, ...]:
    """All of them."""
    return (*_by_drafter(), *_public(), *_profiles(), *_eagle(), *_engine_curves())


def questions() -> list[Question]:
    """From 1, 2, 3 and 5 known rates."""
    asked = [
        question
        for curve in curves()
        for known in KNOWN
        if known < len(curve.rates) and (question := _of_curve(curve, known))
    ]
    return [*asked, *_blocks(), *_engine_blocks()]


def _of_curve(curve: Curve, known: int) -> Question | None:
    rates = curve.rates[:known]
    if (np.diff(rates) > 0.1).any():
        return None  # gains that rise by more than noise are refused
    tokens = 1 + np.cumsum(curve.rates)[known:]
    further = curve.rates[known:] if curve.asked == "further" else ()
    return Question(curve, rates, further, tuple(tokens.tolist()))


def _by_drafter() -> Iterator[Curve]:
    with (REFERENCE / "acceptance_by_drafter.csv").open() as file:
        for row in csv.DictReader(file):
            words = row["values"].split()
            values = np.array(words, dtype=float)
            lengths = row["what"] == "lengths"
            yield Curve(
                row["family"],
                row["drafter"],
                "public",
                "longer" if lengths else "further",
                f"{row['family']} {row['task']} {row['note']}".strip(),
                tuple((np.diff(values, prepend=1.0) if lengths else values).tolist()),
                float(row["drafts"]) if row["drafts"] else None,
                _half_a_unit(words),
            )


def _public() -> Iterator[Curve]:
    """The longest run of each chain that has rates by position."""
    runs: dict[tuple[str, ...], dict[int, list[dict[str, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with (REFERENCE / "acceptance_curves.csv").open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "marginal":
                chain = (row["group"], row["draft"], row["task"])
                runs[chain][int(row["drafted"])].append(row)
    for (group, draft, task), by_length in runs.items():
        rows = sorted(by_length[max(by_length)], key=lambda row: int(row["position"]))
        words = [row["value"] for row in rows]
        yield Curve(
            {"vllm#32628": "gpt-oss", "ik_llama.cpp#2369": "Qwen3.8"}.get(group, group),
            "lookup" if draft == "n-gram" else "heads",
            "public",
            "further",
            f"{group} {draft} {task}",
            tuple(map(float, words)),
            float(rows[0]["drafts"]) if rows[0]["drafts"] else None,
            _half_a_unit(words),
        )


def _half_a_unit(words: Sequence[str]) -> float:
    return 0.5 * 10.0 ** -max(len(word.partition(".")[2]) for word in words)


def _profiles() -> Iterator[Curve]:
    """Drafts from every place of a text, and of a draft model those of blocks of LONGEST."""
    for file in PROFILES:
        profile = read_profile(MEASURED / file)
        draft = profile.draft.name.partition("/")[2] or profile.draft.name
        for measured in profile.acceptance:
            name, temperature = file, measured.sampling.temperature
            rates = tuple(rate.best for rate in measured.survival)
            kind = "lookup" if profile.by_lookup else "draft model"
            whose = (f"embedded {draft}", kind, "embedded", "further")
            trace = profile.trace(MEASURED / file, measured)
            worth = tuple(of_every_place(trace, len(rates)).tolist())
            yield Curve(*whose, name, rates, worth, temperature=temperature)
            if not profile.by_lookup:
                rates = tuple(GapLaw.of_trace(trace).survival(LONGEST)[1:].tolist())
                worth = tuple(of_blocks(trace, LONGEST).tolist())
                yield Curve(*whose, f"{name}{BLOCKS}", rates, worth, temperature=temperature)


def _blocks() -> Iterator[Question]:
    """From blocks of each known length to longer ones, by exact replay."""
    for file in PROFILES:
        profile = read_profile(MEASURED / file)
        if profile.by_lookup:
            continue
        family = f"embedded {profile.draft.name.partition('/')[2]}"
        for measured in profile.acceptance:
            law = GapLaw.of_trace(profile.trace(MEASURED / file, measured))
            tokens = law.tokens_per_call(LONGEST)
            for known in KNOWN:
                rates = tuple(law.survival(known)[1:].tolist())
                curve = Curve(
                    family,
                    "draft model",
                    "embedded",
                    "longer",
                    file,
                    tuple(np.diff(tokens).tolist()),
                    measured.tokens / float(tokens[known]),
                    temperature=measured.sampling.temperature,
                )
                yield Question(curve, rates, (), tuple(tokens[known + 1 :].tolist()))


def _eagle() -> Iterator[Curve]:
    """The embedded head: every place of a text, and what longer blocks gain."""
    depths, calls = defaultdict(list), defaultdict(list)
    with (MEASURED / "eagle" / "depths.csv").open() as file:
        for row in csv.DictReader(file):
            depths[row["temperature"]].append(row)
    with (MEASURED / "eagle" / "calls.csv").open() as file:
        for row in csv.DictReader(file):
            calls[row["temperature"]].append(float(row["replayed"]))
    for words, rows in depths.items():
        whose, temperature = ("embedded EAGLE", "heads", "embedded"), float(words)
        rates = np.cumprod([float(row["rate"]) for row in rows])
        tried = float(rows[0]["tried"])
        yield Curve(
            *whose, "further", "eagle", tuple(rates.tolist()), tried, temperature=temperature
        )
        gains = np.diff(calls[words], prepend=1.0)
        yield Curve(*whose, "longer", "eagle", tuple(gains.tolist()), temperature=temperature)


class _Counted(NamedTuple):
    """What vLLM counted at one draft length."""

    rounds: float
    reached: tuple[float, ...]


def _engine_counts() -> dict[tuple[str, str, str, str], dict[int, _Counted]]:
    """By family, drafter, file and temperature; then by draft length."""
    found: dict[tuple[str, str, str, str], dict[int, _Counted]] = defaultdict(dict)
    for name in ENGINE_COUNTS:
        with (MEASURED / "vllm" / f"{name}.csv").open() as file:
            for row in csv.DictReader(file):
                draft = "prompt-lookup" if row["method"] == "ngram" else name.split("-")[0]
                kind = "lookup" if row["method"] == "ngram" else "draft model"
                reached = [float(word.split("=")[1]) for word in row["counted_accepted"].split()]
                key = (f"embedded {draft}", kind, name, row["temperature"])
                found[key][int(row["gamma"])] = _Counted(
                    float(row["counted_rounds"]), tuple(reached)
                )
    return found


def _engine_curves() -> Iterator[Curve]:
    for (family, kind, name, temperature), by_length in _engine_counts().items():
        rounds, reached = by_length[max(by_length)]
        rates = tuple(each / rounds for each in reached)
        whose = (family, kind, "embedded", "further")
        counts = rounds * _share_of_greedy_rounds() if temperature == "0.0" else rounds
        yield Curve(*whose, f"vllm/{name}", rates, counts, temperature=float(temperature))


@cache
def _share_of_greedy_rounds() -> float:
    """Of the rounds of the embedded draft models at temperature 0, how many those are worth in
    which the rates of the first positions were counted; of what vLLM counted requests are not known
    one by one.
    """
    shares = []
    for file in PROFILES:
        profile = read_profile(MEASURED / file)
        for measured in profile.acceptance:
            if not profile.by_lookup and measured.sampling.temperature == 0:
                trace = profile.trace(MEASURED / file, measured)
                rounds = measured.tokens / float(GapLaw.of_trace(trace).tokens_per_call(5)[-1])
                shares.append(of_blocks(trace, 5).mean() / rounds)
    return float(np.mean(shares))


def _engine_blocks() -> Iterator[Question]:
    for (family, kind, name, temperature), by_length in _engine_counts().items():
        tokens = [1 + sum(found.reached) / found.rounds for _, found in sorted(by_length.items())]
        for known in KNOWN:
            if known < len(tokens):
                rounds, reached = by_length[known]
                curve = Curve(
                    family,
                    kind,
                    "embedded",
                    "longer",
                    f"vllm/{name}",
                    tuple(np.diff([1.0, *tokens]).tolist()),
                    rounds,
                    temperature=float(temperature),
                )
                rates = tuple(each / rounds for each in reached)
                yield Question(curve, rates, (), tuple(tokens[known:]))


def main() -> None:
    """What rates of the shipped texts are worth, beside what was counted, by position."""
    for file in PROFILES:
        profile = read_profile(MEASURED / file)
        for measured in profile.acceptance:
            trace = profile.trace(MEASURED / file, measured)
            places = measured.tokens - measured.requests * (LONGEST - 1)
            found = [("places", places, of_every_place(trace, LONGEST))]
            if not profile.by_lookup:
                rounds = measured.tokens / float(
                    GapLaw.of_trace(trace).tokens_per_call(LONGEST)[-1]
                )
                found.append(("blocks", rounds, of_blocks(trace, LONGEST)))
            for name, counted, worth in found:
                shares = " ".join(f"{share:6.2f}" for share in worth / counted)
                print(
                    f"{file:36s}{measured.sampling.temperature:4g}{counted:7.0f} {name}: {shares}"
                )


if __name__ == "__main__":
    main()
