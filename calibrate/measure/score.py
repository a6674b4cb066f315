"""Labelled positions (``specsim.frontier``): both models read held-out text, once.

Everything a curve over thresholds needs is computed where the logits are, a few positions at a
time, and only numbers per position are kept: the memory and the file do not grow with the
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from calibrate.decode.engine import CachedModel
from calibrate.models.sampling import Sampling
from specsim.checkpoint import Checkpoint
from specsim.checks import SpecsimError
from specsim.files import write_frame
from specsim.rules import (
    Custom,
    Distributions,
    Lossy,
    LossyStar,
    Rule,
    TokenV1,
    TokenV2,
    TokenV3,
    TopBeta,
)
from specsim.rules.base import at, cross_entropy, distance, entropy

# Positions read at once: at a vocabulary of 150,000 a row of them is 40 MB in float32.
_CHUNK = 64


class ScoreError(SpecsimError):
    """The text cannot be scored; the message says why."""


def fixed_rules(greedy: bool) -> list[Rule]:
    """The rules that cannot be swept afterwards, at the thresholds to measure.

    They decide on unscaled rows.  Lenient(l) is Lossy(1 - l), so it is not measured twice.  At
    temperature 0 Lossy changes nothing, because p is 0 or 1, and is left out.
    """
    even = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
    to_one = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
    # (3, 1) and (5, 3) are the paper's settings for quality and for speed (Xia22).
    tops = ((2, 0.5), (2, 1.0), (3, 1.0), (3, 2.0), (5, 3.0), (10, 5.0), (30, 6.0), (100, 8.0))
    rules: list[Rule] = [TokenV1(threshold, decide_on="unscaled") for threshold in even]
    rules += [TokenV2(threshold, decide_on="unscaled") for threshold in even]
    rules += [TokenV3(threshold, decide_on="unscaled") for threshold in to_one]
    rules += [TopBeta(beta, tau, decide_on="unscaled") for beta, tau in tops]
    if not greedy:
        rules += [Lossy(looseness) for looseness in to_one]
        rules += [LossyStar(looseness) for looseness in to_one[::2]]  # a sort each
    return rules


def setting(rule: Rule) -> str:
    """The rule with its numbers in words; those that are at their default go without saying."""
    values = [
        f"{field.name}={getattr(rule, field.name):g}"
        for field in fields(rule)  # type: ignore[arg-type]  # every rule is a dataclass
        if field.default is MISSING and field.name != "decide_on"
    ]
    return f"{type(rule).__name__}({', '.join(values)})"


def score(
    target: CachedModel,
    draft: CachedModel,
    texts: Sequence[Sequence[int]],
    sampling: Sampling,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
) -> pd.DataFrame:
    """The rows of texts of token ids, each a request; its first token is read only.

    The label of a position is the next token of the text.  ``advance`` is called after each text.

    checkpoint : keeps the texts that were read
    """
    if not texts or min(len(text) for text in texts) < 2:
        raise ScoreError("every text needs at least two tokens: one to read and one to label")
    rules = fixed_rules(sampling.greedy)
    parts = []
    for request, text in enumerate(texts):

        def read(path: Path, request: int = request, text: Sequence[int] = text) -> None:
            with path.open("wb") as file:
                np.savez(file, **_scored(target, draft, request, text, sampling, rules))

        with np.load(checkpoint.keep(f"{request}.npz", read)) as part:
            parts.append({name: part[name] for name in part.files})
        advance()
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


@torch.inference_mode()
def _scored(
    target: CachedModel,
    draft: CachedModel,
    request: int,
    text: Sequence[int],
    sampling: Sampling,
    rules: Sequence[Rule],
) -> dict[str, Any]:
    """The columns of one text."""
    target.reset()
    draft.reset()
    ids = torch.tensor([list(text)], device=target.device)
    parts: list[dict[str, np.ndarray]] = []
    for start in range(0, len(text) - 1, _CHUNK):
        end = min(start + _CHUNK, len(text) - 1)
        read, labels = ids[:, start:end], ids[0, start + 1 : end + 1]
        columns = statistics(target.read(read), draft.read(read), labels, sampling, rules)
        place = {
            "request": np.full(end - start, request),
            "position": np.arange(start, end),
            "label": labels.cpu().numpy(),
        }
        parts.append(place | columns)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def statistics(
    target_logits: torch.Tensor,
    draft_logits: torch.Tensor,
    labels: torch.Tensor,
    sampling: Sampling,
    rules: Sequence[Rule],
) -> dict[str, np.ndarray]:
    """The columns of ``specsim.frontier.positions``, from logits (T, V) and labels (T,)."""
    both = target_logits, draft_logits
    log_p, log_q = (_log_rows(logits, sampling) for logits in both)
    unscaled_p, unscaled_q = (logits.float().softmax(-1) for logits in both)
    rows = Distributions(
        sampling.probabilities(target_logits),
        sampling.probabilities(draft_logits),
        unscaled_p,
        unscaled_q,
    )
    columns = {
        "logp_target": at(log_p, labels),
        "logp_draft": at(log_q, labels),
        "tv": distance(rows.p, rows.q).clamp(max=1),
        "target_top_is_label": (rows.p.argmax(-1) == labels).to(torch.int8),
        "draft_top_is_label": (rows.q.argmax(-1) == labels).to(torch.int8),
        "target_log_range": -log_p.amin(-1),
        "draft_log_range": -log_q.amin(-1),
        **_decision("unscaled", unscaled_p, unscaled_q),
        **_decision("tempered", rows.p, rows.q),
    }
    for rule in rules:
        name, pi = setting(rule), rule.pi(rows)
        known = _known(pi)  # some targets are a sort: one, not three
        emitted, rejected = known.emitted(rows), (rows.q - known.accepted(rows)).sum(-1)
        columns[f"{name}.rejection"] = rejected.clamp(0, 1)
        columns[f"{name}.logp"] = at(emitted, labels).log().clamp(max=0)
        columns[f"{name}.top"] = (emitted.argmax(-1) == labels).to(torch.int8)
    return {name: column.cpu().numpy() for name, column in columns.items()}


def _known(pi: torch.Tensor) -> Rule:
    """The rule whose target is ``pi`` here."""
    return Custom(lambda p, q: pi)


def _log_rows(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """log of ``sampling.probabilities``, also of those too small for float32 where it can."""
    if sampling.greedy or sampling.top_k is not None or sampling.top_p is not None:
        return sampling.probabilities(logits).log()
    return (logits.float() / sampling.temperature).log_softmax(-1)


def _decision(prefix: str, p: torch.Tensor, q: torch.Tensor) -> dict[str, torch.Tensor]:
    """What deferral rules decide on (``specsim.frontier.positions.STATISTICS``)."""
    found = {
        "target_max": p.amax(-1),
        "draft_max": q.amax(-1),
        "target_entropy": entropy(p).clamp(min=0),
        "draft_entropy": entropy(q).clamp(min=0),
        "bild_greedy": -at(p, q.argmax(-1)).log().clamp(max=0),
        "bild_expectation": cross_entropy(q, p).clamp(min=0),
    }
    return {f"{prefix}_{name}": column for name, column in found.items()}


def write_positions(frame: pd.DataFrame, path: Path, about: dict[str, object]) -> None:
    """Whole or not at all.  ``about`` goes into a Parquet file's metadata; CSV has no room."""
    for name, value in about.items():
        frame.attrs[name] = value
    write_frame(frame, path)
