"""Speculative beam search (Leviathan23 A.4): the target's own beam search in fewer runs.

The draft's wider beam of u >= w runs ahead for gamma steps; the target scores its w beams and all
u gamma candidates in one run.  A step stands while the target's w best continuations are among
the draft's u, and the first step that does not stand is still the target's own: a block advances
the search by 1 to gamma + 1 steps.  The result is that of plain beam search, by the rules of
transformers' ``generate(num_beams=w, do_sample=False)``: texts that end compare by their log
probability a token.

The beams are a tree.  A model reads it as one sequence, every token at its own position and
seeing its ancestors only, so a run over n candidates is one run of width n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from transformers.cache_utils import DynamicLayer, EncoderDecoderCache

from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from specsim.checks import UnsupportedError
from specsim.schemes import BeamSearch


def beam_search(
    target: CachedModel, draft: CachedModel, request: DecodeRequest, scheme: BeamSearch
) -> Decoding:
    """Decode one request, at temperature 0.  All of the text is emitted in the last block.

    ``accepted`` and ``drafted`` count steps of the search, not tokens.
    """
    request.require_greedy("beam search")
    state = RequestState(request, target, draft)
    return Decoding(state, _blocks(state, target, draft, _Search(scheme, request)))


@torch.inference_mode()
def _blocks(
    state: RequestState, target: CachedModel, draft: CachedModel, search: _Search
) -> Iterator[None]:
    request = state.request
    readers = large, small = [_TreeReader(model, len(request.text)) for model in (target, draft)]
    while True:
        steps = min(search.scheme.gamma, request.limit - search.steps - 1)
        candidates = [*search.live, *_run_ahead(small, search, steps)]
        rows = dict(zip(candidates, large.read(candidates), strict=True))
        accepted = 0
        search.step(torch.stack([rows[node] for node in search.live]))
        while not search.over and all(node in rows for node in search.live):
            accepted += 1
            search.step(torch.stack([rows[node] for node in search.live]))
        for reader in readers:
            reader.keep_ancestors(search.live)
        state.emit(search.best() if search.over else [], accepted, steps)
        yield


@torch.inference_mode()
def try_everywhere(
    target: CachedModel, draft: CachedModel, request: DecodeRequest, scheme: BeamSearch
) -> tuple[list[int], list[int]]:
    """The text of the target's own search, and how many steps a block at each step would accept.

    The search is the same whatever the draft thinks, so one search and one run ahead from each of
    its steps say what a block does wherever it begins.
    """
    for model in (target, draft):
        model.prefill(request.prompt, request.written)
    large, small = (_TreeReader(model, len(request.text)) for model in (target, draft))
    search = _Search(scheme, request)
    lives, candidates = [], []
    while not search.over:
        candidates.append(set(_run_ahead(small, search, scheme.gamma)))
        search.step(large.read(search.live))
        lives.append(search.live)
        for reader in (large, small):
            reader.keep_ancestors(search.live)
    accepted = []
    for step, known in enumerate(candidates):
        count = 0
        # The last step of all leaves no beam to be scored.
        while step + count < len(lives) - 1 and count < scheme.gamma:
            if not known.issuperset(lives[step + count]):
                break
            count += 1
        accepted.append(count)
    return search.best(), accepted


class _Node:
    """A token of the tree; the root is the last one of the prompt."""

    def __init__(self, token: int, parent: _Node | None = None) -> None:
        self.token, self.parent = token, parent
        self.depth: int = parent.depth + 1 if parent else 0
        self._children: dict[int, _Node] = {}

    def child(self, token: int) -> _Node:
        """The same node for the same token, whoever asks."""
        if token not in self._children:
            self._children[token] = _Node(token, self)
        return self._children[token]

    def ancestors(self) -> Iterator[_Node]:
        """Parent first, root last."""
        node = self.parent
        while node:
            yield node
            node = node.parent

    def text(self) -> list[int]:
        """The tokens from behind the root to here."""
        return [node.token for node in [self, *self.ancestors()]][-2::-1]


class _Search:
    """The target's beam search: its live beams, and the best texts that have ended.

    live : nodes, at most w, best first; scores : their log probabilities, (len(live),)
    """

    def __init__(self, scheme: BeamSearch, request: DecodeRequest) -> None:
        self.scheme = scheme
        self.most_steps, self.end = request.limit, request.end_of_text
        self.live, self.scores = [_Node(request.text[-1])], torch.zeros(1)
        self.steps, self.over = 0, False
        self._ended: list[tuple[float, _Node]] = []

    def step(self, rows: torch.Tensor) -> None:
        """Extend every beam by a token, given its log probabilities (len(live), V)."""
        width = self.scheme.beams
        self.steps += 1
        # With E tokens that end a text, (1 + E) w continuations hold w that do not.
        most = (1 + max(len(self.end), 1)) * width
        scores, nodes = _best_continuations(self.live, self.scores, rows, most)
        live = []
        for rank, (score, node) in enumerate(zip(scores.tolist(), nodes, strict=True)):
            if node.token not in self.end and self.steps < self.most_steps:
                live.append(rank)
            elif rank < width:
                self._ended.append((score / self.steps, node))
        self._ended = sorted(self._ended, key=lambda each: -each[0])[:width]
        live = live[:width]
        self.live, self.scores = [nodes[rank] for rank in live], scores[live]
        self.over = not live or (len(self._ended) == width and self._settled())

    def best(self) -> list[int]:
        """The best text that has ended."""
        return self._ended[0][1].text()

    def _settled(self) -> bool:
        """Whether the live beams are given up, now that w texts have ended.

        That is when the best of them, at its present length, is no better than the worst text.
        One beam is greedy decoding and stops at once.
        """
        return self.scheme.beams == 1 or float(self.scores[0]) / self.steps <= self._ended[-1][0]


def _run_ahead(draft: _TreeReader, search: _Search, steps: int) -> list[_Node]:
    """All nodes of the draft's beam search from the live beams; it never ends a text."""
    nodes, scores, ahead = search.live, search.scores, []
    for _ in range(steps):
        rows = draft.read(nodes)
        rows[:, sorted(search.end)] = -torch.inf
        scores, nodes = _best_continuations(nodes, scores, rows, search.scheme.draft_beam)
        ahead += nodes
    return ahead


