"""Drafters that know how often tokens, or pairs of tokens, came in some corpus."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from calibrate.decode.drafters.base import Lookup
from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.text import Text
from specsim.checks import Floats, InvalidArgumentError


class PairCounts:
    """Counts of (previous, next) pairs of tokens, as compressed rows.

    start : (V + 1,), row t is start[t]:start[t + 1] of the two others
    next, count : (N,), tokens in rising order within a row, and how often they came
    """

    def __init__(self, counts: Mapping[str, np.ndarray[Any, Any]]) -> None:
        missing = {"start", "next", "count"} - set(counts)
        if missing:
            raise InvalidArgumentError(f"pair counts lack {', '.join(sorted(missing))}")
        self.start, self.next = counts["start"].astype(np.int64), counts["next"].astype(np.int64)
        self.count = counts["count"].astype(np.float64)
        self.vocabulary = len(self.start) - 1
        if self.start[-1] != len(self.next) or len(self.next) != len(self.count):
            raise InvalidArgumentError("pair counts: start must end where next and count end")
        if self.next.size and not 0 <= self.next.min() <= self.next.max() < self.vocabulary:
            raise InvalidArgumentError(f"pair counts: next must be in [0, {self.vocabulary - 1}]")
        came = np.bincount(self.next, weights=self.count, minlength=self.vocabulary)
        # Tokens that never came get half a count, so that every logarithm is finite.
        self.unigram: Floats = (came + 0.5) / (came + 0.5).sum()

    def bigram(self, token: int) -> Floats:
        """P(next | token), (V,): the counts, and one more spread as the unigram law."""
        row = self.unigram.copy()
        if token < self.vocabulary:
            part = slice(self.start[token], self.start[token + 1])
            row[self.next[part]] += self.count[part]
        return np.asarray(row / row.sum())

    @cached_property
    def best(self) -> list[int]:
        """The most probable next token after each token."""
        best = np.full(self.vocabulary, self.unigram.argmax())
        rows = np.repeat(np.arange(self.vocabulary), np.diff(self.start))
        weights = self.count + self.unigram[self.next]
        # In rising order of weight, and the first of equal tokens last: the last one stands.
        order = np.lexsort((-self.next, weights))
        best[rows[order]] = self.next[order]
        return best.tolist()

    def best_after(self, token: int) -> int:
        """The most probable next token; after one beyond the counts, by the unigram law."""
        return self.best[token] if token < self.vocabulary else int(self.unigram.argmax())


def read_pair_counts(path: Path) -> PairCounts:
    """Counts from a safetensors file with the arrays start, next and count."""
    try:
        return PairCounts(load_file(path))
    except (OSError, SafetensorError, InvalidArgumentError) as error:
        raise InvalidArgumentError(f"bigram file {path} cannot be read ({error})") from None


class Counting(Lookup):
    """Base of the drafters with counts; the target must know all tokens that were counted."""

    def __init__(self, counts: PairCounts) -> None:
        super().__init__()
        self.counts = counts

    def begin(self, text: Text) -> None:
        if self.counts.vocabulary > text.vocabulary:
            raise InvalidArgumentError(
                f"counts of {self.name} must be of at most {text.vocabulary} tokens, those of "
                f"the target, got {self.counts.vocabulary}"
            )
        super().begin(text)


class Bigram(Counting):
    """Draws from P(next | last token), under the request's temperature and filters."""

    name = "bigram"

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        rows = []
        for _ in range(room):
            with self.run(1):
                token, row = drawing.draw(self._logits(drawing.generator.device))
                self.text.push(token)
            rows.append(row)
        return join(rows)

    def law(self) -> Floats:
        """Of the next token, (V,)."""
        return self.counts.bigram(self.text.tokens()[-1])

    def _logits(self, device: torch.device) -> torch.Tensor:
        """(1, V); tokens beyond the counts never come."""
        law = self.law()
        logits = torch.full((1, self.text.vocabulary), -torch.inf)
        logits[0, : len(law)] = torch.from_numpy(np.log(law))
        return logits.to(device)


class Unigram(Bigram):
    """Draws from the law of single tokens, whatever came before."""

    name = "unigram"

    def law(self) -> Floats:
        return self.counts.unigram
