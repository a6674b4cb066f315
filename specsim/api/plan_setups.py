"""Every set-up that a plan compares: cards, degrees, drafters and draft lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import LeftOut
from specsim.api.serving_setup import FoundSetUp, SetUpWords, set_up
from specsim.batching.deployed import alpha_of_others, rates_apart
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload
from specsim.checks import SpecsimError, UnsupportedError
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import Drafter
from specsim.engines.schedule import Schedule
from specsim.serving.analytic.of_setup import replica_of
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.replica import Replica
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.planning.sizing import best_schedule
from specsim.serving.requests import Requests
from specsim.serving.service import SetUp
from specsim.serving.simulation import check_fit
from specsim.serving.step_model import StepModel


@dataclass(frozen=True, eq=False)
class PlannedSetUp:
    """One way to serve.

    deployment : the cards of one replica with one drafter, or none; None: of a profile, or as given
    source : costs and acceptance of its drafts
    setup : one replica
    replica : the same, analytically
    """

    deployment: Deployment | None
    source: Source
    setup: SetUp
    replica: Replica
    basis: str
    warnings: tuple[str, ...] = ()
    rates: str = ""

    @property
    def drafts(self) -> DraftPolicy:
        return self.setup.drafts

    @property
    def speculates(self) -> bool:
        """Whether it ever drafts."""
        return self.drafts.gamma_max > 0

    @property
    def cards(self) -> int:
        """Of one replica."""
        return 1 if self.deployment is None else self.deployment.parallel.cards

    @property
    def accelerator(self) -> str:
        """The name of its cards; empty where nobody knows."""
        return "" if self.deployment is None else self.deployment.card.name

    @property
    def drafter(self) -> str:
        """What drafts; empty where nothing does, or where there is one only."""
        if not self.speculates or self.deployment is None or not self.deployment.drafters:
            return ""
        return self.deployment.drafters[0].label

    @property
    def drafter_named(self) -> str:
        """The same, with its acceptance where several have that name."""
        return f"{self.drafter}{self.rates}" if self.drafter else ""

    @property
    def place(self) -> tuple[str, int]:
        """Cards of one kind and number."""
        return self.accelerator, self.cards

    @property
    def name(self) -> str:
        """``2 H100-SXM, eagle3, gamma 3``, of one replica."""
        words = [f"{self.cards} {self.accelerator}"] if self.accelerator else []
        if self.drafter_named:
            words.append(self.drafter_named)
        words.append(f"gamma {self.drafts.words}" if self.speculates else "no drafts")
        return ", ".join(words)

    def workload(self) -> BatchWorkload:
        """What its rounds gain and cost by load."""
        return self.source.workloads(self.drafts.gamma_max)[0]


def planned_setups(
    deployments: Sequence[Deployment],
    source: Source,
    gammas: Sequence[int],
    degrees: Sequence[int] | None,
    engine: ServingEngine | str,
    requests: Requests,
    offered: Offered,
    margin: float,
    step_model: StepModel | str | Mapping[str, float] | None = None,
    named: bool = True,
    progress: Progress = quiet,
) -> tuple[list[PlannedSetUp], list[LeftOut]]:
    """All that can be had, and what cannot, with the reason.

    deployments : one for each kind of cards, all with the same drafters; none: as ``source`` says
    degrees : tensor parallel degrees that are tried; None: the deployments' own
    gammas : fixed draft lengths; beside them stands the best schedule by batch of each drafter
    named : whether somebody asked for these lengths, who wants to know which a drafter cannot make
    """
    found: list[PlannedSetUp] = []
    left_out: list[LeftOut] = []
    groups = list(_words(deployments, source, degrees, engine, step_model, left_out))
    advance = steps(progress, "set-ups", len(groups))
    for what, each, words in groups:
        try:
            rates = _rates_of(each, deployments)
            several, unfit = _of_drafter(each, words, gammas, requests, offered, margin, rates)
        except SpecsimError as error:
            left_out.append(LeftOut(what, str(error)))
        else:
            found += several
            longest = _longest(each, words) if named and words.gamma else None
            if longest is not None:
                beyond = [gamma for gamma in gammas if gamma > longest]
                unfit |= dict.fromkeys(beyond, f"drafts are known up to {longest}")
            left_out += [LeftOut(f"{what}, gamma {gamma}", why) for gamma, why in unfit.items()]
        advance()
    for card in dict.fromkeys(each.card.name for each in deployments):
        if all(each.accelerator != card for each in found):
            left_out = _as_one(left_out, card)
    return found, left_out


def _as_one(left_out: Sequence[LeftOut], card: str) -> list[LeftOut]:
    """Cards of which nothing can be had, with every reason once."""
    own = [each for each in left_out if each.what.startswith(f"{card}, ")]
    reasons = dict.fromkeys(each.why for each in own)
    others = [each for each in left_out if each not in own]
    return [*others, LeftOut(card, "; ".join(reasons))]


def _words(
    deployments: Sequence[Deployment],
    source: Source,
    degrees: Sequence[int] | None,
    engine: ServingEngine | str,
    step_model: StepModel | str | Mapping[str, float] | None,
    left_out: list[LeftOut],
) -> Iterator[tuple[str, Deployment | None, SetUpWords]]:
    """What every group of set-ups shares, in words; plain decoding first."""
    if not deployments:
        for gamma in (None, 1):
            words = SetUpWords(gamma, source, step_model, engine=engine)
            yield "plain decoding" if gamma is None else "drafts", None, words
        return
    for deployment in deployments:
        for degree in degrees or [deployment.parallel.tensor]:
            cards = f"{deployment.card.name}, tensor parallel {degree}"
            several: list[Drafter | None] = [None, *deployment.drafters]
            for drafter in several:
                what = f"{cards}, no drafts"
                if drafter:
                    what = f"{cards}, {drafter.label}{rates_apart(deployment, drafter)}"
                try:
                    one = replace(
                        deployment,
                        parallel=replace(deployment.parallel, tensor=degree),
                        drafters=(drafter,) if drafter else (),
                    )
                except SpecsimError as error:
                    left_out.append(LeftOut(what, str(error)))
                    if drafter is None:
                        break  # the degree divides nothing, which every drafter would say again
                    continue
                alpha = None if drafter is None else alpha_of_others(drafter, source.alpha)
                own = replace(source, alpha=alpha, deployment=one)
                yield what, one, SetUpWords(1 if drafter else None, own, None, None, engine)


def _rates_of(one: Deployment | None, deployments: Sequence[Deployment]) -> str:
    """What tells the drafter of a deployment of one from the others that were asked for."""
    if one is None or not one.drafters:
        return ""
    return rates_apart(deployments[0], one.drafters[0])


def _longest(deployment: Deployment | None, words: SetUpWords) -> int | None:
    """The longest draft that its drafter makes, or that was measured; None: any."""
    if deployment is not None:
        return deployment.drafters[0].longest
    if words.step_model is not None:
        return None
    return words.source.workloads()[0].gamma_max


def _of_drafter(
    deployment: Deployment | None,
    words: SetUpWords,
    gammas: Sequence[int],
    requests: Requests,
    offered: Offered,
    margin: float,
    rates: str,
) -> tuple[list[PlannedSetUp], dict[int, str]]:
    """One drafter with every draft length, and by batch where the engine takes that, or plain
    decoding; and why which lengths cannot be.
    """

    def planned(found: FoundSetUp, setup: SetUp) -> PlannedSetUp:
        check_fit(requests, setup.engine, setup.drafts)
        replica = replica_of(
            offered, setup.engine, setup.step_model, setup.drafts, setup.acceptance
        )
        warnings = (*found.warnings, *found.doubts(setup.drafts))
        return PlannedSetUp(
            *(deployment, words.source, setup, replica, found.basis, warnings, rates)
        )

    if words.gamma is None:
        found = set_up(words, requests)
        return [planned(found, found.setup)], {}
    longest = _longest(deployment, words)
    asked = [gamma for gamma in gammas if gamma]
    lengths = [gamma for gamma in asked if longest is None or gamma <= longest]
    if asked and not lengths:
        raise UnsupportedError(
            f"gamma must be <= {longest}, the longest that it drafts, got "
            f"{', '.join(map(str, asked))}"
        )
    if not lengths:
        return [], {}
    several: dict[int, PlannedSetUp] = {}
    unfit: dict[int, SpecsimError] = {}
    fits: FoundSetUp | None = None
    for gamma in sorted(lengths, reverse=True):
        try:
            # The engine is that of the longest draft that fits.
            found = fits or set_up(replace(words, gamma=gamma), requests)
            several[gamma] = planned(found, found.of_length(gamma))
        except SpecsimError as error:
            unfit[gamma] = error
        else:
            fits = found
    if fits is None:
        raise unfit[lengths[0]]
    of_longest = fits

    def drafting(schedule: Schedule) -> PlannedSetUp:
        return planned(of_longest, of_longest.of_schedule(schedule))

    result = [several[gamma] for gamma in lengths if gamma in several]
    why = {gamma: str(error) for gamma, error in unfit.items()}
    if not of_longest.by_batch:
        return result, why
    idle = drafting([(1, 1, 0)])
    schedule = best_schedule(
        {0: idle.replica, **{gamma: each.replica for gamma, each in several.items()}}, margin
    )
    if len(schedule) > 1:
        result.append(drafting(schedule))
    return result, why
