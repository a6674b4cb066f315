"""One block: a verifier reads a proposal in one run, keeps some of it and adds a token of its own.

The verifier is the target, or in a vertical cascade a drafter that reviews a cheaper one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.text import Reader, Text
from calibrate.models.sampling import Sampling
from specsim.rules import (
    DecidingRule,
    Distributions,
    GreedyLenient,
    Lenient,
    Lossless,
    Rule,
)
from specsim.rules.verify import accepts, draw, leading


@dataclass(frozen=True, eq=False)
class Block:
    """What a verifier saw, and what it made of it.

    start : length of the text in front of the block
    p, q : rows of the verifier (n + 1, V) and of the drafter (n, V), or one row more where the
        bonus token depends on it
    drafts : the tokens proposed, (n,)
    accepted : how many of them were kept
    token : the recovered or bonus token, (1, 1)
    """

    start: int
    p: Rows
    q: Rows
    drafts: torch.Tensor
    accepted: int
    token: torch.Tensor


Observer = Callable[[Block], None]
# What a drafter does: push at most so many tokens, and say what they were drawn from.
Propose = Callable[[int, Drawing], Rows | None]


def lenient(lenience: float, sampling: Sampling) -> Rule:
    """Lenience l in [0, 1] (Leviathan23 A.4) in the form for this temperature; 1 is none.

    Above temperature 0 accept with min(1, p / (l q)); at 0 accept x if p(x) >= l max p, with p at
    temperature 1.  Chen23's lenience, which is at least one, is 1 / l.
    """
    if lenience == 1:
        return Lossless()
    return GreedyLenient(lenience, decide_on="unscaled") if sampling.greedy else Lenient(lenience)


def drawing_for(rule: Rule, asked: Drawing) -> Drawing:
    """How a drafter must draw for a verifier with this rule, of whom ``asked`` is wanted."""
    return replace(
        asked,
        rows=asked.rows or not (asked.sampling.greedy and isinstance(rule, Lossless)),
        unscaled=asked.unscaled
        or (isinstance(rule, DecidingRule) and rule.decide_on == "unscaled"),
    )


def verify_tokens(text: Text, start: int, reader: Reader, drawing: Drawing) -> int:
    """Keep of the text from ``start`` on what equals the verifier's own draws, then one of them.

    At temperature 0 that is greedy verification, above it exact match: the verifier draws a token
    at every position, so what comes out are its own draws, and a draft stands while it is equal.
    Returns how many tokens were kept.
    """
    length = len(text) - start
    choice = drawing.sampling.draw(reader.catch_up()[-length - 1 :], drawing.generator)
    count, token = _matched(choice[None, :, 0], text.ids(start))
    text.cut(start + int(count))
    text.push(token)
    return int(count)


def verify_greedy(logits: torch.Tensor, drafts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy verification of B blocks: how many drafts each keeps (B,), and its token (B, 1).

    logits : the target's, (B, n + 1, V), before and behind the drafts (B, n)
    """
    return _matched(logits.argmax(dim=-1), drafts)


