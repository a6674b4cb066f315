"""Which blind checks are committed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.blind_judged import summary

BLIND = Path(__file__).parents[2] / "studies" / "measured" / "blind"
DRAFTS = ("small", "middle", "prompt-lookup")
# What the drift is of; another battery judges it.
BEFORE = ("quiet", "quiet-16", "quiet-64", "quiet-spread")
QUICK = ("quiet-plain", "quiet-runs", "quiet-blocks")
JUDGES = (*QUICK, "quiet-slow")
# Judged by one check.
NOON = ("noon", "defaults")
# Of the estimator of today, which nothing was changed after.
LAST = "afternoon"
AGAIN, ONCE_MORE, MISSED, FIFTH = "evening", "morning", "night", "forenoon"
# Of the same estimator, with three times as many passes in a calibration.
LONG = "three-times"
FOLLOWED = (AGAIN, ONCE_MORE, MISSED, FIFTH, LONG)
# Of the same speedups with what is left at a plain step in the intervals, and of other texts.
OTHER = "other-texts"
# Of calibrations whose passes were spread, of other texts again.
SPREAD = "spread"
# Of profiles that tell the draft lengths of first draft runs.
BY_LENGTH = "by-length"
# None of their speedups was changed after the first of them.
ONE_ESTIMATOR = (LAST, *FOLLOWED, OTHER, SPREAD, BY_LENGTH)


def together_said(batteries: tuple[str, ...]) -> dict[str, float]:
    """Each draft of each battery with a check of its own."""
    every = []
    for name in batteries:
        cells = pd.read_csv(BLIND / name / "cells.csv")
        every.append(cells.assign(draft=cells["draft"] + name))
    said: dict[str, float] = summary(pd.concat(every).to_dict("records"))
    return said
