"""How engines draft, what they are asked for, and what they then read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError, did_you_mean
from specsim.engines.schedule import Schedule

# Where drafts come from:
#   draft_model  a smaller language model of its own
#   eagle3       EAGLE-3 heads, trained for the target
#   mtp          the target's own layers for multi-token prediction
#   dflash       a block of drafts in one parallel run (DFlash, arXiv 2602.06036)
#   ngram        what followed the last few tokens when they occurred before (prompt lookup)
#   suffix       what followed the longest suffix that occurred before
Method = Literal["draft_model", "eagle3", "mtp", "dflash", "ngram", "suffix"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True)
class Drafting:
    """One method as one engine has it.

    word : the engine's own name for it
    model : whether its configuration names a draft
    acceptance_law : how it accepts drafts unless told otherwise
    ratio_test : what tells it to sample drafts and accept them with the ratio test; empty where
        nothing does, or where it is the default
    by_batch : it takes a draft length for each batch; else one for all
    """

    word: str
    model: Literal["needed", "optional", "none"] = "needed"
    acceptance_law: AcceptanceLaw = "greedy-drafts"
    ratio_test: str = ""
    by_batch: bool = False


@dataclass(frozen=True)
class Order:
    """What an engine is to be told.

    schedule : the draft length of every batch, with at least one above 0
    drafting : the method, in the engine's words
    draft : the draft's name or path; empty where none is named
    batch : where the engine takes one length, the batch whose length that is
    lookup_max, lookup_min : longest and shortest run of tokens that ngram looks up; None: the
        engine's own
    """

    schedule: Schedule
    drafting: Drafting
    draft: str = ""
    batch: int = 1
    lookup_max: int | None = None
    lookup_min: int | None = None


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
    """

    title: str
    read_at: str
    methods: Mapping[Method, Drafting]
    write: Callable[[Order], Configuration]
    lookups: tuple[Literal["lookup_max", "lookup_min"], ...] = ()

    def drafting(self, method: str) -> Drafting:
        """How it does ``method``; raises UnsupportedError where it does not."""
        for known, drafting in self.methods.items():
            if known == method:
                return drafting
        if method not in METHODS:
            raise InvalidArgumentError(
                f"method must be one of {', '.join(METHODS)}, got {method!r}"
                f"{did_you_mean(method, METHODS)}"
            )
        raise UnsupportedError(
            f"{self.title} has no method {method} ({self.read_at} has {', '.join(self.methods)})"
        )
