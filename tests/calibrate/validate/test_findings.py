"""What fails in a table of predicted beside measured, and by how much it must be off for that."""

from __future__ import annotations

from math import exp, hypot, pi, sqrt, tan
from typing import Any

import pytest

from calibrate.validate.findings import (
    check_counts,
    contradictions,
    scheme_findings,
    speedup_findings,
    synthetic_findings,
)
from specsim.api.validation import Tolerance

Row = dict[str, Any]

EVERYTHING = Tolerance()
# As logarithms: what predictions and measurements leave open, and both together.
OPEN = 0.03, 0.04
BOTH = hypot(*OPEN)


def speedups(off: float = 0.0, predicted: float = 1.5) -> Row:
    """A prediction that is too fast by so much, as a logarithm, with both intervals."""
    measured = predicted * exp(-off)
    return {
        "temperature": 0.0,
        "predicted_low": predicted * exp(-OPEN[0]),
        "predicted_speedup": predicted,
        "predicted_high": predicted * exp(OPEN[0]),
        "measured_low": measured * exp(-OPEN[1]),
        "measured_speedup": measured,
        "measured_high": measured * exp(OPEN[1]),
        "relative_error": exp(off) - 1,
        "cost_error": exp(off / 2) - 1,
    }


def row(gamma: int, off: float = 0.0, **more: Any) -> Row:
    """A draft length in a check of speedups."""
    counts = {"prompts": "unseen", "requests": 8, "exact": True, "z": 0.0}
    return {**speedups(off), **counts, "gamma": gamma, **more}


def student(requests: int, rows: int) -> float:
    """The score that one of so many correct rows exceeds in one of 10,000 tables (Bonferroni).

    The closed forms of Student's quantiles at one and at two degrees of freedom.
    """
    tail = 1e-4 / (2 * rows)
    if requests == 2:
        return 1 / tan(pi * tail)
    return (1 - 2 * tail) * sqrt(1 / (2 * tail * (1 - tail)))


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("requests", "rows"), [(2, 1), (2, 6), (3, 1), (3, 6)])
def test_counts_fail_beyond_what_chance_explains(requests: int, rows: int, sign: int) -> None:
    limit = sign * student(requests, rows)
    others = [row(gamma, requests=requests) for gamma in range(1, rows)]

    def failures(z: float) -> list[str]:
        return check_counts([*others, row(9, requests=requests, temperature=1.0, exact=None, z=z)])

    assert failures(0.999 * limit) == []
    (failure,) = failures(1.001 * limit)
    assert failure.startswith("temperature 1, unseen prompts, gamma 9: counted calls contradict")


def scheme_row(requests: int, **more: Any) -> Row:
    """A setting whose target runs are counted beside those of its draft."""
    runs = {"predicted_runs": 50.0, "measured_runs": 80.0, "runs_z": 0.0}
    both = {name: {"target": value, "draft": value} for name, value in runs.items()}
    said = {"scheme": "bild", "setting": "fast", "exact": None, "counts_as_predicted": False}
    return {**speedups(), **said, **both, "requests": requests, "approximate": [], **more}


@pytest.mark.parametrize("requests", [2, 3])
def test_runs_of_schemes_fail_beyond_what_chance_explains(requests: int) -> None:
    """Of three settings with two models each, six scores are tested."""
    limit = student(requests, 6)
    others = [scheme_row(requests)] * 2

    def failures(z: float, expected: float = 50.0, counted: float = 80.0) -> list[str]:
        changed = scheme_row(
            requests,
            predicted_runs={"target": 80.0, "draft": expected},
            measured_runs={"target": 80.0, "draft": counted},
            runs_z={"target": 0.0, "draft": z},
        )
        assert scheme_findings([*others, changed], EVERYTHING).failures == tuple(
            contradictions([*others, changed])
        )
        return contradictions([*others, changed])

    for sign in (-1, 1):
        assert failures(0.999 * sign * limit) == []
        (failure,) = failures(1.001 * sign * limit)
        assert failure.startswith("bild fast, temperature 0: runs of draft 50.0 predicted, 80.0")
    # Within 3 % of what is counted, whatever chance explains.
    assert failures(2 * limit, 97.1, 100.0) == failures(2 * limit, 102.9, 100.0) == []
    assert len(failures(2 * limit, 96.9, 100.0)) == len(failures(2 * limit, 103.1, 100.0)) == 1


