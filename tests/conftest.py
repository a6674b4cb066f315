"""Models small enough to build in a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.support.models import build_model

# A busy machine is no failure, and the same examples come on every run.
settings.register_profile("specsim", deadline=None, derandomize=True)
# Few of them, for mutants: the smallest that fails matters to nobody (tests/support/mutants).
settings.register_profile(
    "mutants",
    settings.get_profile("specsim"),
    max_examples=15,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("specsim")


@pytest.fixture(scope="session")
def tiny_family(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a draft that often agrees (the target with small noise) and an unrelated one."""
    import torch
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("models")
    target = build_model(root / "target", layers=2, width=32, seed=1)
    draft = build_model(root / "draft", layers=2, width=32, seed=1)
    noisy = AutoModelForCausalLM.from_pretrained(draft)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter.add_(0.06 * torch.randn_like(parameter))
    noisy.save_pretrained(draft)
    stranger = build_model(root / "stranger", layers=1, width=16, seed=3)
    return {"target": target, "draft": draft, "stranger": stranger}
