"""``specsim.defer``: where to defer to the target, from labelled positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError, number, refuse
from specsim.cost import Prices
from specsim.frontier import (
    OPTIMUM,
    BlockPrices,
    Choice,
    Comparison,
    LabelledPositions,
    PlugInRegret,
    plug_in_regret,
    read_positions,
)
from specsim.frontier.latency import DRAFT
from specsim.frontier.positions import Loss
from specsim.intervals import Interval
from specsim.rules import DecideOn

# Budgets of the table without a wish, as shares of the target's own rejection.
_SHARES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class RuleComparison(Result):
    """The optimum, then every rule.

    comparison : all rules at all their settings, for figures and further questions
    wish : what was asked of them, in words
    choices : the rows, with intervals (95 %, bootstrap over requests)
    plug_in_regret : how the plug-in rule stands to its bound, where a lemma is about this loss
    """

    schema: ClassVar[str] = "specsim.defer"

    comparison: Comparison
    wish: str
    choices: tuple[Row, ...]
    plug_in_regret: PlugInRegret | None

    def rows(self) -> list[Row]:
        """Intervals as three columns: name, name_low, name_high."""
        return [_flat(row) for row in self.choices]

    def table(self) -> list[Row]:
        """Intervals in one cell."""
        return list(self.choices)

    @property
    def draft_quality(self) -> float:
        """Of the draft alone, which rejects nothing."""
        return float(self.comparison.quality(self.comparison.draft_loss))

    @property
    def target_quality(self) -> float:
        """Of the target."""
        return float(self.comparison.quality(self.comparison.target_loss))

    @property
    def target_rejection(self) -> float:
        """Mean probability that a draft token is rejected where the text is the target's."""
        return float(self.comparison.positions.tv.mean())

    def summary(self) -> Row:
        return {
            "wish": self.wish,
            "draft_quality": self.draft_quality,
            "target_quality": self.target_quality,
            "target_rejection": self.target_rejection,
            "plug_in_regret": None if self.plug_in_regret is None else asdict(self.plug_in_regret),
        }

    def sentences(self) -> list[str]:
        lines = [
            f"Quality of the draft alone {self.draft_quality:.4g}, of the target "
            f"{self.target_quality:.4g} at rejection {self.target_rejection:.4g}."
        ]
        regret = self.plug_in_regret
        if regret is not None:
            line = (
                f"{regret.rule}, deciding on tempered probabilities, loses at most "
                f"{regret.regret:.4g} of risk to Lemma 6, at a cost of {regret.cost:.4g} per "
                f"rejection; its confidence is off by {regret.miscalibration:.4g}"
            )
            if regret.bound is not None:
                lemma = "7" if regret.rule == "Opt" else "8"
                line += f", and Lemma {lemma} allows {regret.bound:.4g}"
            lines.append(line + ".")
        return lines


def defer(
    positions: Path,
    loss: Loss = "0-1",
    quality: float | Literal["target"] | None = None,
    speedup: float | None = None,
    decide_on: DecideOn = "unscaled",
    *,
    c: float | None = None,
    verify_slope: float | None = None,
    verify_cost: Sequence[float] | None = None,
    overhead: float | None = None,
    profile: Path | None = None,
    temperature: float | None = None,
    gamma: int | None = None,
) -> RuleComparison:
    """Which rule buys the most quality for its rejections, and how far it is from the optimum.

    The optimum knows the label: no deferral rule can beat it.  With ``quality`` the setting of
    least rejection of every rule; with ``speedup`` the one of best quality; with neither the
    regret, and the quality at a quarter, half and three quarters of the target's own rejection.

    positions : a file by ``specsim.score``
    quality : at least that; a share of right tokens (with the log loss a mean log-probability,
        nats), or "target", the target's own
    decide_on : what deferral rules look at: probabilities at temperature 1, or as sampled from
    c, verify_slope, verify_cost, overhead : what a block costs, in target runs; or ``profile``,
        where it was measured, at one of its temperatures
    gamma : draft tokens per target call; None is the best
    """
    if quality is not None and speedup is not None:
        raise InvalidArgumentError("quality and speedup exclude each other")
    table = read_positions(Path(positions))
    prices = Prices(c, None, None, verify_slope, verify_cost, overhead)
    blocks: BlockPrices | None
    if profile is not None:
        refuse(prices.said(), "and profile exclude each other")
        blocks = _measured_prices(Path(profile), temperature, gamma, table)
    else:
        blocks = _prices(prices, temperature, gamma)
    comparison = Comparison.of(table, loss, decide_on, blocks)
    wanted = quality
    if quality == "target":
        wanted = float(comparison.quality(comparison.target_loss))
    if wanted is not None:
        wish = f"least rejection with quality >= {wanted:.4g}"
        choices = _least_rejection(comparison, float(wanted))
    elif speedup is not None:
        wish = f"best quality with speedup >= {speedup:.4g}"
        choices = _best_quality(comparison, speedup)
    else:
        wish = "regret, and quality within a share of the target's rejection"
        choices = _regrets(comparison)
    return RuleComparison(
        comparison=comparison,
        wish=wish,
        choices=tuple(choices),
        plug_in_regret=_plug_in_regret(comparison),
        inputs={
            "positions": str(positions),
            "about": table.about,
            "loss": loss,
            "quality": quality,
            "speedup": speedup,
            "decide_on": decide_on,
            **prices.said(),
            "profile": None if profile is None else str(profile),
            "temperature": temperature,
            "gamma": gamma,
        },
    )


