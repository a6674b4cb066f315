"""Which description belongs to which kind of result."""

from __future__ import annotations

from importlib import import_module

from specsim.api.result import Result
from specsim.report.page.chart import Content
from specsim.report.page.words import sentence

# By the name of a kind of result, the module and the function that describe its page.
DESCRIBED = {
    "LoadPlan": "by_load.load_plan",
    "ProfileForecast": "calibration.profile_forecast",
    "Calibration": "calibration.calibration",
    "EngineCalibration": "calibration.engine_calibration",
    "Validation": "speedups.validation",
    "EngineVerdict": "speedups.engine_verdict",
    "Demonstration": "speedups.demonstration",
    "ServingVerdict": "serving.serving_verdict",
    "RuleComparison": "deferral.rule_comparison",
    "CapacityPlan": "planning.capacity_plan",
    "Serving": "serving.serving",
    "Explanation": "explanation.explanation",
    "Reproduction": "study.reproduction",
    "SettingsSweep": "sweep.settings_sweep",
    "Differences": "comparison.differences",
}


def content_of(result: Result) -> Content:
    """What the page of a result says; of a kind without charts its sentences alone."""
    for kind in type(result).__mro__:
        if kind.__name__ in DESCRIBED:
            module, _, function = DESCRIBED[kind.__name__].partition(".")
            found = getattr(import_module(f"specsim.report.page.{module}"), function)(result)
            assert isinstance(found, Content), "what a page says is a Content"
            return found
    said = [sentence(line) for line in result.sentences()]
    question = result.title or result.schema
    return Content(question, said[0] if said else "", said[1:])
