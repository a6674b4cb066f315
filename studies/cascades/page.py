"""Narasimhan24, Faster Cascades via Speculative Decoding: quality against deferral.

Table 1's rules on random distributions (``studies.cascades.rules``), and quality against
rejections, calls and latency on text that ``specsim score`` has scored
(``studies.cascades.tables``).  The optimum knows the text: the knapsack of
``specsim.frontier.optimum``, which no deferral rule can beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specsim.frontier import OPTIMUM, BlockPrices, Comparison
from studies.cascades import figures, paper, rules, tables
from studies.common.decoded import by_temperature
from studies.common.measured import Measured
from studies.common.study import NOT_SCORED, Picture, Row, Study, Tables, listed, where

_CAPTIONS: Mapping[str, str] = {
    "equal_quality": "Narasimhan24 Table 2, ours. Speedup at the target's quality, and the best "
    "quality that is no slower than the target. Both are on held-out text, where drafts are "
    "rejected more often than on the target's own. Settings are chosen on that same text, out of "
    "thousands for deferral rules and of a dozen for the others. At a temperature that was not "
    "calibrated run times are the nearest one's.",
    "regret": "Distance from the optimum. Loss above it, averaged over all budgets of rejection.",
    "token_against_deferral": "Token rules against Diff and OPT at equal quality. A ratio of "
    "rejections below 1 is a win of the token rule.",
    "bounds": "Narasimhan24 Lemmas 7 and 8. How far the plug-in rules miss, and what they may.",
    "executions": "The same rules decoded for real. Speculatively, token by token, by answers.",
    "laws": "Narasimhan24 Table 1. What each rule says it emits, and what its sampler emits.",
    "lossy_example": "Lossy with a = 0.3 and b = 1 on three tokens. Its pi is no distribution.",
    "lossy_star": "The b that Lossy* needs. By looseness, over random pairs of distributions.",
    "token_v3": "TokenV3 by threshold. Threshold 0 is not lossless.",
}

_PICTURES = {
    "deferral": Picture(figures.deferral, ("deferral",)),
    "rejection": Picture(figures.rejection, ("frontier",)),
    "latency": Picture(figures.latency, ("frontier",)),
    "token_rules": Picture(figures.token_rules, ("token_against_deferral",)),
}

_GAMMAS = (3, 5, 7)
_CLAIM = (
    "Narasimhan24 runs a cascade speculatively. It claims that this buys more quality for its "
    "latency than either a cascade or lossless speculation, that its token rule (V3) does so best "
    "with OPT second, and that the rules draw together as the temperature falls."
)


def _compute(measured: Measured) -> dict[str, Sequence[Row]]:
    found: Tables = {name: [] for name in (*_CAPTIONS, "deferral", "frontier")}
    found |= {
        "laws": rules.laws(),
        "lossy_example": rules.example(),
        "lossy_star": rules.lossy_star(),
        "token_v3": rules.token_v3(),
        "executions": tables.executions(measured),
    }
    for temperature, positions in sorted(measured.positions.items()):
        comparison = Comparison.of(positions, tables.LOSS, "unscaled")
        workload = measured.nearest(temperature)
        longest = measured.profile.gamma_max
        gammas = [gamma for gamma in _GAMMAS if gamma <= longest] or [longest]
        prices = {gamma: BlockPrices.of_workload(workload, gamma) for gamma in gammas}
        parts = {
            "equal_quality": tables.equal_quality(positions, prices),
            "regret": tables.regret(comparison),
            "token_against_deferral": tables.token_against_deferral(comparison),
            "bounds": tables.bounds(positions),
            "deferral": tables.deferral(comparison, workload, temperature),
            "frontier": tables.frontier(comparison, prices, workload),
        }
        for name, rows in parts.items():
            found[name] += [{"temperature": temperature, **row} for row in rows]
    # The paper's block size first: a page shows the beginning of a long table.
    found["equal_quality"].sort(key=lambda row: (row["gamma"] != tables.GAMMA, row["gamma"]))
    return dict(found)


def _opening(found: Tables) -> Sequence[str]:
    return _CLAIM, _found(found) if found["equal_quality"] else NOT_SCORED, _differs(found)


def _found(found: Tables) -> str:
    """Who reaches the target's quality with the fewest rejections, and how V3 stands."""
    least, lossless, ranks = [], [], []
    for temperature, rows in by_temperature(found["equal_quality"]):
        # Rejections are the same at every gamma; lossless speculation always keeps the quality.
        reached = {row["rule"]: row["rejection"] for row in rows if row["rejection"] is not None}
        ranked = sorted(set(reached) - {OPTIMUM}, key=lambda rule: (reached[rule], rule))
        least.append(f"{reached[ranked[0]]:.2f} ({ranked[0]}) at temperature {temperature:g}")
        lossless.append(f"{reached['Lossless']:.2f}")
        if "TokenV3" in ranked:
            ranks.append(f"{ranked.index('TokenV3') + 1} of {len(ranked)}")
    pairs = where(found["token_against_deferral"], rule="TokenV3")
    compared = [row["rejection_ratio"] for row in pairs if row["rejection_ratio"] is not None]
    return (
        "The fewest rejections that keep the target's quality on held-out text are "
        f"{listed(least)}; lossless speculation has {listed(lossless)}. In that order V3 is number "
        f"{listed(ranks)} of the rules that get there. At equal quality it rejects less than Diff "
        f"or OPT in {sum(ratio < 1 for ratio in compared)} of {len(compared)} pairs, and "
        f"{sum(row['its_rejection'] is None for row in pairs)} more are out of their reach."
    )


def _differs(found: Tables) -> str:
    wrong = [row for row in found["laws"] if not row["emits_pi"]]
    names = listed(list(dict.fromkeys(row["rule"] for row in wrong)))
    zero = found["token_v3"][0]["rejection_of_the_target_itself"]
    return (
        f"V3 at threshold 0 rejects {zero:.0%} of a draft that is the target itself. Of "
        f"{len(found['laws'])} settings of Table 1 {len(wrong)} emit something else than they say "
        f"({names}, whose pi sums to up to {max(row['sum_pi_largest'] for row in wrong):.2f}). "
        "Table 2 needs models that are not public."
    )


STUDY = Study(
    "Narasimhan24: speculative cascades, quality against deferral",
    _CAPTIONS,
    _PICTURES,
    _compute,
    _opening,
    paper.checks,
)
