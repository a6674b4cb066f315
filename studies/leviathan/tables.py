"""What our models do, for the page: acceptance, speedups, lenience, cheap drafters.

It rests on the profile: ``Workload`` predicts by replay, ``specsim.formulas`` says what the paper
would.  This study's own are ``lenient_acceptance`` and ``random_acceptance``, both from text that
the target sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specsim import evaluate, formulas, optimize
from specsim.checks import Floats
from specsim.conversions import alpha_from_acceptance_length
from specsim.files import read_frame
from specsim.frontier import LabelledPositions
from specsim.optimizers.workload import Workload
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import TraceError
from studies.common.claims import mean_over_positions
from studies.common.decoded import LOSSLESS, WITHOUT_MODEL, is_of, single_drafters
from studies.common.measured import Measured, temperature_of, verify_curve
from studies.common.study import Row, where

LENIENCES = (1.0, 0.5, 0.3, 0.1)
# Above temperature 0, and at it.
LENIENT_RULES = ("Lenient", "GreedyLenient")


def lenient_acceptance(logp: Floats, logq: Floats, lenience: float) -> Floats:
    """min(q(x)/p(x), 1/l) at tokens x ~ p, (T,), whose mean is sum_x min(q, p/l).

    That is acceptance under lenience (Leviathan23 A.4), from text of the target above
    temperature 0; ``logp`` and ``logq`` are logs of the emitted tokens' probabilities.
    """
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(logq - logp), 1 / lenience)


def random_acceptance(logp: Floats, vocabulary: int) -> Floats:
    """min(1/(V p(x)), 1) at tokens x ~ p, (T,), whose mean is sum_x min(p, 1/V)."""
    return np.minimum(np.exp(-logp) / vocabulary, 1.0)


def _logs(workload: Workload, measured: Measured) -> tuple[Floats, Floats]:
    """log p and log q of the trace's tokens, (T,) each."""
    frame = read_frame(measured.path.parent / workload.measured.trace.file, "trace", TraceError)
    target, draft = (frame[f"logp_{who}"].to_numpy(np.float64) for who in ("target", "draft"))
    return target, draft


def pairs(measured: Measured) -> Iterator[dict[str, Any]]:
    decoded = list(single_drafters(measured.decoded))
    names = {"target": measured.profile.target.name}
    for workload in measured.workloads:
        temperature = temperature_of(workload)
        rate, c = workload.measured.alpha.best, workload.draft_cost
        lengths = range(1, measured.profile.gamma_max + 1)
        replays = replay(workload.trace, lengths)
        for found, replayed in zip(workload.predict(lengths), replays, strict=True):
            at = {"gamma": found.gamma, "temperature": temperature}
            # The calibration's own prompts come first among the rows of ``specsim validate``.
            rows = where(measured.speedups, **at)
            rows += where(measured.decoded, scheme="speculative", drafters="draft", **at)
            yield {
                **names,
                "draft": measured.profile.draft.name,
                "temperature": temperature,
                "gamma": found.gamma,
                "alpha": rate,
                "alpha_at_starts": float(
                    replayed.starts @ workload.trace.acceptance / replayed.starts.sum()
                ),
                "c": c,
                "v": verify_curve(workload)[found.gamma],
                "tokens_by_formula": evaluate(rate, c, found.gamma).tokens_per_call,
                "tokens_by_replay": found.tokens_per_call,
                "formula": workload.formula(found.gamma),
                "replay": found.speedup,
                **_decoding(rows),
            }
        for name, gamma, row in decoded:
            if name != "draft" and row["temperature"] == temperature:
                alpha = alpha_from_acceptance_length(row["measured_tokens_per_call"], gamma)
                without_model = name in WITHOUT_MODEL
                free = evaluate(alpha, 0.0, gamma).speedup if without_model else None
                yield {
                    **names,
                    "draft": name,
                    "temperature": temperature,
                    "gamma": gamma,
                    "alpha": alpha,
                    "c": 0.0 if without_model else None,
                    "formula": free,
                    **_decoding([row]),
                }


def _decoding(rows: Sequence[Row]) -> dict[str, Any]:
    """Columns of what was decoded, absent if nothing was."""
    if not rows:
        return dict.fromkeys(("formula_then", "replay_then", "measured", "low", "high"))
    row = rows[0]
    return {
        "formula_then": row.get("formula_speedup"),
        "replay_then": row["predicted_speedup"],
        "measured": row["measured_speedup"],
        "low": row["measured_low"],
        "high": row["measured_high"],
    }


def table3(measured: Measured) -> Iterator[dict[str, Any]]:
    names = {"target": measured.profile.target.name}
    for workload in measured.workloads:
        rate = workload.measured.alpha
        yield {
            **names,
            "draft": measured.profile.draft.name,
            "temperature": temperature_of(workload),
            "alpha": rate.best,
            "low": rate.low,
            "high": rate.high,
            "from": f"{workload.measured.tokens} tokens of the target",
        }
    for name, gamma, row in single_drafters(measured.decoded):
        length = row["measured_tokens_per_call"]
        yield {
            **names,
            "draft": "the same draft" if name == "draft" else name,
            "temperature": row["temperature"],
            "alpha": alpha_from_acceptance_length(length, gamma),
            "from": f"{length:.3f} tokens per call at gamma {gamma}, {row['requests']} requests",
        }


