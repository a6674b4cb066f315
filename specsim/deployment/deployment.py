"""A target and its drafters on cards, as an engine runs them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from specsim.checks import InvalidArgumentError, number
from specsim.deployment.drafters import Drafter, Ngram
from specsim.deployment.heads import draft_shapes, named_shape
from specsim.hardware import Accelerator, Interconnect, accelerator, interconnect
from specsim.hardware.parallel import ONE_CARD, Parallelism
from specsim.hardware.quantisation import precision_for
from specsim.hardware.roofline import PEAK, Efficiency
from specsim.hardware.shapes import Shape

# vLLM's --gpu-memory-utilization.
_UTILISATION = 0.9
# Beside weights and cache: what a run computes, and CUDA graphs.  vLLM logs 1 to 2 GB for both
# with 8 billion parameters and 8,192 tokens a step; --reserve-gb says otherwise.
_RESERVE = 2 * 2.0**30


@dataclass(frozen=True)
class HostTime:
    """What the host does in a step while the cards wait.

    step_s : seconds of every step: scheduling, sampling, detokenising
    round_s : seconds that a round with drafts adds to it
    """

    step_s: float = 0.0
    round_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("step_s", "round_s"):
            number(f"host time {name}", getattr(self, name), low=0.0)


@dataclass(frozen=True)
class Deployment:
    """What runs where, with nothing measured, or with what was measured of the engine.

    target : name of a shipped shape, a config.json, a folder with one, a name on the Hugging Face
        Hub that is in the local cache, or a Shape
    accelerator : name, a JSON file, or an Accelerator
    drafters : what drafts; several are compared
    parallel : over how many cards the target is spread
    interconnect : between the cards: name, a JSON file, or an Interconnect; None: the accelerator's
    dtype, kv_dtype : number types of the target's weights, and of all caches; None: as its
        config.json says
    efficiency, host : how close the engine gets to the peaks, and what its host needs; the defaults
        are bounds that no engine is faster than
    fit : where they are from, in words; empty where they were given as numbers
    fitted_on : name of the accelerator that the fit was made on; empty: no fit
    fit_error : half of the interval of a speedup at these costs, as a share of it (95 %), on that
        accelerator; None: unknown
    fit_doubts : what to know of the fit, wherever it is used, one line each
    error : ``fit_error`` on that accelerator; None on others, where nobody knows it
    doubts : ``fit_doubts``, on other accelerators that it was made on that one, and at the peaks of
        the data sheet that no engine is as fast
    utilisation : share of the memory that the engine takes
    reserve : bytes on every card for what runs compute, and for CUDA graphs
    routing_exponent : r in [0, 1]: n tokens of one request that are verified choose as many experts
        as n^r independent ones; 1: each chooses for itself, as those of a prompt always do
    imbalance : with experts dealt out to cards, what the busiest card has to do over what uniform
        routing gives it by chance
    """

    target: str | Path | Shape
    accelerator: str | Path | Accelerator
    drafters: tuple[Drafter, ...] = ()
    parallel: Parallelism = ONE_CARD
    interconnect: str | Path | Interconnect | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    efficiency: Efficiency = PEAK
    host: HostTime = field(default_factory=HostTime)
    fit: str = ""
    fitted_on: str = ""
    fit_error: float | None = None
    fit_doubts: tuple[str, ...] = ()
    utilisation: float = _UTILISATION
    reserve: float = _RESERVE
    routing_exponent: float = 1.0
    imbalance: float = 1.0
    error: float | None = field(init=False)
    doubts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._judge_fit()
        if number("utilisation", self.utilisation, low=0.0, high=1.0) == 0:
            raise InvalidArgumentError("utilisation must be > 0, got 0")
        number("reserve", self.reserve, low=0.0)
        number("routing_exponent", self.routing_exponent, low=0.0, high=1.0)
        number("imbalance", self.imbalance, low=1.0)
        object.__setattr__(self, "drafters", tuple(self.drafters))
        self.parallel.check(self.shape, self.name)
        if self.imbalance > 1 and self.parallel.expert == 1:
            raise InvalidArgumentError(
                f"imbalance must be 1 where experts are not dealt out to cards (expert parallel "
                f"degree 1), got {self.imbalance:g}"
            )
        for drafter in self.drafters:
            self._check_drafter(drafter)

    def _check_drafter(self, drafter: Drafter) -> None:
        """Refuse a head for another target, and degrees that do not divide what they share."""
        shapes = draft_shapes(drafter, self.shape, 1)
        if shapes is None:
            return
        parallel = draft_parallelism(self, drafter)
        if self.parallel.tensor % parallel.tensor:
            raise InvalidArgumentError(
                f"tensor of drafter {drafter.label} must divide the target's tensor parallel "
                f"degree, which is {self.parallel.tensor}, got {parallel.tensor}"
            )
        try:
            parallel.check(shapes.first, f"drafter {drafter.label}")
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{error}; tensor= gives it a degree of its own") from None

    @cached_property
    def shape(self) -> Shape:
        """Of the target, in the number types it is deployed in."""
        found = (
            self.target
            if isinstance(self.target, Shape)
            else named_shape("target", str(self.target))
        )
        return found.at(precision_for(found, self.dtype, self.kv_dtype))

    @property
    def name(self) -> str:
        """Of the target."""
        return self.target.label if isinstance(self.target, Shape) else str(self.target)

    @cached_property
    def card(self) -> Accelerator:
        """What each card is."""
        place = self.accelerator
        return place if isinstance(place, Accelerator) else accelerator(str(place))

    @cached_property
    def link(self) -> Interconnect | None:
        """What joins the cards; None where nothing is known to."""
        named = self.interconnect
        if named is None:
            return self.card.interconnect
        return named if isinstance(named, Interconnect) else interconnect(str(named))

    def _judge_fit(self) -> None:
        """What is known of the fit on these cards, so that it is not carried to others."""
        error, doubts = self.fit_error, self.fit_doubts
        if self.fitted_on and self.fitted_on != self.card.name:
            error = None
            doubts += (
                f"fit {self.fit} was made on {self.fitted_on}; that {self.card.name} comes as "
                "close to its data sheet is an assumption, and its error is not known",
            )
        if self.at_peaks:
            doubts += (
                "runs are priced at the peaks of the data sheet: speedups, and batches up to which "
                "drafts pay, come out too high, and plans too small: give a fit (--fit)",
            )
        object.__setattr__(self, "error", error)
        object.__setattr__(self, "doubts", doubts)

    @property
    def is_bound(self) -> bool:
        """Whether nothing says how far the engine stays behind the peaks of the data sheet."""
        reached = self.efficiency
        if not reached.eager_layer_s:
            reached = replace(reached, graph_tokens=None)  # which then has no price
        return reached == PEAK and self.host == HostTime()

    @property
    def at_peaks(self) -> bool:
        """Whether runs are as fast as the data sheet allows, whatever the host takes."""
        return not self.fit and (self.efficiency.compute, self.efficiency.memory) == (1.0, 1.0)

    @property
    def words(self) -> str:
        """What prices rest on, for the title of a table."""
        if self.is_bound:
            return "a bound: peak rates, no launch or host time"
        if self.fit:
            return f"fit {self.fit}"
        if self.at_peaks:
            return "peak rates, launch and host time as given"
        return "efficiency and host time as given"


def draft_parallelism(deployment: Deployment, drafter: Drafter) -> Parallelism:
    """How the drafter is spread: over its own degree, or as the target; on the last of the stages
    of a pipeline.
    """
    if isinstance(drafter, Ngram):
        return ONE_CARD
    parallel = deployment.parallel
    tensor = getattr(drafter, "tensor", None) or parallel.tensor
    experts = drafter.method == "mtp" and parallel.expert > 1
    return Parallelism(tensor, data=parallel.data, expert=parallel.expert if experts else 1)
