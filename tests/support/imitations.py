"""What the tests of the decoders share: models of any law, real ones, and slow obvious twins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.stats import chisquare
from transformers import LlamaConfig

from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.measure.trace import generator
from calibrate.models.sampling import Sampling
from specsim.schemes import BigLittle
from tests.support.executions import Model, Tokens
from tests.support.models import VOCABULARY

GREEDY, ORDINARY = Sampling(0.0), Sampling(1.0)
CPU = torch.device("cpu")


def greedy(prompt: Sequence[int], limit: int, *end_of_text: int | None) -> DecodeRequest:
    """A request at temperature 0, where nothing is drawn but what rules toss coins for."""
    ends = frozenset(token for token in end_of_text if token is not None)
    return DecodeRequest(prompt, limit, GREEDY, generator(CPU, 0), ends)


def big_little(
    fallback: float, rollback: float, window: int = 10, rescore: bool = False
) -> BigLittle:
    """BiLD with these thresholds."""
    return BigLittle(
        window, rescore=rescore, fallback_threshold=fallback, rollback_threshold=rollback
    )


def twin(model: CachedModel) -> CachedModel:
    """The same weights with a cache of their own."""
    return CachedModel(model.model)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(2, 64, size=random.integers(1, 9)).tolist() for _ in range(count)]


class TextModel(torch.nn.Module):
    """A model whose distribution is any function of the text; its cache holds the text."""

    def __init__(self, row: Callable[[Tokens], np.ndarray], vocabulary: int) -> None:
        super().__init__()
        self.row = row
        self.somewhere = torch.nn.Parameter(torch.zeros(1))
        self.config = LlamaConfig(
            vocab_size=vocabulary, num_hidden_layers=1, max_position_embeddings=10**6
        )

    def forward(self, input_ids: torch.Tensor, past_key_values: Any, **_: Any) -> Any:
        read = input_ids[:, None, :, None].float()
        text = tuple(past_key_values.update(read, read, 0)[0].long().flatten().tolist())
        ends = range(len(text) - input_ids.shape[1], len(text))
        rows = np.array([self.row(text[: end + 1]) for end in ends])
        return SimpleNamespace(logits=torch.from_numpy(np.log(rows))[None])


class Remembered(torch.nn.Module):
    """A model that reads every text once and remembers what it said, behind every token of it: for
    texts that are read again and again.  Its cache holds the text.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config, self.dtype = model, model.config, model.dtype
        self.said: dict[Tokens, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Any = None,
        use_cache: bool = True,
        logits_to_keep: int = 0,
        output_hidden_states: bool = False,
    ) -> Any:
        if past_key_values is None:  # asked about a whole text
            return self.model(input_ids=input_ids)
        read = input_ids[:, None, :, None].float()
        text = tuple(past_key_values.update(read, read, 0)[0].long().flatten().tolist())
        ends = [text[: end + 1] for end in range(len(text) - input_ids.shape[1], len(text))]
        if not all(end in self.said for end in ends):
            self._say(text, ends)
        logits, states = zip(*(self.said[end] for end in ends), strict=True)
        return SimpleNamespace(
            logits=torch.stack(logits)[None], hidden_states=(torch.stack(states)[None],)
        )

    def _say(self, text: Tokens, ends: Sequence[Tokens]) -> None:
        """One run over a text says what comes behind each of its ends."""
        output = self.model(input_ids=torch.tensor([text]), output_hidden_states=True)
        found = output.logits[0, -len(ends) :], output.hidden_states[-1][0, -len(ends) :]
        for end, *said in zip(ends, *(each.clone() for each in found), strict=True):
            self.said.setdefault(end, (said[0], said[1]))


def remembered(model: CachedModel) -> CachedModel:
    """The same model, much faster where it reads the same texts again and again."""
    return CachedModel(Remembered(model.model), name=model.name)


def coins(text: Tokens) -> np.random.Generator:
    """The same random numbers for the same text, others for any other."""
    return np.random.default_rng([7, *text[-40:], len(text)])


def peak(vocabulary: int, token: int, height: float) -> np.ndarray:
    """A row with one high entry, the others alike."""
    row = np.full(vocabulary, (1 - height) / (vocabulary - 1))
    row[token] = height
    return row


def lawless(vocabulary: int, seed: int, memory: int | None = None, evenness: float = 0.7) -> Model:
    """A different random row for every text, or for all texts with the same last ``memory`` tokens;
    the smaller the evenness, the fewer words have most of a row.
    """

    @cache
    def row(text: Tokens) -> np.ndarray:
        random = np.random.default_rng([seed, *text])
        weights = random.dirichlet(np.full(vocabulary, evenness)) + 1e-6
        return weights / weights.sum()

    return row if memory is None else lambda text: row(text[-memory:])


def forgetful_pair() -> tuple[CachedModel, CachedModel]:
    """A target, and a draft whose rows are half the target's: both look at two tokens, so that
    nothing is worked out twice and long texts cost little.
    """
    own, other = (lawless(VOCABULARY, seed, memory=2, evenness=0.1) for seed in (1, 2))

    @cache
    def between(text: Tokens) -> np.ndarray:
        return 0.5 * own(text) + 0.5 * other(text)

    rows = own, lambda text: between(text[-2:])
    target, draft = (CachedModel(TextModel(row, VOCABULARY)) for row in rows)
    return target, draft


def drawn_from(model: Model, sampling: Sampling) -> Model:
    """The model under temperature and filters."""
    return lambda text: sampling.probabilities(torch.from_numpy(model(text)).log()).double().numpy()


def uncached(model: CachedModel, sampling: Sampling = ORDINARY) -> Model:
    """The model as a function of the whole text, read anew each time, and not counted."""

    @cache
    @torch.inference_mode()
    def row(text: Tokens) -> np.ndarray:
        logits = model.model(input_ids=torch.tensor([text])).logits[0, -1:, : model.vocabulary]
        return sampling.probabilities(logits)[0].numpy()

    return row


def top(weights: np.ndarray) -> int:
    return int(weights.argmax())


def assert_drawn_from(law: Mapping[Tokens, float], seen: Sequence[Tokens], alarm: float) -> None:
    """Chi-square, those with fewer than 5 expected pooled; ``alarm`` is the false-alarm chance."""
    draws = len(seen)
    assert set(seen) <= {outcome for outcome, mass in law.items() if mass > 0}
    expected = np.array([mass * draws for mass in law.values()])
    counted = np.array([sum(each == outcome for each in seen) for outcome in law])
    likely = expected >= 5
    observed = np.append(counted[likely], counted[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum())
    some = expected > 0
    observed, expected = observed[some], expected[some]
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > alarm
