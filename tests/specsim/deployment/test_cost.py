"""Rounds of a deployment, against the sum of their runs written out."""

from __future__ import annotations

import pytest

from specsim import DraftModel, deploy, hardware
from specsim.batching.cost import CellUnavailableError
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafters import DRAFTERS, drafter

TARGET = "llama-3.1-8b"


def cost(words: str, longest: int = 9, **more: object) -> DeployedCost:
    deployed = deploy(TARGET, "H100-SXM", words, **more)  # type: ignore[arg-type]
    return DeployedCost(deployed, deployed.drafters[0], longest)


def seconds(shape: hardware.Shape, tokens: int, batch: int, context: int, logits: int) -> float:
    card = hardware.accelerator("H100-SXM")
    return hardware.roofline(shape, card, tokens, batch, context, logits=logits).seconds


def test_a_draft_model_runs_once_a_token() -> None:
    found, draft = cost("draft_model:llama-3.2-1b"), hardware.shape("llama-3.2-1b")
    first = seconds(draft, 5, 16, 100, 1)
    later = seconds(draft, 1, 16, 102, 1)
    assert found.draft_s(4, 16, 100, 0.3) == pytest.approx(first + 3 * later, rel=1e-12)
    target = seconds(hardware.shape(TARGET), 5, 16, 100, 5)
    assert found.verify_s(4, 16, 100) == pytest.approx(target, rel=1e-12)
    # With no drafts the drafter still reads what was decoded.
    assert found.loaded_s(16, 100) == pytest.approx(seconds(draft, 1, 16, 100, 1), rel=1e-12)


@pytest.mark.parametrize(("words", "runs"), [("medusa", 1), ("parallel", 1), ("ngram", 0)])
def test_runs_of_a_round(words: str, runs: int) -> None:
    found = cost(words)
    assert sum(each.count for each in found.draft_runs(4, 8, 100)) == runs
    assert DRAFTERS[words]().runs(4) == runs  # type: ignore[call-arg]


def test_rounds_without_a_match_are_plain_steps() -> None:
    never = cost("ngram:match=0,host_us=10")
    assert never.verify_s(5, 8, 100) == never.verify_s(0, 8, 100)
    assert never.draft_s(5, 8, 100, 0.0) == pytest.approx(8 * 10e-6)
    always = cost("ngram")
    assert always.verify_s(5, 8, 100) == cost("eagle").verify_s(5, 8, 100)


def test_caches_of_both_must_fit() -> None:
    found = cost("draft_model:llama-3.2-1b", longest=9)
    memory = found.memory(found.drafter, 4096)
    assert memory.largest_batch < found.memory(None, 4096).largest_batch
    found.verify_s(4, memory.largest_batch, 4096)
    with pytest.raises(CellUnavailableError, match=r"H100-SXM has 80 GiB, of which 70\.0 GiB"):
        found.verify_s(4, memory.largest_batch + 1, 4096)
    found.verify_s(0, memory.largest_batch + 1, 4096)


def test_words_say_what_the_fields_do() -> None:
    assert drafter("draft_model:qwen3-0.6b,alpha=0.5") == DraftModel(model="qwen3-0.6b", alpha=0.5)
    for words in ("eagle3:layers=2,draft_vocab=1000", "suffix:match=0.5,length=3.5", "medusa"):
        assert drafter(words).label == words
