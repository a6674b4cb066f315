"""Seconds of a step by a model, in tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from specsim.serving.step_model import QUANTITIES, StepModel
from specsim.serving.step_seconds import step_seconds


def seconds(model: StepModel, eager: bool = False, **quantities: float) -> Mapping[str, float]:
    """Of a step with these quantities, by part."""
    parts = np.zeros(len(model.parts))
    values = np.array([quantities.get(name, 0.0) for name in QUANTITIES])
    step_seconds(model.compiled, values, eager, parts)
    return dict(zip(model.parts, parts.tolist(), strict=True))