def lenience(measured: Measured) -> Iterator[dict[str, Any]]:
    names = {"draft": measured.profile.draft.name}
    accepted: list[tuple[str, float, float, Floats, Any]] = []
    for lenience in LENIENCES:
        for workload in measured.workloads:
            temperature = temperature_of(workload)
            if temperature > 0:
                values = lenient_acceptance(*_logs(workload, measured), lenience)
                starts = workload.trace.starts
                accepted.append(("text of the target", temperature, lenience, values, starts))
        for temperature, positions in measured.positions.items():
            held_out = scored_acceptance(positions, temperature, lenience)
            if held_out is not None:
                starts = positions.starts
                accepted.append(("held-out text", temperature, lenience, held_out, starts))
    for text, temperature, lenience, values, starts in sorted(accepted, key=lambda each: each[:2]):
        found = mean_over_positions(values, starts)
        yield {
            **names,
            "temperature": temperature,
            "lenience": lenience,
            "alpha": found.best,
            "low": found.low,
            "high": found.high,
            "from": text,
        }
    for row in measured.decoded:
        is_lenient = row["rule"] in LENIENT_RULES
        if is_lenient or is_of(row, LOSSLESS):
            length = row["measured_tokens_per_call"]
            yield {
                **names,
                "temperature": row["temperature"],
                "lenience": row["threshold"] if is_lenient else 1.0,
                "alpha": alpha_from_acceptance_length(length, row["gamma"]),
                "from": f"decoding, gamma {row['gamma']}",
                "tokens_per_call": length,
                "predicted_speedup": row["predicted_speedup"],
                "measured_speedup": row["measured_speedup"],
            }


def scored_acceptance(
    positions: LabelledPositions, temperature: float, lenience: float
) -> Floats | None:
    """Lenient acceptance at every scored position, (T,), or None where the file cannot say."""
    columns = positions.columns
    if temperature > 0:
        # Narasimhan24's looseness a accepts with min(1, p / ((1 - a) q)): l = 1 - a.
        strict = columns.get(f"Lossy(looseness={1 - lenience:g}).rejection")
        rejected = positions.tv if lenience == 1 else strict
        return None if rejected is None else 1 - rejected
    drafted, top = columns.get("unscaled_bild_greedy"), columns.get("unscaled_target_max")
    if drafted is None or top is None:
        return None
    # p(argmax q) >= l max p (errata: the paper prints <=), up to rounding of equal numbers.
    return np.asarray(np.exp(-drafted) >= lenience * top * (1 - 1e-6), dtype=float)


def cheap(measured: Measured) -> Iterator[dict[str, Any]]:
    tokens = [w.trace.columns["token"] for w in measured.workloads if "token" in w.trace.columns]
    # The profile does not say V: at least the largest token seen + 1.
    size = max((int(each.max()) + 1 for each in tokens), default=None)
    for workload in measured.workloads:
        temperature = temperature_of(workload)
        curve = verify_curve(workload)
        found: list[tuple[str, int, float, list[Row]]] = []
        for name, gamma, row in single_drafters(measured.decoded):
            if name in WITHOUT_MODEL and row["temperature"] == temperature:
                alpha = alpha_from_acceptance_length(row["measured_tokens_per_call"], gamma)
                found.append((name, gamma, alpha, [row]))
        if size is not None:
            alpha = 1 / size
            if temperature > 0:
                alpha = float(random_acceptance(_logs(workload, measured)[0], size).mean())
            found.append((f"random (V = {size})", 1, alpha, []))
        for name, gamma, alpha, rows in found:
            free = evaluate(alpha, 0.0, gamma).speedup
            v = curve[gamma] if gamma < len(curve) else None
            yield {
                "draft": name,
                "temperature": temperature,
                "gamma": gamma,
                "alpha": alpha,
                "speedup_at_c_0": free,
                "bound": float(formulas.oracle_speedup(alpha, 0.0)),
                "v": v,
                "speedup_with_v": None if v is None else free / v,
                **_decoding(rows),
            }


def oracle(measured: Measured) -> Iterator[dict[str, Any]]:
    # The largest gain on the grid, and two plain settings beside it.
    alpha, c = np.meshgrid(np.arange(1, 100) / 100, np.geomspace(0.001, 1, 121), indexing="ij")
    best = optimize(alpha, c, gamma_max=1000)
    largest = np.unravel_index(np.argmax(best.oracle_speedup / best.speedup), alpha.shape)
    points = [
        ("the largest for alpha <= 0.99", float(alpha[largest]), float(c[largest])),
        ("", 0.8, 0.05),
        ("", 0.6, 0.05),
    ]
    for note, rate, cost in points:
        fixed = optimize(rate, cost, gamma_max=1000)
        found = _gain(note, rate, cost, fixed.gamma, fixed.speedup, fixed.oracle_speedup)
        yield {**found, "source": "computed"}
    for workload in measured.workloads:
        chosen = workload.best()
        yield _gain(
            f"{measured.profile.draft.name}, temperature "
            f"{temperature_of(workload):g}, oracle at most "
            f"{measured.profile.gamma_max} tokens",
            workload.measured.alpha.best,
            workload.draft_cost,
            chosen.gamma,
            chosen.speedup,
            workload.oracle_speedup(),
        )


def _gain(
    what: str, alpha: float, c: float, gamma: int, best: float, oracle: float
) -> dict[str, Any]:
    return {
        "what": what,
        "alpha": alpha,
        "c": c,
        "best_gamma": gamma,
        "best_speedup": best,
        "oracle_speedup": oracle,
        "gain_percent": 100 * (oracle / best - 1),
    }
