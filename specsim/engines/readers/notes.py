"""Sentences on what a number cannot tell, which several readers need."""

from __future__ import annotations

from specsim.counts.drafts import DraftCounts

VARIED = (
    "drafts were not all of one length; the share at a position is of all rounds, also of those "
    "that drafted less, so it is no rate of acceptance there"
)
LENGTHS_APART = (
    "rounds drafted several lengths, and each is taken for itself; where the drafter chose them "
    "(suffix, adaptive lengths), acceptance at a length is that of the places it was chosen at, "
    "and too high for one that is fixed"
)
NO_POSITIONS = (
    "rounds and totals alone are known of some counts: tokens per call hold, rates by position do "
    "not follow from them"
)
SAME_LINES = (
    "some lines are the very same, their time included; if they were pasted twice, they are "
    "counted twice"
)
RATE_IS_NOT_ALPHA = (
    "accepted / drafted falls with K and is not alpha; rounds were not counted, so there are no "
    "tokens per call"
)
LIFE_MEAN = (
    "the acceptance length is a mean over the server's life, not over one run: start the server "
    "anew for each run that is compared"
)
PROMPTS_UNKNOWN = (
    "the result does not say which prompts were sent; random prompts say nothing of acceptance on "
    "real text"
)
RANDOM_PROMPTS = (
    "the prompts were random tokens, which say nothing of acceptance on real text; step times hold"
)
BATCH_IS_A_MAXIMUM = (
    "the batch of the step times is the maximum concurrency of the run, which holds where the "
    "server was kept full"
)


def short_drafts(counts: DraftCounts) -> str:
    """How many rounds at most drafted less than the draft length."""
    assert counts.gamma is not None
    assert counts.drafted is not None
    share = counts.gamma - counts.drafted / counts.rounds
    return (
        f"up to {share:.1%} of the rounds at K = {counts.gamma} drafted less; acceptance by "
        "position is low by at most that share"
    )