# Standard normal scores that are exceeded, on one side or the other, once in 10,000 and in 100,000.
@pytest.mark.parametrize(("rows", "score"), [(1, 3.890592), (10, 4.417173)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_speedups_fail_beyond_what_their_intervals_explain(
    rows: int, score: float, sign: int
) -> None:
    limit = sign * score / 1.959964 * BOTH
    others = [row(gamma) for gamma in range(1, rows)]
    assert speedup_findings([*others, row(9, 0.999 * limit)], None).failures == ()
    wrong = [*others, row(9, 1.001 * limit)]
    (failure,) = speedup_findings(wrong, None).failures
    assert failure.startswith("temperature 0, gamma 9: predicted 1.500 (1.456 to 1.546), measured ")
    assert speedup_findings(wrong, EVERYTHING).failures == ()


def test_speedups_say_how_far_off_they_are_and_what_fails() -> None:
    rows = [row(1), row(2, -0.02), row(3, 0.2, prompts="calibration", exact=False)]
    found = speedup_findings(rows, Tolerance(median=0.01, worst=0.3))
    # exp(-0.02) - 1 and exp(0.2) - 1; of the cost half as much, as logarithms.
    assert found.errors == (
        "relative error of the speedup: median 2.0%, worst 22.1% (temperature 0, calibration "
        "prompts, gamma 3)",
        "relative error of its cost: median 1.0%, worst 10.5% (temperature 0, calibration prompts, "
        "gamma 3)",
    )
    assert found.failures == (
        "temperature 0, calibration prompts, gamma 3: text or number of calls is not what it must "
        "be",
        "the median error is over the tolerance of 0.01",
    )
    (count, speedup) = speedup_findings(rows, None).failures
    assert count == found.failures[0]
    assert speedup.startswith("temperature 0, gamma 3: predicted 1.500")


def cell(batch: int, best: int, loss: float, loss_low: float) -> list[Row]:
    """Two draft lengths of a cell in which 2 was predicted best."""
    said = {"batch": batch, "context": 64, "predicted_best": 2, "measured_best": best}
    said |= {"profile_plain_ms": 4.0, "measured_plain_ms": 4.0 - 0.2 * batch}
    return [
        {**speedups(0.01 * gamma), **said, "gamma": gamma, "loss": loss, "loss_low": loss_low}
        for gamma in (2, 3)
    ]


def test_batches_say_how_often_the_best_length_was_predicted() -> None:
    """One cell as predicted, one where nobody can tell, and one that is beyond doubt."""
    rows = [*cell(1, 2, 0.0, 0.0), *cell(2, 3, 0.01, -0.01), *cell(4, 3, 0.05, 0.03)]
    found = synthetic_findings(rows, None)
    assert found.errors == (
        "relative error of the speedup: median 2.5%, worst 3.0%; 95 % intervals of both explain 6 "
        "of 6 speedups; best draft length as predicted in 1 of 3 cells, and in 1 more too close to "
        "tell; following the prediction costs 5.0% of speed at most",
        "plain steps take -20% since the profile was written, at most",
    )
    # Once, though two rows are of the cell.
    assert found.failures == (
        "batch 4, context 64: gamma 2 was predicted best and is 5.0% slower than gamma 3",
    )


def test_batches_fail_where_following_the_prediction_costs_speed() -> None:
    """More than 2 %: beyond doubt, or as it was measured where a tolerance judges."""
    for low, failures in ((0.0199, 0), (0.0201, 1)):
        assert len(synthetic_findings(cell(1, 3, 0.5, low), None).failures) == failures
    for loss, failures in ((0.0199, 0), (0.0201, 1)):
        assert len(synthetic_findings(cell(1, 3, loss, -0.5), EVERYTHING).failures) == failures


def test_batches_fail_where_their_speedups_are_off() -> None:
    limit = 4.055627 / 1.959964 * BOTH  # once in 10,000 of two rows
    rows = cell(1, 2, 0.0, 0.0)
    assert synthetic_findings([rows[0], rows[1] | speedups(0.999 * limit)], None).failures == ()
    wrong = [rows[0], rows[1] | speedups(1.001 * limit)]
    (failure,) = synthetic_findings(wrong, None).failures
    assert failure.startswith("temperature 0, batch 1, context 64, gamma 3: predicted 1.500 ")
    assert synthetic_findings(wrong, Tolerance(worst=0.05)).failures == (
        "the worst error is over the tolerance of 0.05",
    )


def test_schemes_say_how_many_speedups_are_not_judged() -> None:
    rows = [scheme_row(3), scheme_row(3, approximate=["draft"])]
    unjudged = "speedups of 1, whose runs are known approximately, are not judged without --tol"
    for tolerance, said in ((None, True), (EVERYTHING, False)):
        (words,) = scheme_findings(rows, tolerance).errors
        assert (unjudged in words) == said
        assert "of 2 speedups" in words
        assert "at temperature 0" not in words
    (words,) = scheme_findings([scheme_row(3, exact=True)], None).errors
    assert "at temperature 0 every target call as predicted: 1 of 1; " in words
