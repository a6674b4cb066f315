"""How engines draft, what they are asked for, and what they then read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError, did_you_mean
from specsim.engines.schedule import Schedule, gamma_at, off_at, ranges_in_words

if TYPE_CHECKING:
    from specsim.hardware.parallel import Parallelism

# Where drafts come from, by the names of ``specsim.deployment.drafters``, of whose ``parallel``
# engines tell three kinds apart:
#   draft_model  a smaller language model of its own
#   eagle        EAGLE heads, trained for the target
#   eagle3       EAGLE-3 heads, trained for the target
#   mtp          the target's own layers for multi-token prediction
#   medusa       a head for each draft position
#   p_eagle      EAGLE-3 heads that draft in one parallel run (P-EAGLE, arXiv 2602.01469)
#   pard         a draft model that drafts in one parallel run (PARD, arXiv 2504.18583)
#   dflash       a block of drafts in one parallel run (DFlash, arXiv 2602.06036)
#   ngram        what followed the last few tokens when they occurred before (prompt lookup)
#   suffix       what followed the longest suffix that occurred before
Method = Literal[
    "draft_model",
    "eagle",
    "eagle3",
    "mtp",
    "medusa",
    "p_eagle",
    "pard",
    "dflash",
    "ngram",
    "suffix",
]
METHODS: tuple[Method, ...] = get_args(Method)


def method_named(name: str) -> Method:
    """The method of that name, in any case and with either dash."""
    key = name.casefold().replace("-", "_")
    for method in METHODS:
        if method == key:
            return method
    raise InvalidArgumentError(
        f"method must be one of {', '.join(METHODS)}, got {name!r}{did_you_mean(key, METHODS)}"
    )


@dataclass(frozen=True)
class Drafting:
    """One method as one engine has it.

    word : the engine's own name for it
    model : whether its configuration names a draft
    acceptance_law : how it accepts drafts unless told otherwise
    ratio_test : what tells it to sample drafts and accept them with the ratio test; empty where
        nothing does, or where it is the default
    by_batch : it takes a draft length for each batch; else one for all
    tree : how it drafts and verifies a tree; None where it takes chains only
    in_step : at draft length 0 the drafter runs once a step, to keep its cache in step
    settings : what the engine must be told besides
    """

    word: str
    model: Literal["needed", "optional", "none"] = "needed"
    acceptance_law: AcceptanceLaw = "greedy-drafts"
    ratio_test: str = ""
    by_batch: bool = False
    tree: Drafting | None = None
    in_step: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tree:
    """Drafts that are not a chain.

    topk : tokens that each run drafts a node from
    slots : nodes that are verified, the token before the drafts included
    """

    topk: int
    slots: int


@dataclass(frozen=True)
class Deployed:
    """What was priced, beside what the engine is told of its drafts.

    parallel : over how many cards the target is spread
    card : the name of one
    graph_tokens : of the largest CUDA graph; None: every run has one
    in_step : where batches draft nothing and the drafter still runs, the batch that it costs most,
        and seconds of that over those of a plain step; None: nothing
    """

    parallel: Parallelism
    card: str
    graph_tokens: int | None = None
    in_step: tuple[int, float] | None = None


@dataclass(frozen=True)
class Order:
    """What an engine is to be told.

    schedule : the draft length of every batch, with at least one above 0
    drafting : the method, in the engine's words
    draft : the draft's name or path; empty where none is named
    batch : where the engine takes one length, the batch whose length that is
    best : the best length at that batch, of which ranges of a schedule may lie off; None: that of
        the schedule
    lookup_max, lookup_min : longest and shortest run of tokens that ngram looks up; None: the
        engine's own
    tree : of drafts; None: a chain
    modules : that the target has for multi-token prediction
    deployed : what was priced; None where costs were measured
    """

    schedule: Schedule
    drafting: Drafting
    draft: str = ""
    batch: int = 1
    best: int | None = None
    lookup_max: int | None = None
    lookup_min: int | None = None
    tree: Tree | None = None
    modules: int = 1
    deployed: Deployed | None = None

    @property
    def one_length(self) -> int:
        """The draft length of an engine that takes one."""
        planned = gamma_at(self.schedule, self.batch)
        return planned if self.best is None else self.best

    @property
    def groups(self) -> int:
        """Of cards, each with requests and limits of its own, which it shares with no other."""
        if self.deployed is None or attention_alone(self.deployed.parallel):
            return 1
        return self.deployed.parallel.data


def attention_alone(parallel: Parallelism) -> bool:
    """Whether attention alone is data parallel: groups of requests share their experts, and the
    engine shares its limits out to them.
    """
    return parallel.expert > parallel.tensor


@dataclass(frozen=True)
class Configuration:
    """What an engine reads, and what it does not express, one sentence a note."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """One engine.

    title : as its makers write it
    read_at : the version whose declarations ``write`` follows
    methods : those it has
    write : its configuration
    lookups : which bounds of ngram's lookup it takes
    degrees : how its own command line says over how many cards the target is spread; "" where it
        takes no such degrees
    by_batch : whether a target over so many cards leaves it a draft length for each batch, where
        its method takes one
    one_request : whether it drafts for a single request only
    most_requests : its option for how many requests are served at a time; None: it has none
    """

    title: str
    read_at: str
    methods: Mapping[Method, Drafting]
    write: Callable[[Order], Configuration]
    lookups: tuple[Literal["lookup_max", "lookup_min"], ...] = ()
    degrees: Callable[[Parallelism], str] = lambda parallel: ""
    by_batch: Callable[[Parallelism], bool] = lambda parallel: True
    one_request: bool = False
    most_requests: str | None = None

    def drafting(self, method: str) -> Drafting:
        """How it does ``method``; raises UnsupportedError where it does not."""
        known = method_named(method)
        if known not in self.methods:
            raise UnsupportedError(
                f"{self.title} has no method {known} ({self.read_at} has {', '.join(self.methods)})"
            )
        return self.methods[known]


def in_step_notes(title: str, order: Order) -> list[str]:
    """That the drafter runs where nothing is drafted, and what that costs."""
    if not (off_at(order.schedule) and order.drafting.in_step):
        return []
    known = order.deployed.in_step if order.deployed else None
    says = (
        f"at draft length 0 {title} still runs the drafter once a step, to keep its cache in step"
    )
    if known is None:
        return [f"{says}: that costs more than planned, which is as much as without a drafter"]
    batch, share = known
    off = ranges_in_words([span for span in order.schedule if not span[2]])
    return [
        f"{says}: {share:.1%} of a plain step at batch {batch}, as planned; a second server "
        f"without speculation would spare that at batch {off}"
    ]
