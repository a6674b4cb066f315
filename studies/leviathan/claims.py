"""What Leviathan23 says, held against our models one case at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from studies.common.claims import Case, beyond
from studies.common.study import Row


def claims(
    pairs: Sequence[Row], cheap: Sequence[Row], lenience: Sequence[Row], oracle: Sequence[Row]
) -> Iterator[Case]:
    """Every claim in every case that was measured."""
    own = [each for each in pairs if "replay" in each]
    for each in own:
        if each["measured"] is not None:
            yield (
                "Leviathan23 A.3",
                "alpha and c predict the speedup (to the measured 95 % interval)",
                each["low"] <= each["formula"] <= each["high"],
                f"{_where(each)}: {each['formula']:.2f} by the formula, {each['replay']:.2f} by "
                f"replay, {each['measured']:.2f} measured",
            )
    first = sorted(
        (each for each in own if each["gamma"] == 1), key=lambda each: each["temperature"]
    )
    for each in first:
        if each["alpha"] > each["c"]:
            yield (
                "Leviathan23 Corollary 9",
                "if alpha > c, gamma = 1 gains (1 + alpha)/(1 + c)",
                each["replay"] >= each["formula"],
                f"{_where(each)}: {each['formula']:.2f} promised, {each['replay']:.2f} by replay "
                f"with v(2) = {each['v']:.2f}",
            )
    for cold, warm in pairwise(first):
        yield (
            "Leviathan23 section 4.2",
            "the sharper the distribution, the higher alpha",
            cold["alpha"] > warm["alpha"],
            f"{cold['alpha']:.2f} at temperature {cold['temperature']:g}, "
            f"{warm['alpha']:.2f} at {warm['temperature']:g}",
        )
    for each in cheap:
        if each.get("measured") is not None:
            yield (
                "Leviathan23 section 3.6",
                "drafters of negligible cost make decoding faster",
                beyond(each["low"], each["high"], 1.0),
                f"{_where(each)}: {each['speedup_at_c_0']:.2f} at c = 0, "
                f"{each['measured']:.2f} ({each['low']:.2f} to {each['high']:.2f}) measured",
            )
    for each in cheap:
        if each["draft"].startswith("random") and each["v"] is not None:
            yield (
                "Leviathan23 section 3.6",
                "a random drafter is sure to gain a little",
                each["speedup_with_v"] > 1,
                f"{_where(each)}: alpha = {each['alpha']:.5f}, v(2) = {each['v']:.2f}, so "
                f"{each['speedup_with_v']:.2f}",
            )
    decoded = [each for each in lenience if "measured_speedup" in each]
    for strict, loose in product(decoded, decoded):
        alike = strict["temperature"] == loose["temperature"]
        if alike and strict["lenience"] == 1 > loose["lenience"]:
            yield (
                "Leviathan23 A.4",
                "lenience makes decoding faster (its text is another, with an alpha of its own)",
                loose["measured_speedup"] > strict["measured_speedup"],
                f"temperature {loose['temperature']:g}, l = {loose['lenience']:g}: alpha "
                f"{strict['alpha']:.2f} to {loose['alpha']:.2f}, speedup "
                f"{strict['measured_speedup']:.2f} to {loose['measured_speedup']:.2f}",
            )
    for each in oracle:
        if each.get("source") != "computed":
            yield (
                "Leviathan23 section 3.5",
                "an oracle for gamma gains up to about 60 %",
                each["gain_percent"] < 65,
                f"{each['what']}: {each['gain_percent']:.0f} %",
            )


def _where(row: Row) -> str:
    return f"{row['draft']} {row['gamma']}, temperature {row['temperature']:g}"
