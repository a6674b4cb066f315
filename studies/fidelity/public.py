"""Other people's measurements of speculative decoding, against the papers' formula.

``reference/public_measurements.csv`` holds 592 rows collected from papers, engines' issues and
blogs, each with its source and, in ``note``, what its acceptance figure means.  Four meanings are
kept apart, as ``specsim.conversions`` does: mean acceptance length (recovered or bonus token
counted), alpha, accepted over drafted tokens, and the marginal rate of one position.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from specsim import conversions, formulas
from studies.common.study import Check, Row, reference, where

# The key of a chain of drafts that was measured at several lengths.
_CHAIN = ("source", "target", "draft", "task", "batch")


def rows() -> list[dict[str, Any]]:
    """One row a measurement, with the papers' formula, or why it cannot be computed.

    tokens_per_call : mean acceptance length, from whichever figure was published (i.i.d. from an
        alpha)
    alpha : the i.i.d. acceptance rate with that length at this gamma
    block_cost : what a block took, in target runs: acceptance length over speedup
    with_verification : the formula with the measured cost of the verifying run, where it is known
    """
    costs = {
        (row["task"], row["draft"], row["temperature"]): float(row["c"])
        for row in reference("leviathan23_table4")
    }
    return [_row(row, costs) for row in reference("public_measurements")]


# Leviathan23 prints 1.25 for the bigram draft as what its formula says at c = 0.
_OWN_FORMULA = ("section 4.2", "bigram")


def _row(row: dict[str, str], costs: dict[tuple[str, str, str], float]) -> dict[str, Any]:
    gamma, speedup = _gamma(row), _number(row["measured_speedup"])
    meaning, tokens, alpha = _acceptance(row, gamma)
    c = _draft_cost(row, costs)
    why = _why_not(row, gamma, alpha, c)
    formula, verify = None, re.search(r"verify\(\d+\)=.*=(\d+\.\d+)", row["c_or_draft_cost"])
    verified = None
    if not why and alpha is not None and c is not None and gamma is not None:
        formula = float(formulas.speedup(alpha, c, gamma))
        if verify:
            beyond_one = float(verify[1]) - 1
            verified = float(formulas.speedup(alpha, c, gamma, overhead=beyond_one))
    return {
        "source": f"{row['source']}, {row['table']}",
        "target": row["target"],
        "draft": row["draft"],
        "task": row["task"],
        "temperature": row["temperature"],
        "batch": row["batch"],
        "hardware": row["hardware"],
        "gamma": gamma,
        "meaning": meaning,
        "published": row["alpha_or_mean_accepted"],
        "tokens_per_call": tokens,
        "alpha": alpha,
        "c": c,
        "formula_speedup": formula,
        "with_verification": verified,
        "measured_speedup": speedup,
        "relative_error": None if formula is None or not speedup else formula / speedup - 1,
        "block_cost": None if tokens is None or not speedup else tokens / speedup,
        "why_not": why,
    }


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # empty, or a range
        return None


def _gamma(row: dict[str, str]) -> int | None:
    """Drafted tokens of a chain; None for trees and for lengths that vary or are not said."""
    chain = re.fullmatch(r"steps=(\d+);topk=1;draft_tokens=\d+", row["gamma_or_tree"])
    if chain:
        return int(chain[1])
    return int(row["gamma_or_tree"]) if row["gamma_or_tree"].isdigit() else None


def _acceptance(row: dict[str, str], gamma: int | None) -> tuple[str, float | None, float | None]:
    """What was published, as a mean acceptance length and as an i.i.d. alpha where there is one."""
    said = re.search(r"metric=([^;]*)", row["note"])
    value = _number(row["alpha_or_mean_accepted"])
    if said is None or value is None:
        return "none", None, None
    if said[1].startswith("AL"):
        alpha = conversions.alpha_from_acceptance_length(value, gamma) if gamma else None
        return "acceptance length", value, alpha
    if said[1].startswith("alpha"):
        tokens = float(formulas.tokens_per_call(value, gamma)) if gamma else None
        return "alpha", tokens, value
    if said[1].startswith("accepted/drafted"):
        if not gamma:
            return "accepted / drafted", None, None
        tokens = conversions.acceptance_length_from_acceptance_rate(value, gamma)
        return (
            "accepted / drafted",
            tokens,
            conversions.alpha_from_acceptance_rate(value, gamma),
        )
    if said[1].startswith("cumulative"):
        return "marginal rate of one position", None, None
    return "other", None, None


def _draft_cost(row: dict[str, str], costs: dict[tuple[str, str, str], float]) -> float | None:
    """c, where it was measured; a ratio of parameters or layers is none."""
    task = {"WMT EnDe": "EnDe", "CNN/DM": "CNNDM"}.get(row["task"], "")
    of_table_4 = costs.get((task, row["draft"].partition(" ")[0], row["temperature"]))
    if of_table_4 is not None and row["source"].startswith("Leviathan"):
        return of_table_4
    said = re.search(r"\bc=[\d./]+=(\d+\.\d+)|=> c=(\d+\.\d+)", row["c_or_draft_cost"])
    if said:
        return float(said[1] or said[2])
    return 0.0 if row["c_or_draft_cost"] == "0" else None


def _why_not(row: dict[str, str], gamma: int | None, alpha: float | None, c: float | None) -> str:
    if _number(row["measured_speedup"]) is None:
        return "no measured speedup, or a range"
    if (row["table"], row["draft"]) == _OWN_FORMULA:
        return "its speedup was computed with the formula"
    if not row["alpha_or_mean_accepted"]:
        return "no acceptance published"
    if row["batch"] != "1":
        return "more than one request at a time, or not said: the formula is for one"
    if gamma is None:
        return "a tree of drafts, or a length that varies: no gamma"
    if alpha is None:
        return "the published acceptance is of one position, or not defined"
    return "no measured cost of the draft" if c is None else ""


def reasons(found: Sequence[Row]) -> list[dict[str, Any]]:
    """How many rows the formula could be computed for, and why not the others."""
    counts = Counter(row["why_not"] or "computed" for row in found)
    return [
        {"formula": why, "rows": count, "of": len(found), "source": "public_measurements.csv"}
        for why, count in counts.most_common()
    ]


def chains(found: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The formula's two assumptions, on chains that were measured at several lengths.

    i.i.d. acceptance: alpha from the acceptance length at the shortest gamma gives the length at
    the others.  A block that costs gamma c + v with v fixed: a straight line through the block
    costs of the two shortest gives that of the others.
    """
    groups: dict[tuple[str, ...], dict[int, Row]] = defaultdict(dict)
    for row in found:
        if row["gamma"] and row["tokens_per_call"] and row["meaning"] != "alpha":
            groups[tuple(row[name] for name in _CHAIN)][row["gamma"]] = row
    for key, by_gamma in groups.items():
        first, *others = sorted(by_gamma)
        alpha = by_gamma[first]["alpha"]
        for place, gamma in enumerate(others):
            row = by_gamma[gamma]
            formula = float(formulas.tokens_per_call(alpha, gamma))
            cost = None
            if place and by_gamma[first]["block_cost"] and by_gamma[others[0]]["block_cost"]:
                low, high = by_gamma[first]["block_cost"], by_gamma[others[0]]["block_cost"]
                cost = low + (high - low) * (gamma - first) / (others[0] - first)
            measured = row["measured_speedup"]
            yield {
                **dict(zip(_CHAIN, key, strict=True)),
                "known_gamma": first,
                "gamma": gamma,
                "formula_tokens_per_call": formula,
                "measured_tokens_per_call": row["tokens_per_call"],
                "tokens_error": formula / row["tokens_per_call"] - 1,
                "line_block_cost": cost,
                "measured_block_cost": row["block_cost"],
                "cost_error": cost / row["block_cost"] - 1 if cost and row["block_cost"] else None,
                "formula_speedup": formula / cost if cost else None,
                "measured_speedup": measured,
                "speedup_error": formula / cost / measured - 1 if cost and measured else None,
            }


