"""The columns of a trace, from logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrate.measure.trace import in_slices, ranks, statistics
from calibrate.models.sampling import Sampling


def test_ranks_against_a_sorted_list_ties_included() -> None:
    """The slow twin: the argmax first, then by falling logit, equal ones by rising id."""
    random = np.random.default_rng(4)
    for dtype in (torch.float32, torch.bfloat16):
        # Few different values, so that most rows have ties, also at the top.
        logits = torch.from_numpy(random.integers(0, 4, (200, 6)) / 3.0).to(dtype)
        tokens = torch.from_numpy(random.integers(0, 6, 200))
        found = ranks(logits, tokens).tolist()
        for row, token, rank in zip(logits, tokens.tolist(), found, strict=True):
            top = int(row.argmax())
            order = sorted(range(6), key=lambda v: (v != top, -float(row[v]), v))
            assert order.index(token) + 1 == rank


def test_columns_of_some_rows_at_a_time_are_those_of_all() -> None:
    random = torch.Generator().manual_seed(2)
    target, draft = (torch.randn((150, 40), generator=random) for _ in range(2))
    tokens = torch.randint(40, (150,), generator=random)
    for sampling in (Sampling(0.0), Sampling(0.7, top_k=5)):

        def columns(rows: slice, sampling: Sampling = sampling) -> dict[str, np.ndarray]:
            return statistics(target[rows], draft[rows], tokens[rows], sampling)

        whole, found = columns(slice(None)), in_slices(150, columns)
        assert found.keys() == whole.keys()
        for name, column in whole.items():
            np.testing.assert_allclose(found[name], column, rtol=1e-6)
            assert found[name].dtype == column.dtype


def test_the_argmax_has_rank_one_wherever_it_is_among_equals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch promises the first of equals; a device that picks another is followed."""
    logits = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).expand(4, 4)
    usual = ranks(logits, torch.arange(4)).tolist()
    assert usual == [1, 2, 3, 4]
    argmax = torch.full((4, 1), 2)
    monkeypatch.setattr(torch.Tensor, "argmax", lambda *_, **__: argmax)
    assert ranks(logits, torch.arange(4)).tolist() == [2, 3, 1, 4]


def test_ranks_are_clipped_and_blind_to_temperature_and_filters() -> None:
    logits = torch.linspace(0, 3, 300)[None].expand(3, 300)
    tokens = torch.tensor([299, 298, 0])
    for sampling in (Sampling(0.0), Sampling(1.0), Sampling(0.3, top_k=2), Sampling(1, top_p=0.5)):
        column = statistics(logits, logits, tokens, sampling)["draft_rank"]
        assert column.dtype == np.uint8
        assert column.tolist() == [1, 2, 255]


def test_beta_is_the_overlap() -> None:
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.2, 0.6]])
    columns = statistics(p.log(), q.log(), torch.tensor([2]), Sampling(1.0))
    assert columns["beta"] == pytest.approx([0.2 + 0.2 + 0.2])
    assert columns["draft_rank"].tolist() == [1]