def _prices(prices: Prices, temperature: float | None, gamma: int | None) -> BlockPrices | None:
    """What blocks cost from numbers; None where c is not given."""
    refuse({"temperature": temperature}, "needs a profile")
    if prices.c is None:
        refuse({"gamma": gamma, **prices.said()}, "needs c or a profile")
        return None
    return BlockPrices.of_cost(prices.cost({DRAFT: number("c", prices.c)}), gamma)


def _measured_prices(
    profile: Path, temperature: float | None, gamma: int | None, table: LabelledPositions
) -> BlockPrices:
    """What blocks cost where they were measured, at the temperature of the text if none is said."""
    from specsim.optimizers.workload import Workload
    from specsim.profiles import read_profile

    if temperature is None:
        temperature = table.about.get("temperature")
    content = read_profile(profile)
    content.require_draft_model("defer")
    found = Workload.all_of(content, profile, temperature)
    if len(found) > 1:
        raise InvalidArgumentError("temperature must say which setting of the profile is meant")
    return BlockPrices.of_workload(found[0], gamma)


def _least_rejection(comparison: Comparison, quality: float) -> list[Row]:
    """The optimum's row, then the rules' by rising rejection."""
    choices = comparison.least_rejection(quality)
    if not any(choices.values()):
        losses = [rule.curve().loss.min() for rule in comparison.rules.values()]
        raise SpecsimError(
            f"no rule reaches a quality of {quality:g}; "
            f"the best reaches {float(comparison.quality(min(losses))):.4g}"
        )
    found = sorted(
        (choice for choice in choices.values() if choice), key=lambda choice: choice.rejection.best
    )
    best: Row = {"rule": OPTIMUM, "setting": None, "quality": quality, "rejection": None}
    optimum = comparison.optimum(quality=quality)
    if optimum is not None:
        best |= {"rejection": optimum.rejection, **_speed(optimum)}
    return _chosen(best, found, choices)


def _best_quality(comparison: Comparison, speedup: float) -> list[Row]:
    """The optimum's row, then the rules' by falling quality."""
    choices = comparison.best_quality(speedup)
    rejection = comparison.prices.allowed_rejection(speedup) if comparison.prices else None
    if rejection is None:
        raise SpecsimError(
            f"no rule is {speedup:g} times as fast as plain decoding at this cost, not even "
            "without any rejection"
        )
    found = sorted(
        (choice for choice in choices.values() if choice), key=lambda choice: -choice.quality.best
    )
    optimum = comparison.optimum(rejection=rejection)
    assert optimum is not None, "every rejection has a best quality"
    best: Row = {
        "rule": OPTIMUM,
        "setting": None,
        "quality": optimum.quality,
        "rejection": rejection,
        **_speed(optimum),
    }
    return _chosen(best, found, choices)


def _chosen(best: Row, found: Sequence[Choice], choices: Mapping[str, Choice | None]) -> list[Row]:
    """Rows of the optimum, of the rules that grant the wish, and of those that do not."""
    names = ("rule", "setting", "quality", "rejection")
    rows = [{name: getattr(each, name) for name in names} | _speed(each) for each in found]
    return [best, *rows, *({"rule": name} for name, each in choices.items() if each is None)]


def _speed(choice: Choice) -> Row:
    """What a row says of it, where a price is known."""
    return {} if choice.speedup is None else {"speedup": choice.speedup, "gamma": choice.gamma}


def _regrets(comparison: Comparison) -> list[Row]:
    """Every rule by rising regret, the optimum first."""
    rows = []
    for rule, figures in comparison.summary(_SHARES).items():
        row: Row = {"rule": rule, "regret": figures.regret}
        for share, quality in zip(_SHARES, figures.within, strict=True):
            row[f"quality_within_{share:.0%}"] = quality
        rows.append(row)
    return rows[:1] + sorted(rows[1:], key=lambda row: float(row["regret"].best))


def _plug_in_regret(comparison: Comparison) -> PlugInRegret | None:
    try:
        return plug_in_regret(comparison.positions, comparison.loss)
    except UnsupportedError:  # not the loss of a lemma, or columns that the file lacks
        return None


def _flat(row: Row) -> Row:
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, Interval):
            flat |= value.columns(name)
        else:
            flat[name] = value
    return flat