def _best_continuations(
    nodes: list[_Node], scores: torch.Tensor, rows: torch.Tensor, most: int
) -> tuple[torch.Tensor, list[_Node]]:
    """The most probable texts that are one token longer, best first, and their scores."""
    total = (scores.to(rows.device)[:, None] + rows).flatten()
    best = total.topk(min(most, len(total)))
    places = [divmod(place, rows.shape[1]) for place in best.indices.tolist()]
    return best.values, [nodes[beam].child(token) for beam, token in places]


class _TreeReader:
    """A model that reads a tree of tokens behind a prompt, with one cache for all of it.

    The cache holds the prompt but for its last token, then nodes in the order they were read.
    """

    def __init__(self, model: CachedModel, prompt: int) -> None:
        if isinstance(model.cache, EncoderDecoderCache):
            raise UnsupportedError(
                "beam search reads a tree, and an encoder-decoder model cannot be told the "
                "position of a token: it counts what is in its cache"
            )
        if not all(type(layer) is DynamicLayer for layer in model.cache.layers):
            raise UnsupportedError("beam search needs full attention in every layer of both models")
        attention = model.model.config._attn_implementation
        if attention not in ("eager", "sdpa"):
            raise UnsupportedError(f"beam search needs eager or sdpa attention, not {attention}")
        self.model, self._prefix = model, prompt - 1
        self._columns: dict[_Node, int] = {}
        self._sees = torch.zeros((0, 0), dtype=torch.bool)

    def read(self, nodes: Sequence[_Node]) -> torch.Tensor:
        """One run over nodes and such ancestors as were not read; log probabilities (n, V)."""
        start = len(self._columns)
        for node in nodes:
            for each in reversed([node, *node.ancestors()]):
                self._columns.setdefault(each, len(self._columns))
        unread = list(self._columns)[start:]
        logits = self._run(unread, self._mask(unread))
        wanted = [self._columns[node] - start for node in nodes]
        return logits[wanted].float().log_softmax(-1)

    def keep_ancestors(self, nodes: Sequence[_Node]) -> None:
        """Forget all but the ancestors of these nodes, which are read again, as any last token."""
        wanted = {above for node in nodes for above in node.ancestors()}
        kept = [node for node in self._columns if node in wanted]
        columns = [self._columns[node] for node in kept]
        if len(kept) < len(self._columns):
            places = [*range(self._prefix), *(self._prefix + column for column in columns)]
            index = torch.tensor(places, dtype=torch.long, device=self.model.device)
            for layer in self.model.cache.layers:
                layer.keys = layer.keys.index_select(2, index)
                layer.values = layer.values.index_select(2, index)
        self._sees = self._sees[columns][:, columns]
        self._columns = {node: column for column, node in enumerate(kept)}

    def _mask(self, unread: Sequence[_Node]) -> torch.Tensor:
        """What each unread node sees of the cache and of itself, (1, 1, n, columns), to add."""
        size, held = len(self._columns), len(self._columns) - len(unread)
        sees = torch.eye(size, dtype=torch.bool)
        sees[:held, :held] = self._sees
        for node in unread:
            if node.parent:
                sees[self._columns[node]] |= sees[self._columns[node.parent]]
        self._sees = sees
        seen = torch.cat([torch.ones(len(unread), self._prefix, dtype=torch.bool), sees[held:]], 1)
        dtype = self.model.model.dtype
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
        return mask[None, None].to(self.model.device)

    def _run(self, unread: Sequence[_Node], mask: torch.Tensor) -> torch.Tensor:
        """One counted run; logits (n, V)."""
        device = self.model.device
        ids = torch.tensor([[node.token for node in unread]], device=device)
        depths = torch.tensor([[node.depth for node in unread]], device=device)
        return self.model.read(ids, position_ids=self._prefix + depths, attention_mask=mask)
