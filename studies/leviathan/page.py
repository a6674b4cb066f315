"""Leviathan23: the formulas against its printed tables, and against our pairs of models."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from studies.common.claims import counted
from studies.common.measured import Measured
from studies.common.study import NOT_DECODED, Picture, Row, Study, Tables, listed
from studies.leviathan import figures, paper, tables
from studies.leviathan.claims import claims

_CAPTIONS = {
    "table1": "Leviathan23 Table 1. Operations and speed at c = 0, printed and computed.",
    "table4": "Leviathan23 Tables 2 and 4. `exp` and `emp` are the speedups that the paper "
    "expects and measures. `our_exp` is the formula at the printed alpha and c, and `best_gamma` "
    "is the best length for them.",
    "pairs": "Our pairs, as in Table 4. The speedup of the whole trace by the paper's formula and "
    "by replay with measured run times. Columns with `_then` predict the requests that were "
    "decoded, from the run times of that hour; what was measured of them stands beside, with its "
    "95 % interval. `alpha_at_starts` is alpha where replay starts its blocks.",
    "table3": "Leviathan23 Table 3. Alpha by drafter, ours below. Where `from` names tokens per "
    "call, alpha is inverted from them as if every block drafted gamma tokens; that is too small "
    "where the end of the text, or a copy that found nothing, cuts blocks short.",
    "table5": "Leviathan23 Table 5. Alpha under lenience l, ours below; `tokens_per_call` and "
    "speedups are of decoding.",
    "lenience_speed": "Leviathan23 appendix A.4. Speed of T5-small under lenience at c = 0.015, "
    "printed and computed.",
    "cheap": "Drafters of negligible cost (section 3.6). The speedup that c = 0 promises, the "
    "same with the measured v(gamma + 1), and what decoding gave.",
    "oracle": "An oracle that knows the next rejection (section 3.5). What it would win over the "
    "best gamma. Ours may start blocks anywhere in the text, as the survival curve does, which "
    "flatters it.",
    "claims": "What the paper says, on our models. `holds` counts the cases that were measured.",
}

_PICTURES = {
    "speedup": Picture(figures.speedup, ("table4", "pairs")),
    "alpha": Picture(figures.alpha, ("table3",)),
    "figure2": Picture(figures.figure2, ("figure2", "pairs")),
    "figure3": Picture(figures.figure3, ("figure3",)),
    "figure4": Picture(figures.figure4, ("figure4",)),
    "lenience": Picture(figures.lenience, ("table5",)),
    "cheap": Picture(figures.cheap, ("cheap",)),
    "oracle": Picture(figures.oracle, ("figure_oracle", "oracle")),
}

_CLAIM = (
    "Leviathan23 lets a small model draft tokens that the large one verifies in a single run. "
    "It claims that decoding becomes 2 to 3 times as fast with the same output, and that alpha, c "
    "and gamma alone predict by how much."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    pairs = list(tables.pairs(measured))
    cheap = [*paper.bigram(), *tables.cheap(measured)]
    lenience = [*paper.table5(), *tables.lenience(measured)]
    oracle = list(tables.oracle(measured))
    return {
        "table1": list(paper.table1()),
        "table4": list(paper.table4()),
        "pairs": pairs,
        "table3": [*paper.table3(), *tables.table3(measured)],
        "table5": lenience,
        "lenience_speed": list(paper.lenience_speed()),
        "cheap": cheap,
        "oracle": oracle,
        "claims": counted(claims(pairs, cheap, lenience, oracle)),
        **paper.curves(),
    }


def _opening(found: Tables) -> Sequence[str]:
    own = [row for row in found["pairs"] if "replay" in row]
    decoded = [row for row in own if row["formula_then"] is not None]
    return _CLAIM, _found(found, own), _differs(own, decoded) if decoded else NOT_DECODED


def _found(found: Tables, own: Sequence[Row]) -> str:
    checks = paper.checks(found)
    computed = [each for each in checks if each.ours is not None]
    first = {row["temperature"]: row["alpha"] for row in own}
    rates = listed([f"{first[at]:.2f} at temperature {at:g}" for at in sorted(first)])
    best = max(own, key=lambda row: row["replay"])
    return (
        f"Of its {len(checks)} printed numbers {len(computed)} can be computed from what it "
        f"prints, and {sum(each.matches for each in computed)} of those agree. Our draft costs "
        f"c = {best['c']:.2f} and has an alpha of {rates}. Over the whole trace the replay expects "
        f"most of gamma {best['gamma']} at temperature {best['temperature']:g}: "
        f"{best['replay']:.2f} times plain decoding, where the formula says {best['formula']:.2f}."
    )


def _differs(own: Sequence[Row], decoded: Sequence[Row]) -> str:
    best = max(decoded, key=lambda row: row["measured"])
    worst = max(decoded, key=lambda row: row["formula_then"] / row["measured"])
    shorter = sum(row["tokens_by_replay"] < row["tokens_by_formula"] for row in own)
    return (
        f"Decoded, gamma {best['gamma']} at temperature {best['temperature']:g} was the fastest, "
        f"at {best['measured']:.2f} times plain decoding; for the same requests the formula says "
        f"{best['formula_then']:.2f} and the replay {best['replay_then']:.2f}. Over all settings "
        f"the formula is {_error(decoded, 'formula_then'):.0%} off in the median and the replay "
        f"{_error(decoded, 'replay_then'):.0%}. The formula charges a verifying run as one plain "
        f"run, while ours on {worst['gamma'] + 1} positions takes {worst['v']:.2f}. It takes "
        f"acceptance as alike everywhere, while at temperature {worst['temperature']:g} ours is "
        f"{worst['alpha_at_starts']:.2f} where blocks start and {worst['alpha']:.2f} over all "
        f"text; {shorter} of {len(own)} settings yield fewer tokens per call by replay than by "
        "the formula."
    )


def _error(decoded: Sequence[Row], column: str) -> float:
    return float(median(abs(row[column] / row["measured"] - 1) for row in decoded))


STUDY = Study(
    "Leviathan23: Fast Inference from Transformers via Speculative Decoding",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    paper.checks,
)
