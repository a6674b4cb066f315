"""As few changes of the draft length over batches as predictions can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def fewest_ranges(speedups: Sequence[Sequence[float]], margin: float, loss: float) -> list[int]:
    """A draft length for each batch, such that it changes as seldom as possible.

    speedups : for each batch in turn, one at least, the speedup of draft length 0, 1, ..., which
        is 1 for length 0
    margin : what drafts must gain over not drafting
    loss : what a batch may lose against its best, as a share of that

    A batch whose best gains less than ``margin`` drafts nothing.  Every other one drafts, gains
    ``margin`` at least, and has (1 - loss) times its best speedup or more.  Of the answers with the
    fewest changes, one with the least losses added up over batches.
    """
    # Viterbi over batches: for each length of the last one the fewest changes up to there, the
    # losses so far, and the length of the batch before.
    steps: list[dict[int, tuple[int, float, int]]] = []
    for row in speedups:
        before = steps[-1] if steps else {}
        step = {}
        for gamma, lost in _within(row, margin, loss):
            ways = [
                (changes + (last != gamma), so_far + lost, last)
                for last, (changes, so_far, _) in before.items()
            ]
            step[gamma] = min(ways, default=(0, lost, gamma))
        steps.append(step)
    gammas = [min(steps[-1], key=lambda gamma: steps[-1][gamma])]
    for step in reversed(steps[1:]):
        gammas.append(step[gammas[-1]][2])
    return gammas[::-1]


def _within(row: Sequence[float], margin: float, loss: float) -> Iterator[tuple[int, float]]:
    """The lengths that a batch may have, and what each loses, as a share of the best speedup."""
    best = max(row)
    if max(row[1:], default=0.0) < 1.0 + margin:
        yield 0, 1.0 - row[0] / best
        return
    least = max(1.0 + margin, (1.0 - loss) * best)
    for gamma, speedup in enumerate(row):
        if gamma and speedup >= least:
            yield gamma, 1.0 - speedup / best