def blocks(found: Sequence[Row]) -> list[dict[str, Any]]:
    """What blocks took, in target runs, where acceptance length and speedup were published.

    The formula says gamma c + 1; 1 would be drafts for nothing.
    """
    groups: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in found:
        if row["block_cost"] is not None and row["gamma"] and row["meaning"] != "alpha":
            groups[row["source"].partition(",")[0], row["batch"], row["gamma"]].append(
                row["block_cost"]
            )
    return [
        {
            "source": source,
            "batch": batch,
            "gamma": gamma,
            "rows": len(costs),
            "block_cost": median(costs),
            "least": min(costs),
            "most": max(costs),
        }
        for (source, batch, gamma), costs in sorted(groups.items(), key=str)
    ]


def checks() -> list[Check]:
    """Published acceptance lengths against the rates published beside them."""
    by_source: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    found = []
    for row in reference("public_measurements"):
        value, note = _number(row["alpha_or_mean_accepted"]), row["note"]
        said = re.search(r"\bAL=(\d+\.\d+)", note)
        if value is not None and said and "metric=cumulative" in note:
            by_source[row["source"]][float(said[1])].append(value)
        if value is not None and said and "metric=alpha pos0" in note:
            found.append(_length(row["source"], "one position", float(said[1]), [value]))
        rates = re.search(r"per-position=([\d.;]+\d)", note)
        if value is not None and rates and "metric=AL" in note:
            marginal = [float(rate) for rate in rates[1].split(";")]
            found.append(_length(row["source"], "rates per position", value, marginal))
        rounds = re.search(r"draft acceptance ([\d.]+)/([\d.]+)%", note)
        gamma = _gamma(row)
        if value is not None and rounds and gamma:
            found.append(_from_rate(row["source"], gamma, value, rounds))
    for source, lengths in by_source.items():
        for printed, marginal in lengths.items():
            found.append(_length(source, "rates per position", printed, marginal))
    bigram = float(formulas.speedup(0.2, 0.0, 3))
    found.append(
        # Half a unit of the last printed digit.
        Check("Leviathan23 section 4.2", "bigram, alpha 0.2, gamma 3, c = 0", 1.25, bigram, 0.005)
    )
    return found


