"""Our own study: every prediction that specsim makes beside every measurement there is.

Ours are decoders run beside the profile (``specsim validate``, plainly, with ``--scheme all`` and
with ``--synthetic``); other people's are in ``studies.fidelity.public``.  A relative error
is predicted over measured, less one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from studies.common import orderings
from studies.common.study import Check, Measured, Row, Tables
from studies.fidelity import public
from studies.fidelity import roofline as fidelity_roofline
from studies.fidelity.figures import draw
from studies.fidelity.formula import (
    BAND,
    SCHEMES,
    SPECULATIVE,
    SPEEDUP,
    SYNTHETIC,
    TOKENS,
    decisions,
    formula_rows,
    iid_rows,
)

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Fidelity: every prediction beside its measurement"

CAPTIONS: Mapping[str, str] = {
    "errors": "How far predictions are off. By measurement; an error is predicted over measured, "
    "less one.",
    "budget": "Where the error of a speedup comes from. What the speedup is off by for one part "
    "alone.",
    "formula": "The papers' formula and the replay. Beside what was measured, both from the same "
    "text and run times: the decoded requests' own, or for unseen prompts the calibration's.",
    "decisions": "The draft length that each would choose. And the share of the best measured "
    "speed that it loses.",
    "iid": "The papers' formula against the replay of the whole trace. Tokens per call, and "
    "speedup.",
    "roofline": "The roofline of each shape against the grid of batches. Its rates are fitted, as "
    "a core has no data sheet: what is left is what the form of a roofline misses.",
    "orderings": "Who beats whom according to the papers. Ratios of the speedup of the one said to "
    "be faster to the other's.",
    "decoders": "Every decoder, predicted and measured. Runs of each model are per 100 tokens, "
    "predicted / counted.",
    "public_reasons": "Public measurements. For how many the papers' formula can be computed, and "
    "why not for the others.",
    "public_formula": "Public measurements that it can be computed for.",
    "public_chains_summary": "Public chains at several lengths. The formula from the shortest.",
    "public_blocks": "Public chains. What a block took, in target runs.",
}

FIGURES: Mapping[str, str] = {
    "predicted_measured": "Every prediction and its measurement, with 95 % intervals where timed "
    "(of the calibration's prompts without the luck of the draw, which the prediction knows); "
    "grey: equal within 5 %.",
    "formula": "Speculative decoding: how far the papers' formula and the replay are from what was "
    "measured, on prompts that the calibration saw and on others; grey: 5 %.",
    "iid": "How far the papers' formula is from the replay of the same text.",
    "orderings": "Claims of the papers on our models; right of 1 they hold. Rules with thresholds "
    "are at one threshold, not at equal quality.",
    "public": "The papers' formula on public measurements: with everything as printed, and "
    "extrapolated from shorter chains; grey: equal within 5 %.",
}
# Rows behind the figures and the tables above, too long to read.
_LONG = ("points", "public_chains", "public")

_CLOSE = 0.03
_BUDGET = ("acceptance", "draft", "verify", "overhead")
_DECODERS = (
    "temperature",
    "scheme",
    "setting",
    "lossless",
    "requests",
    "predicted_tokens_per_call",
    "measured_tokens_per_call",
    "exact",
    "runs",
    "approximate",
    "runs_within_3%",
    "counts_as_predicted",
    "predicted_speedup",
    "measured_speedup",
    "measured_low",
    "measured_high",
    "relative_error",
    "log_loss",
    "accuracy",
    "agreement",
)


def compute(measured: Measured) -> Tables:
    points = list(_points(measured))
    others = public.rows()
    chains = list(public.chains(others))
    tables: Tables = {
        "errors": _errors(points),
        "budget": _budget(measured),
        "formula": list(formula_rows(measured)),
        "iid": list(iid_rows(measured)),
        "decisions": list(decisions(measured)),
        "roofline": list(fidelity_roofline.rows(measured)),
        "orderings": orderings.compute(measured),
        "decoders": [_decoder(row) for row in measured.decoded],
        "points": points,
    }
    for name in (
        *("errors", "budget", "formula", "decisions", "iid"),
        *("roofline", "decoders", "points"),
    ):
        tables[name] = [{**row, "source": measured.source} for row in tables[name]]
    tables |= {
        "public_reasons": public.reasons(others),
        "public_formula": [row for row in others if row["formula_speedup"] is not None],
        "public_chains_summary": public.summary(chains),
        "public_blocks": public.blocks(others),
        "public_chains": chains,
        "public": others,
    }
    return {name: tables[name] for name in (*CAPTIONS, *_LONG)}


def _points(measured: Measured) -> Iterator[dict[str, Any]]:
    for row in measured.decoded:
        yield from _pairs(SCHEMES, f"{row['scheme']}: {row['setting']}", row)
    for row in measured.speedups:
        yield from _pairs(SPECULATIVE, f"gamma {row['gamma']}, {row['prompts']} prompts", row)
    for row in measured.synthetic:
        setting = f"batch {row['batch']}, context {row['context']}, gamma {row['gamma']}"
        yield from _pairs(SYNTHETIC, setting, row)


def _pairs(measurement: str, setting: str, row: Row) -> Iterator[dict[str, Any]]:
    """Tokens per call and speedup of one row, as far as it has both sides of them."""
    for quantity, name in ((TOKENS, "tokens_per_call"), (SPEEDUP, "speedup")):
        predicted, found = row.get(f"predicted_{name}"), row.get(f"measured_{name}")
        if predicted is None or found is None:
            continue
        timed = quantity == SPEEDUP
        yield {
            "measurement": measurement,
            "quantity": quantity,
            "temperature": row.get("temperature"),
            "setting": setting,
            "predicted": predicted,
            "measured": found,
            "measured_low": row.get("measured_low") if timed else None,
            "measured_high": row.get("measured_high") if timed else None,
            "relative_error": predicted / found - 1,
        }


def _errors(points: Sequence[Row]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
    for row in points:
        groups[row["quantity"], row["measurement"], row["temperature"]].append(row)
    return [
        {"quantity": quantity, "measurement": measurement, "temperature": at, **_far(rows)}
        for (quantity, measurement, at), rows in groups.items()
    ]


def _far(rows: Sequence[Row]) -> dict[str, Any]:
    errors = [row["relative_error"] for row in rows]
    worst = max(rows, key=lambda row: abs(row["relative_error"]))
    bounded = [row for row in rows if row["measured_low"] is not None]
    inside = sum(row["measured_low"] <= row["predicted"] <= row["measured_high"] for row in bounded)
    return {
        "settings": len(rows),
        "median_error": median(errors),
        "median_absolute_error": median(abs(error) for error in errors),
        "within_5%": sum(abs(error) <= BAND for error in errors),
        "inside_95%_interval": inside if bounded else None,
        "worst_error": worst["relative_error"],
        "worst_setting": worst["setting"],
    }


def _budget(measured: Measured) -> list[dict[str, Any]]:
    """Parts of the speedup's error, each as what the speedup is off by for it alone.

    Acceptance: tokens per call, predicted over counted.  Cost: what is left, run times and the
    host.  Synthetic acceptance tells draft, verification and host apart, as shares of the error's
    logarithm (``specsim.predict.error_decomposition``).
    """
    parts: dict[tuple[str, str, Any], list[float]] = defaultdict(list)
    for row in measured.decoded:
        acceptance = row["predicted_tokens_per_call"] / row["measured_tokens_per_call"]
        speedup = row["predicted_speedup"] / row["measured_speedup"]
        parts[SCHEMES, "acceptance", row["temperature"]].append(acceptance - 1)
        parts[SCHEMES, "cost", row["temperature"]].append(speedup / acceptance - 1)
    for row in measured.speedups:
        for part in ("acceptance", "cost"):
            parts[SPECULATIVE, part, row["temperature"]].append(row[f"{part}_error"])
    for row in measured.synthetic:
        for part in _BUDGET:
            if row.get(f"error_{part}") is not None:
                parts[SYNTHETIC, part, row.get("temperature")].append(row[f"error_{part}"])
    return [
        {
            "measurement": measurement,
            "temperature": temperature,
            "part": part,
            "settings": len(errors),
            "median_error": median(errors),
            "median_absolute_error": median(abs(error) for error in errors),
            "worst_error": max(errors, key=abs),
        }
        for (measurement, part, temperature), errors in parts.items()
    ]


def _decoder(row: Row) -> dict[str, Any]:
    """Every column of a decoder in one cell each; runs of each model predicted / measured."""
    pairs = zip(row["predicted_runs"].items(), row["measured_runs"].values(), strict=True)
    runs = [f"{model} {expected:.0f} / {counted:.0f}" for (model, expected), counted in pairs]
    close = all(
        abs(expected - counted) <= _CLOSE * counted
        for expected, counted in zip(
            row["predicted_runs"].values(), row["measured_runs"].values(), strict=True
        )
    )
    cells = {
        **row,
        "runs": ", ".join(runs),
        "runs_within_3%": close,
        "approximate": ", ".join(row["approximate"]),
    }
    return {name: cells.get(name) for name in _DECODERS}


def opening(tables: Tables) -> str:
    return " ".join((_claim(tables), _found(tables), _differs(tables)))


def _claim(tables: Tables) -> str:
    computed = tables["public_formula"]
    errors = [abs(row["relative_error"]) for row in computed]
    return (
        "The papers' formula needs alpha, c and gamma alone; of "
        f"{len(tables['public'])} public measurements {len(computed)} print enough to compute it, "
        f"and there it is {median(errors):.0%} off in the median and {max(errors):.0%} at worst."
    )


def _found(tables: Tables) -> str:
    speedups = [row for row in tables["points"] if row["quantity"] == SPEEDUP]
    if not speedups:
        return "Nothing was decoded beside this profile (specsim validate), so ours is not shown."
    errors = [abs(row["relative_error"]) for row in speedups]
    text = (
        f"On our models predicted speedups are {median(errors):.1%} off in the median and "
        f"{max(errors):.0%} at worst, over {len(errors)} settings"
    )
    greedy = [row for row in tables["decoders"] if row["exact"] is not None]
    if greedy:
        exact = sum(row["exact"] for row in greedy)
        text += (
            f"; at temperature 0 {exact} of {len(greedy)} decoders made just the predicted calls"
        )
    if tables["decoders"]:
        agree = sum(row["counts_as_predicted"] for row in tables["decoders"])
        close = sum(row["runs_within_3%"] for row in tables["decoders"])
        text += (
            f", of all {len(tables['decoders'])} the runs of {close} are within 3 % and those of "
            f"{agree - close} more within two standard errors"
        )
    if tables["budget"]:
        worst = max(tables["budget"], key=lambda row: row["median_absolute_error"])
        at = "" if worst["temperature"] is None else f" at temperature {worst['temperature']:g}"
        text += (
            f"; the largest part of the error is {worst['part']}{at} "
            f"({worst['median_absolute_error']:.1%} in the median)"
        )
    return text + "."


def _differs(tables: Tables) -> str:
    tokens, speedups = (
        median(abs(row[name]) for row in tables["iid"])
        for name in ("tokens_difference", "speedup_difference")
    )
    # Speedups hold the tokens' share of the difference.
    cost = speedups > 2 * tokens
    why = (
        "as it takes a verifying run for a plain one and the host's time for nothing"
        if cost
        else "as it takes acceptance as i.i.d."
    )
    text = (
        f"The formula's tokens per call are {tokens:.1%} from the replay's and its speedups "
        f"{speedups:.0%}, {why}"
    )
    if tables["formula"]:
        formula, replay = (
            median(abs(row[name]) for row in tables["formula"])
            for name in ("formula_error", "replay_error")
        )
        text += f" (from what was measured {formula:.0%}, the replay {replay:.0%})"
    reach = max(tables["public_chains_summary"], key=lambda row: (row["chains"], row["gamma"]))
    return (
        f"{text}; on {reach['chains']} public chains i.i.d. acceptance read off at gamma "
        f"{reach['known_gamma']} promises {reach['median_tokens_error']:.0%} too many tokens per "
        f"call at gamma {reach['gamma']}."
    )


def checks(tables: Tables) -> list[Check]:
    """Public acceptance figures that are printed in two ways, and must agree."""
    return public.checks()
