"""The picture of ``specsim optimize --batch``: the best draft length of every batch and context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt  # plots.py, imported below, chose its backend
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from specsim.report.plots import BLACK, GREY, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.batching.point import BatchPoint

# Columns that have room for a number each; beyond, labels are thinned out and cells with the same
# gamma share one number.
_ROOM = 40
# Panels with more columns together stand below each other.
_BESIDE = 24
# Diverging, and told apart with every common colour vision; letters are white on its dark end.
_COLOURS = "RdBu"
_DARK = 0.85


def best_by_load(panels: Mapping[str, Sequence[BatchPoint]]) -> Figure:
    """One panel a name: batch to the right, context upwards, colour the speedup.

    The best gamma stands in each cell, 0 where speculation is better off; cells that could not be
    priced are hatched.  Colours are of one scale around a speedup of one.
    """
    shown = {name: list(cells) for name, cells in panels.items()}
    batches = sorted({cell.batch for cells in shown.values() for cell in cells})
    contexts = sorted({cell.context for cells in shown.values() for cell in cells})
    fastest = max(cell.speedup for cells in shown.values() for cell in cells)
    # Where nothing pays there is still a scale to draw.
    reach = max(fastest, 1.05)
    norm = Normalize(2.0 - reach, reach)
    width = max(3.4, 0.42 * min(len(batches), _ROOM) + 1.4)
    height = max(2.2, 0.36 * len(contexts) + 1.6)
    with plt.rc_context({**STYLE, "axes.grid": False}):
        beside = len(shown) * len(batches) <= _BESIDE
        down, right = (1, len(shown)) if beside else (len(shown), 1)
        figure, axes = plt.subplots(
            down,
            right,
            figsize=(width * right + 1.2, height * down),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for axis, (name, cells) in zip(axes.flat, shown.items(), strict=True):
            _panel(axis, cells, batches, contexts, norm)
            axis.set_title(name, fontsize=10)
        for axis in axes[-1]:
            axis.set_xlabel("batch (requests that share iterations)")
        for axis in axes[:, 0]:
            axis.set_ylabel("context (tokens)")
        bar = figure.colorbar(
            mpl.cm.ScalarMappable(norm, _COLOURS), ax=axes, label="speedup over\nplain decoding"
        )
        # The best of all lengths is never slower than plain decoding, which is one of them.
        bar.ax.set_ylim(1.0, reach)
        title = "best draft length gamma, and what it gives"
        if any(len(cells) < len(batches) * len(contexts) for cells in shown.values()):
            title += " (hatched: no price)"
        figure.suptitle(title, fontsize=11)
    return figure


def _panel(
    axis: Any,
    cells: Sequence[BatchPoint],
    batches: Sequence[int],
    contexts: Sequence[float],
    norm: Normalize,
) -> None:
    speedup = np.full((len(contexts), len(batches)), np.nan)
    for cell in cells:
        speedup[contexts.index(cell.context), batches.index(cell.batch)] = cell.speedup
    axis.imshow(speedup, cmap=_COLOURS, norm=norm, origin="lower", aspect="auto")
    for row, column in np.argwhere(np.isnan(speedup)):
        corner = (column - 0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor=GREY, lw=0))
    step = -(-len(batches) // _ROOM)
    for run in _runs(cells, alone=step == 1):
        if len(run) * 3 * _ROOM >= len(batches):  # a digit needs a third of the room of a label
            middle = run[len(run) // 2]
            axis.text(
                batches.index(middle.batch),
                contexts.index(middle.context),
                str(middle.gamma),
                ha="center",
                va="center",
                fontsize=9,
                color="white" if norm(middle.speedup) > _DARK else BLACK,
            )
    axis.set_xticks(range(0, len(batches), step), [str(b) for b in batches[::step]], fontsize=8)
    axis.set_yticks(range(len(contexts)), [f"{context:g}" for context in contexts])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def _runs(cells: Sequence[BatchPoint], alone: bool) -> list[list[BatchPoint]]:
    """Neighbours of one context and gamma, which share a number; or every cell alone."""
    groups = groupby(cells, key=lambda c: (c.context, c.gamma, c.batch if alone else None))
    return [list(group) for _, group in groups]
