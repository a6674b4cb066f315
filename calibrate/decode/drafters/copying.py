"""Drafters that copy what followed earlier in the text where it last looked like this."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.decode.drafters.base import Lookup
from calibrate.decode.drafters.counts import Counting
from calibrate.decode.drawing import Drawing, Rows
from specsim.checks import integer


class PromptLookup(Lookup):
    """Copies what followed the longest match of the text's last tokens; else proposes nothing.

    longest : the most tokens that are matched, >= 1
    counted : whether searches are counted and timed as runs; otherwise they are host time
    """

    name = "copy"

    def __init__(self, longest: int = 3, counted: bool = True) -> None:
        super().__init__()
        self.longest = integer("longest", longest, low=1)
        self.counted = counted
        if not counted:
            self.sources = ()

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        if not room:
            return None
        if not self.counted:
            return self._copy(room, drawing)
        with self.run(room):
            return self._copy(room, drawing)

    def found(self, tokens: Sequence[int], room: int) -> list[int]:
        """What it proposes behind these tokens; of a larger room the first so many."""
        return continuation(tokens, room, self.longest)

    def _copy(self, room: int, drawing: Drawing) -> Rows | None:
        tokens = list(self.text.tokens())
        self.text.push_all(self.found(tokens, room))
        return drawing.certain(self.text, len(tokens))


class MaxGram(Counting):
    """Max-Gram (Chen23, as coded by its authors; errata Chen23 6): copy, and fill up with a bigram.

    The longest match of the text's end, of any length, at its leftmost occurrence in prompt and
    generation; where fewer tokens follow it than wanted, the most probable bigrams go on.
    """

    name = "max-gram"

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        if not room:
            return None
        with self.run(room):
            tokens = list(self.text.tokens())
            copied = continuation(tokens, room)
            while len(copied) < room:
                copied.append(self.counts.best_after(copied[-1] if copied else tokens[-1]))
            self.text.push_all(copied)
            return drawing.certain(self.text, len(tokens))


def continuation(
    tokens: Sequence[int], wanted: int, longest: int | None = None, shortest: int = 1
) -> list[int]:
    """At most ``wanted`` tokens that followed the longest earlier occurrence of the text's end.

    Of several occurrences of that length the leftmost; it may overlap the end itself.  Matches
    are of at most ``longest`` tokens, or of any length, and of at least ``shortest``.
    """
    # One character a token: the search through a string runs at the speed of memory.
    text = "".join(map(chr, tokens))
    most = min(len(text) - 1, longest or len(text))
    found, length = -1, 0
    while length < most:
        # A longer match lies no further left than where a shorter one was first found to end.
        start = max(found - 1, 0)
        place = text.find(text[-length - 1 :], start, len(text) - 1)
        if place < 0:
            break
        found, length = place, length + 1
    if length < shortest:
        return []
    end = found + length
    return list(tokens[end : end + wanted])
