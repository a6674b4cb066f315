"""The cost law on SpecBundle's rows as tables: errors, parameters, degrees of parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from studies.common.study import Row
from studies.fidelity.specbundle import SCOUT, Evaluation, evaluation, line, published, smallest
from studies.fidelity.specbundle_known import Spread
from studies.fidelity.specbundle_law import Array, Law, Mask, deployments, times

SOURCE = "public_measurements.csv"
NOTHING, ONE, OTHERS = "nothing", "one row", "its other rows"
LAW, UNIFORM, LINE = "cost law", "cost law, uniform routing", "one line in the steps"
_SPREADS = ("task_sd", "configuration_sd", "head_sd", "row_sd", "short_task_wider", "target_scale")


def errors() -> Iterator[dict[str, Any]]:
    """Mean absolute errors by what is known of the target and by what predicts."""
    made = evaluation()
    nothing, one, others = line(made.found)
    yield from (
        _errors(NOTHING, LAW, _signed(made)),
        _errors(NOTHING, UNIFORM, made.uniform.nothing(made.found) / made.found.speedup - 1),
        _errors(NOTHING, LINE, nothing),
    )
    for what, found in made.variants.items():
        yield _errors(NOTHING, f"{LAW}, {what}", found)
    yield from (
        _errors(ONE, LAW, made.known.one),
        _errors(ONE, UNIFORM, made.uniform_known.one),
        _errors(ONE, LINE, one),
    )
    for what, found in made.tails.items():
        yield _errors(ONE, f"{LAW}, {what}", found)
    yield from (
        _errors(OTHERS, LAW, made.known.others),
        _errors(OTHERS, UNIFORM, made.uniform_known.others),
        _errors(OTHERS, LINE, others),
    )


def _signed(made: Evaluation) -> Array:
    """With nothing known, predicted over measured, less one."""
    return made.laws.nothing(made.found) / made.found.speedup - 1


def _errors(known: str, prediction: str, error: Array) -> dict[str, Any]:
    found = evaluation().found
    absolute = np.abs(error)
    by_target = [float(absolute[found.of(at)].mean()) for at in range(len(found.targets))]
    worst = int(np.argmax(by_target))
    return {
        "known": known,
        "prediction": prediction,
        "rows": len(absolute),
        "mean_error": float(absolute.mean()),
        "over_targets": float(np.mean(by_target)),
        "without_scout": float(absolute[~found.of(found.targets.index(SCOUT))].mean()),
        "worst_target": found.targets[worst],
        "worst_error": by_target[worst],
        "source": SOURCE,
    }


def targets() -> Iterator[dict[str, Any]]:
    """By target; the plain step is predicted without the target too."""
    made = evaluation()
    for at, name in enumerate(made.found.targets):
        of = made.found.of(at)
        plain, drafted = times(made.found, made.moved, made.laws.laws[at])
        measured_s = made.found.plain_s / made.found.speedup
        in_steps = made.found.acceptance_length / made.found.speedup
        yield {
            "target": name,
            "tensor_parallel": published()[name],
            "rows": int(of.sum()),
            **_three(made, of),
            "plain_ms": 1e3 * float(made.found.plain_s[of].mean()),
            "plain_error": float((plain / made.found.plain_s)[of].mean() - 1),
            "round_in_plain_steps": float(in_steps[of].mean()),
            "round_error": float((drafted / measured_s)[of].mean() - 1),
            "source": SOURCE,
        }


def configurations() -> Iterator[dict[str, Any]]:
    """By steps / topk / draft tokens."""
    made = evaluation()
    for name in sorted(set(made.found.configuration)):
        of = np.asarray(made.found.configuration == name)
        yield {
            "configuration": str(name),
            "rows": int(of.sum()),
            **_three(made, of),
            "source": SOURCE,
        }


def _three(made: Evaluation, of: Mask) -> dict[str, float]:
    """Errors of some rows in the three states of knowledge."""
    signed = _signed(made)[of]
    return {
        "nothing_known": float(np.abs(signed).mean()),
        "nothing_known_signed": float(signed.mean()),
        "one_row_known": float(made.known.one[of].mean()),
        "other_rows_known": float(np.abs(made.known.others[of]).mean()),
    }


def parameters() -> Iterator[dict[str, Any]]:
    """Of all rows, and without each target, with the spread of what its correction rests on."""
    made = evaluation()
    yield {"without": None, **asdict(made.laws.law), "tails": None, **dict.fromkeys(_SPREADS)} | {
        "source": SOURCE
    }
    for name, law, spread in zip(
        made.found.targets, made.laws.laws, made.known.spreads, strict=True
    ):
        yield _fold(name, law, spread)


def _fold(name: str, law: Law, spread: Spread) -> dict[str, Any]:
    values = np.exp(spread.logarithms)
    deviations = [*np.sqrt(values[:4]), *values[4:]]
    return {
        "without": name,
        **asdict(law),
        "tails": spread.tails,
        **{part: float(each) for part, each in zip(_SPREADS, deviations, strict=True)},
        "source": SOURCE,
    }


def parallelism() -> Iterator[Row]:
    """Degrees by target, with where they are from, and the smallest that holds the weights."""
    fits = smallest()
    for name, row in deployments().items():
        yield {
            "target": name,
            "shape": row["shape"],
            "dtype": row["dtype"] or None,
            "tensor_parallel": int(row["tensor_parallel"]),
            "smallest": fits[name],
            "basis": row["basis"],
            "source": row["source"],
        }


def every_row() -> Iterator[dict[str, Any]]:
    """Every measurement beside its predictions; ``one_row_error`` is a mean of absolutes."""
    made = evaluation()
    found, predicted = made.found, made.laws.nothing(made.found)
    for row in range(len(found.target)):
        measured = float(found.speedup[row])
        yield {
            "target": found.targets[int(found.target[row])],
            "draft": str(found.draft[row]),
            "task": str(found.task[row]),
            "configuration": str(found.configuration[row]),
            "acceptance_length": float(found.acceptance_length[row]),
            "measured_speedup": measured,
            "predicted_speedup": float(predicted[row]),
            "others_known_speedup": measured * (1 + float(made.known.others[row])),
            "relative_error": float(predicted[row]) / measured - 1,
            "one_row_error": float(made.known.one[row]),
            "others_known_error": float(made.known.others[row]),
            "source": SOURCE,
        }
