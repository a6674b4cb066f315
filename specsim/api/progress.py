"""How a long call says how far it is: a callback, quiet unless one is given."""

from __future__ import annotations

from collections.abc import Callable

# Called with what is going on, how much of it is done, and how much there is in all; a total of 0
# is a note to be read at once, which counts nothing.
Progress = Callable[[str, int, int], None]


def quiet(activity: str, done: int, total: int) -> None:
    """Says nothing: the progress of a call that is given none."""


def note(progress: Progress, sentence: str) -> None:
    """Say something at once that cannot wait for the result."""
    progress(sentence, 0, 0)


def steps(progress: Progress, activity: str, total: int) -> Callable[[], None]:
    """A function to call after each of ``total`` steps; ``progress`` hears of the start too."""
    done = 0
    if total:
        progress(activity, done, total)

    def advance() -> None:
        nonlocal done
        done += 1
        progress(activity, done, total)

    return advance
