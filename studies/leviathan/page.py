"""Leviathan23: the formulas against its printed tables, and against our pairs of models."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from studies.common.study import Measured, Row, Tables
from studies.leviathan import paper
from studies.leviathan import tables as ours
from studies.leviathan.claims import claims
from studies.leviathan.figures import draw
from studies.leviathan.paper import checks

__all__ = ["CAPTIONS", "FIGURES", "TITLE", "checks", "compute", "draw", "opening"]

TITLE = "Leviathan23: Fast Inference from Transformers via Speculative Decoding"

CAPTIONS = {
    "table1": "Leviathan23 Table 1. Operations and speed at c = 0, printed and computed.",
    "table4": "Leviathan23 Tables 2 and 4. `exp` and `emp` are the speedups that the paper "
    "expects and measures, `our_exp` is the formula at the printed alpha and c, `best_gamma` the "
    "best for them.",
    "pairs": "Our pairs, as in Table 4. Speedup by the paper's formula and by replay with measured "
    "run times, of the whole trace; then both for the requests decoded and the run times of that "
    "hour (`_then`), beside what was measured of them, with its 95 % interval; `alpha_at_starts` "
    "is alpha where replay starts its blocks.",
    "table3": "Leviathan23 Table 3. Alpha by drafter, ours below; `from` says where it was "
    "inverted from tokens per call as if every block drafted gamma tokens, which is too small "
    "where blocks are cut short by the end of the text or by a copy that found nothing.",
    "table5": "Leviathan23 Table 5. Alpha under lenience l, ours below; `tokens_per_call` and "
    "speedups are of decoding.",
    "lenience_speed": "Leviathan23 appendix A.4. Speed of T5-small under lenience at c = 0.015, "
    "printed and computed.",
    "cheap": "Drafters of negligible cost (section 3.6). The speedup that c = 0 promises, the "
    "same with the measured v(gamma + 1), and what decoding gave.",
    "oracle": "An oracle that knows the next rejection (section 3.5). What it would win over the "
    "best gamma; ours starts blocks anywhere in the text, as the survival curve does, which "
    "flatters it.",
    "claims": "What the paper says, on our models. `holds` counts the cases that were measured.",
}

FIGURES = {
    "speedup": "Measured against predicted speedup: the paper's Table 4, and our pair with its "
    "95 % intervals.",
    "alpha": "Acceptance by drafter, the paper's Table 3 above and ours below; bars are 95 % "
    "intervals, several dots are several draft lengths.",
    "figure2": "Leviathan23 Figure 2: expected tokens per target call; dots are our pair by "
    "replay of its text, off the curve of their colour as far as acceptance is not i.i.d.",
    "figure3": "Leviathan23 Figure 3: the best gamma where verification is free and acceptance "
    "i.i.d.",
    "figure4": "Leviathan23 Figure 4: speedup and operations per token at c = 0.",
    "lenience": "Acceptance under lenience: the paper's Table 5, and our pair. Decoding (dashed) "
    "writes another text at every l, so its alpha may fall where that of one text rises.",
    "cheap": "Drafters without a model: what c = 0 promises, what the cost of verifying leaves of "
    "it, and what was measured.",
    "oracle": "What an oracle for gamma gains over the best fixed gamma.",
}


def compute(measured: Measured) -> Tables:
    workloads = measured.workloads
    pairs = list(ours.pairs(measured, workloads))
    cheap = [*paper.bigram(), *ours.cheap(measured, workloads)]
    lenience = [*paper.table5(), *ours.lenience(measured, workloads)]
    oracle = list(ours.oracle(measured, workloads))
    return {
        "table1": list(paper.table1()),
        "table4": list(paper.table4()),
        "pairs": pairs,
        "table3": [*paper.table3(), *ours.table3(measured, workloads)],
        "table5": lenience,
        "lenience_speed": list(paper.lenience_speed()),
        "cheap": cheap,
        "oracle": oracle,
        "claims": claims(pairs, cheap, lenience, oracle),
        **paper.curves(),
    }


def opening(tables: Tables) -> str:
    said = (
        "Leviathan23 claims that drafts of a small model, verified by the large one in a single "
        "run, make decoding 2 to 3 times as fast with the same output, and that alpha, c and gamma "
        "alone predict by how much."
    )
    return f"{said} {_found(tables)} {_difference(tables)}"


def _found(tables: Tables) -> str:
    found = checks(tables)
    computed = [each for each in found if each.ours is not None]
    own = _own(tables)
    first = {row["temperature"]: row for row in reversed(own)}
    rates = " and ".join(
        f"{row['alpha']:.2f} at temperature {at:g}" for at, row in sorted(first.items())
    )
    decoded = [row for row in own if row["measured"] is not None]
    how = "measured" if decoded else "replay"
    best = max(decoded or own, key=lambda row: row[how])
    promised = best["formula"] if best["formula_then"] is None else best["formula_then"]
    return (
        f"Of its {len(found)} printed numbers {len(computed)} can be computed, and "
        f"{sum(each.matches for each in computed)} of those agree; our draft (alpha {rates}, "
        f"c = {best['c']:.2f}) makes decoding {best[how]:.2f} times as fast at best"
        f"{'' if decoded else ' by replay'} (gamma {best['gamma']}, temperature "
        f"{best['temperature']:g}), where the formula promises {promised:.2f}."
    )


def _difference(tables: Tables) -> str:
    own = _own(tables)
    decoded = [row for row in own if row["formula_then"] is not None]
    if not decoded:
        return (
            "Nothing was decoded with this profile, so no prediction can be judged here: "
            "specsim validate makes those measurements."
        )
    worst = max(decoded, key=lambda row: row["formula_then"] / row["measured"])
    shorter = sum(row["tokens_by_replay"] < row["tokens_by_formula"] for row in own)
    return (
        f"Against decoding the formula is {_error(decoded, 'formula_then'):.0%} off in the median "
        f"and the replay {_error(decoded, 'replay_then'):.0%}, both from the decoded requests' own "
        f"acceptance: verifying {worst['gamma'] + 1} positions takes {worst['v']:.2f} plain runs "
        f"and not 1; over the whole trace alpha is {worst['alpha_at_starts']:.2f} where blocks "
        f"start and {worst['alpha']:.2f} over all text (temperature {worst['temperature']:g}), so "
        f"that {shorter} of {len(own)} settings yield fewer tokens per call there than the formula "
        "says."
    )


def _own(tables: Tables) -> list[Row]:
    """Rows of the profile's own pair."""
    return [row for row in tables["pairs"] if "replay" in row]


def _error(decoded: Sequence[Row], column: str) -> float:
    return float(median(abs(row[column] / row["measured"] - 1) for row in decoded))