def verify_exact(
    p: torch.Tensor, drafts: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by exact match at a temperature, with a draw of the target at every position.

    p : what the target says, (B, n + 1, V), before and behind the drafts (B, n)
    """
    choice = draw_any(p.flatten(0, 1), generator).view(p.shape[:2])
    return _matched(choice, drafts)


def _matched(choice: torch.Tensor, drafts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many drafts (B, n) equal what was chosen (B, n + 1), and the choice behind, (B, 1)."""
    count: torch.Tensor = leading(choice[:, :-1] == drafts)
    return count, choice.gather(1, count[:, None])


def verify_lossless(
    p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same at a temperature: Leviathan23 Alg 1 on B blocks, without waiting for the device.

    The rule ``Lossless`` in single precision, which decoding spends its time in.

    p, q : what the target says, (B, n + 1, V), and what the drafts (B, n) were drawn from (B, n, V)
    """
    length = drafts.shape[1]
    if not length:
        return torch.zeros(len(p), dtype=torch.int64, device=p.device), draw_any(p[:, 0], generator)
    index = drafts[..., None]
    ratio = (p[:, :length].gather(2, index) / q.gather(2, index))[..., 0]
    coins = torch.rand(ratio.shape, generator=generator, device=p.device)
    count: torch.Tensor = leading(coins < ratio)
    row = torch.arange(len(p), device=p.device)
    last = p[row, count]
    # After full acceptance there is nothing to subtract: the bonus token comes from p.
    drafted = q[row, count.clamp(max=length - 1)] * (count < length)[:, None]
    residual = (last - drafted).clamp_(min=0)
    # p = q up to rounding leaves nothing to recover from; then p itself is the answer.
    weights = torch.where(residual.sum(dim=1, keepdim=True) > 0, residual, last)
    return count, draw_any(weights, generator)


def draw_any(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One token for each row of weights (B, V), shape (B, 1): the first of V exponential clocks.

    The same draws as ``torch.multinomial``, which on CUDA makes the host wait to check its input.
    """
    clocks = torch.empty_like(weights).exponential_(generator=generator)
    clocks.clamp_(min=torch.finfo(clocks.dtype).tiny)
    return (weights / clocks).argmax(dim=-1, keepdim=True)


def verify_rows(
    text: Text,
    start: int,
    reader: Reader,
    proposed: Rows | None,
    rule: Rule,
    drawing: Drawing,
    propose: Propose | None = None,
) -> Block:
    """GenSpecSample (Narasimhan24 Algorithm 4) of the text from ``start`` on.

    proposed : what its tokens were drawn from, None where there are none

    A bonus token that depends on q asks the drafter to ``propose`` one row more, at one draft run
    more; without one, or where it has nothing to propose, the bonus comes from p.
    """
    length = len(text) - start
    logits = reader.catch_up()[-length - 1 :]
    drafts = text.ids(start)[0].clone()
    p = drawing.law(logits)
    q = p[:0] if proposed is None else proposed
    if isinstance(rule, Lossless):
        kept, token = verify_lossless(p.q[None], q.q[None], drafts[None], drawing.generator)
        count = int(kept)
    else:
        count = _accepted(rule, p[:length], q, drafts, drawing.generator)
        if count == length and rule.bonus_needs_draft and propose:
            q = join([q, propose(1, drawing)]) or q
            text.cut(start + length)
        token = _emit(rule, p, q, count, length, drawing.generator)
    text.cut(start + count)
    text.push(token)
    return Block(start, p, q, drafts, count, token)


def emitted(rule: Rule, block: Block) -> Rows:
    """The law of each token of a block whose bonus comes from p: m, and p for the bonus.

    It is what the tokens were drawn from given the text before them, so a block of a reviewer
    can itself be verified, losslessly whatever its rule.
    """
    read = block.p[: block.accepted + 1]
    if isinstance(rule, Lossless):
        return read
    compared = min(block.accepted + 1, len(block.drafts))
    m = rule.emitted(_distributions(read[:compared], block.q[:compared]))
    return Rows(torch.cat([m, _bonus(rule, read[compared:])]), read.unscaled)


def _accepted(
    rule: Rule, p: Rows, q: Rows, drafts: torch.Tensor, generator: torch.Generator
) -> int:
    if not len(drafts):
        return 0
    coins = _uniform(len(drafts), generator)
    return int(leading(accepts(rule, _distributions(p, q), drafts, coins)[None]))


def _emit(
    rule: Rule, p: Rows, q: Rows, count: int, length: int, generator: torch.Generator
) -> torch.Tensor:
    """The recovered token, or the bonus token where all ``length`` were accepted; (1, 1)."""
    here = slice(count, count + 1)
    if len(q) > count:
        whole = torch.tensor([count == length], device=p.q.device)
        weights = rule.replacement(_distributions(p[here], q[here]), whole)
    else:
        weights = _bonus(rule, p[here])
    token: torch.Tensor = draw(weights, _uniform(1, generator))
    return token[:, None]


def _bonus(rule: Rule, p: Rows) -> torch.Tensor:
    """The law of the bonus token where the drafter says nothing of it: p, as far as q matters."""
    if rule.bonus_needs_draft:
        return p.q
    law: torch.Tensor = rule.bonus(_distributions(p, p))
    return law


def _distributions(p: Rows, q: Rows) -> Distributions:
    return Distributions(p.q, q.q, p.unscaled, q.unscaled)


def _uniform(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=generator, dtype=torch.float64, device=generator.device)