def _length(source: str, what: str, printed: float, marginal: list[float]) -> Check:
    # Half a unit of the printed length, and of each rate (three digits or more).
    tolerance = 0.005 + 0.0005 * len(marginal)
    ours = conversions.acceptance_length_from_marginal(marginal)
    return Check(source, f"acceptance length from {what}", printed, ours, tolerance)


def _from_rate(source: str, gamma: int, printed: float, rounds: re.Match[str]) -> Check:
    rate = (float(rounds[1]) + float(rounds[2])) / 200
    ours = conversions.acceptance_length_from_acceptance_rate(rate, gamma)
    tolerance = 0.0005 + 0.0005 * gamma  # the length has three digits, the rates too
    reason = "the source defines neither figure"
    what = f"acceptance length from draft acceptance, gamma {gamma}"
    off = abs(ours - printed) > tolerance
    return Check(source, what, printed, ours, tolerance, reason if off else "")


def summary(chains_found: Sequence[Row]) -> list[dict[str, Any]]:
    """Median and worst error of both assumptions, by how far the formula reaches."""
    found = []
    for known, gamma in sorted({(row["known_gamma"], row["gamma"]) for row in chains_found}):
        reach = where(chains_found, known_gamma=known, gamma=gamma)
        summed: dict[str, Any] = {"known_gamma": known, "gamma": gamma, "chains": len(reach)}
        for name in ("tokens_error", "cost_error", "speedup_error"):
            errors = [row[name] for row in reach if row[name] is not None]
            summed[f"median_{name}"] = median(errors) if errors else None
            summed[f"worst_{name}"] = max(errors, key=abs) if errors else None
        found.append({**summed, "source": "public_measurements.csv"})
    return found
