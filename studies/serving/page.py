"""Our own: vLLM under load with speculation, predicted from steps that were timed before.

vLLM's CPU build serves the embedded family, clients send requests by Poisson, and the simulator is
given what was measured before in other processes: how long steps and prompts take, and how often
drafts are accepted.  The requests' times and lengths are those of the benchmark's own log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from specsim.api.progress import Progress, note
from studies.common.measured import Measured
from studies.common.study import Check, Picture, Row, Study, Tables, where
from studies.serving import figures, tables
from studies.serving.files import LoadFiles
from studies.serving.simulated import served

SHIPPED = Path(__file__).parents[1] / "measured" / "serving" / "profile.json"

_CAPTIONS: Mapping[str, str] = {
    "setup": "What was asked. In each pass steps were timed first, and then every setting was "
    "served once, rate by rate in this order, with requests and arrivals of the pass's own, by "
    "other servers than those that were timed, which change places from pass to pass; they are "
    "predicted from that timing, and figures below are means over the passes of a setting. "
    "Requests are those of a setting. Rates are in requests per second; the plain capacity is what "
    "the timing of a pass predicts of plain decoding, of which its rates are shares. "
    "`step_variation`, `prompt_step_variation` and `frontend_variation` are how far single steps, "
    "those with a prompt, and what requests spend outside of steps scatter, as timed: "
    "coefficients of variation; `arrival_ms` is what a step takes longer, as timed, for each "
    "request that is sent while it runs. The hash of the file of step times was taken when "
    "each setting had been served; `same_file` tells whether the file is the same today.",
    "errors": "How far predictions are off. Over the settings; an error is predicted over "
    "measured, less one. With own steps: simulated with steps as long as the load itself had them, "
    "which is no prediction, and shows what the model of the scheduler leaves; steps of batches "
    "that a load never had are those of other rates of its pass, by as much longer as those of "
    "batches that both had, and what requests spend outside of steps is that of the whole pass, by "
    "how many decode beside them and how many come with them, as far as nobody waits for "
    "a place.",
    "totals": "Throughput, and preemptions of all passes. `explained` counts the figures (TTFT, "
    "TPOT, ITL, end to end; mean, 50th, 90th, 99th percentile) whose error both 95 % intervals "
    "explain.",
    "steps": "How far the load's steps and rounds are off what was known before. `longer` is how "
    "much longer steps took than those that were timed before their pass, of the same batch, "
    "prompts and requests that were sent meanwhile, by the moments at which clients got their "
    "chunks, over all passes and in each; "
    "`steps` and `requests` are how many were seen whole, and their mean batch. `frontend_ms` is "
    "what a request spent outside of all steps, by the same moments, beside what was timed of as "
    "many that decode beside it and come with it; where requests wait for a place in the batch, "
    "near saturation, that is in it, too. Tokens per round leave out the first token, which comes "
    "with the prompt.",
    "orders": "Which draft length is faster. Mean end-to-end latency of one over that of the "
    "other at the same rate; judged where the measured intervals tell them apart.",
    "latencies": "Every latency, predicted and measured. In milliseconds, with 95 % intervals: of "
    "what was measured over the requests, of what is predicted over which texts come together and "
    "how single steps scatter, and with drafts of how sure their acceptance is. How far off the "
    "timing of steps may be is in none, as two repeats do not tell.",
}

_PICTURES = {
    "latency_by_rate": Picture(figures.latency_by_rate, ("latencies",)),
    "predicted_measured": Picture(figures.predicted_measured, ("latencies",)),
}

_NOT_SERVED = (
    "Nothing was served under load beside this profile (`specsim study serving --measure`), so no "
    "prediction is held against a measurement."
)
_NEEDED = (
    "It takes vLLM's CPU build (`make engine`), two cores that nothing else uses, 20 GiB of memory "
    "for ten servers, and 40 minutes. A killed run goes on where it was."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    files = LoadFiles(measured.path)
    found = served(files)
    latencies = list(tables.latencies(found))
    totals = list(tables.totals(found))
    return {
        "setup": list(tables.setup(files, found)) if found else [],
        "errors": list(tables.errors(latencies, totals)),
        "totals": totals,
        "steps": list(tables.steps(found)) if found else [],
        "orders": list(tables.orders(latencies)),
        "latencies": latencies,
    }


def _opening(found: Tables) -> Sequence[str]:
    claim = (
        "Plans for a server rest on a model of its steps and of its scheduler. Here vLLM itself is "
        "the judge: steps and prompts were timed under a load of their own, drafts were replayed "
        "on other texts, and then requests came by Poisson at four rates."
    )
    if not found["totals"]:
        return claim, _NOT_SERVED, _NEEDED
    return claim, _found(found), _differs(found)


def _found(found: Tables) -> str:
    said = {row["figure"]: row for row in found["errors"]}
    means = ", ".join(
        f"{name.upper() if name != 'e2e' else 'end-to-end'} "
        f"{said[f'{name} mean']['median_absolute_error']:.1%}"
        for name in tables.LATENCIES
    )
    tails = [said[f"{name} p99"] for name in tables.LATENCIES]
    usual = max(row["median_absolute_error"] for row in tails)
    worst = max(row["worst_absolute_error"] for row in tails)
    full = said.get("tokens per second, saturated")
    throughput = (
        f"The throughput of a saturated server is off by {full['median_absolute_error']:.1%} in "
        f"the median and {full['worst_absolute_error']:.1%} at worst. "
        if full
        else ""
    )
    judged = where(found["orders"], apart=True)
    right = sum(row["same_order"] for row in judged)
    return (
        f"Over {len(found['totals'])} settings mean latencies are off in the median by: {means}. "
        f"No 99th percentile is more than {usual:.0%} off in the median, and one setting's is "
        f"{worst:.0%} off. {throughput}"
        f"Of {len(judged)} pairs of draft lengths "
        f"that the measurement tells apart, {right} are in the predicted order."
    )


def _differs(found: Tables) -> str:
    missed = [row for row in found["errors"] if row["reached"] is False]
    if not missed:
        return "Every figure is within what was to be reached."
    words = "; ".join(
        f"{row['figure']} ({row['median_absolute_error']:.1%} for {row['wanted']:.0%}, "
        f"{row['mean_error']:+.1%} in the mean{_with_own_steps(row)})"
        for row in missed
    )
    return f"Not within what was to be reached: {words}."


def _with_own_steps(row: Row) -> str:
    """What the model of the scheduler leaves, where that is known."""
    left = row["median_with_own_steps"]
    return "" if left is None else f"; {left:.1%} with the load's own steps"


def _checks(found: Tables) -> list[Check]:
    """There is no paper."""
    return []


def _measure(profile: Path | None, out: Path, progress: Progress) -> Path:
    """Without an engine nothing, where there is a profile to say that beside."""
    from calibrate.engine.client import EngineError
    from calibrate.engine.server import find_program
    from studies.serving.measure import measure  # loads torch

    own = out / "serving" / "profile.json"
    path = profile or (own if own.is_file() else out / "profile.json")
    try:
        find_program(None)
    except EngineError as missing:
        if not path.is_file():
            raise
        note(progress, f"the study serving is not measured: {missing}")
        return path
    return measure(profile, out, progress)


STUDY = Study(
    "Serving: vLLM under load, predicted before",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    _checks,
    shipped=SHIPPED,
    measure=_measure,
)
