"""Serving under load: requests that arrive over time, the steps of a scheduler, what users see.

``run`` takes requests through one replica of an engine.  Engines, drafts, acceptance and the cost
of a step are frozen descriptions; the loop that interprets them is compiled when it is first used.
"""

from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.adaptive_steps import AdaptiveSteps
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.engines.vllm import VllmEngine
from specsim.serving.requests import Requests
from specsim.serving.result import ServingRun
from specsim.serving.simulation import run
from specsim.serving.step_model import StepModel, StepTerm

__all__ = [
    "AdaptiveSteps",
    "DraftPolicy",
    "Requests",
    "RoundAcceptance",
    "ServingRun",
    "SglangEngine",
    "StepModel",
    "StepTerm",
    "VllmEngine",
    "run",
]
