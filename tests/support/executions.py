"""Slow twins of the decoders: a rule run over two models that are functions of the whole text.

Block by block, token by token, or by whole responses.
A *model* is any function from a context (a tuple of tokens) to a row of probabilities (V,).  All
randomness goes through ``choose``, which picks an entry of a row of weights: ``law`` runs an
execution along every choice and adds up the probabilities, which is exact where the tree of
choices is small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.rules.base import Distributions, Rule
from specsim.rules.confidence import Confidence
from specsim.rules.deferral import DraftDeferralRule

Tokens = tuple[int, ...]
Row = np.ndarray[Any, Any]
Model = Callable[[Tokens], Row]
Choose = Callable[[Row], int]

# The small model drafts at most so many tokens before the large one is called
# (Narasimhan24 E.1, after Kim23).
WINDOW = 10


@dataclass(frozen=True)
class Execution:
    """What came out, and what it took.

    tokens : those emitted
    draft_runs : runs of the small model, one token each
    target_reads : for each run of the large model, how many tokens it had not read before; the
        prompt counts as read
    """

    tokens: Tokens
    draft_runs: int
    target_reads: Tokens

    @property
    def target_runs(self) -> int:
        return len(self.target_reads)


def speculative_block(
    rule: Rule, target: Model, draft: Model, text: Tokens, gamma: int, choose: Choose
) -> Tokens:
    """The tokens of one block behind ``text``, 1..gamma + 1.

    Narasimhan24 Algorithm 4 (5 for a deferral rule).
    """
    q_rows: list[Row] = []
    drafts: Tokens = ()
    for _ in range(gamma):
        q_rows.append(draft(text + drafts))
        drafts += (choose(q_rows[-1]),)
    p_rows = [target(text + drafts[:position]) for position in range(gamma + 1)]
    for position, token in enumerate(drafts):
        rows = Distributions(p_rows[position], q_rows[position])
        chance = float(rule.accepted(rows)[token] / rows.q[token])
        if choose(np.array([1 - chance, chance])) == 0:
            return (*drafts[:position], choose(rule.residual(rows)))
    if rule.bonus_needs_draft:
        q_rows.append(draft(text + drafts))
    last = Distributions(p_rows[-1], q_rows[-1] if rule.bonus_needs_draft else p_rows[-1])
    return (*drafts, choose(rule.bonus(last)))


def token_cascade(
    rule: DraftDeferralRule,
    target: Model,
    draft: Model,
    prompt: Tokens,
    length: int,
    choose: Choose,
    window: int = WINDOW,
) -> Execution:
    """Narasimhan24 Algorithm 2: one token from q, or from p where the draft is unsure.

    After ``window`` tokens of the draft in a row the next one comes from the target, unasked
    (E.1).  Each run of the target reads all that came since its last one.
    """
    text, draft_runs, reads = prompt, 0, []
    unread = 1
    while len(text) < len(prompt) + length:
        if unread <= window:
            q = draft(text)
            draft_runs += 1
            if not bool(rule.unsure(q)):
                text += (choose(q),)
                unread += 1
                continue
        text += (choose(target(text)),)
        reads.append(unread)
        unread = 1
    return Execution(text[len(prompt) :], draft_runs, tuple(reads))


def sequence_cascade(
    confidence: Confidence,
    threshold: float,
    target: Model,
    draft: Model,
    prompt: Tokens,
    length: int,
    choose: Choose,
) -> Execution:
    """A response of q, or one of p instead where confidence in q's is below ``threshold``, in nats.

    Narasimhan24 eq. 1 is the sum of log probabilities with threshold log(1 - t).
    """
    text = prompt
    logs = np.zeros(length)
    for position in range(length):
        q = draft(text)
        token = choose(q)
        logs[position] = np.log(q[token])
        text += (token,)
    if confidence(logs) >= threshold:
        return Execution(text[len(prompt) :], length, ())
    text = prompt
    for _ in range(length):
        text += (choose(target(text)),)
    return Execution(text[len(prompt) :], length, (1,) * length)


def quantile_log_probability(level: float) -> Confidence:
    """The quantile of the tokens' log probabilities: 0 is the least sure token, 1 the surest."""

    def confidence(logs: Floats) -> float:
        return float(np.quantile(logs, level))

    return confidence


def law(execution: Callable[[Choose], Any], most_runs: int = 1_000_000) -> dict[Any, float]:
    """The exact law of what ``execution`` returns, by running it along every choice it can make.

    ``execution`` must depend on nothing but its choices.  Weights are taken as probabilities.
    """
    total: dict[Any, float] = {}
    pending: list[Tokens] = [()]
    for _ in range(most_runs):
        if not pending:
            return total
        script, probability_so_far, made = pending.pop(), 1.0, 0

        def choose(weights: Row) -> int:
            nonlocal script, probability_so_far, made
            if made == len(script):
                possible = np.flatnonzero(weights > 0).tolist()
                pending.extend((*script, other) for other in possible[1:])
                script = (*script, possible[0])
            choice = script[made]
            made += 1
            probability_so_far *= float(weights[choice])
            return choice

        result = execution(choose)
        total[result] = total.get(result, 0.0) + probability_so_far
    raise RuntimeError(f"the execution has more than {most_runs} ways to go")
