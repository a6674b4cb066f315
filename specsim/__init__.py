"""specsim: will speculative decoding pay, with which draft, how many tokens, and how sure is that?

The calls behind the commands are here, each from frozen inputs to a frozen result::

    >>> import specsim
    >>> specsim.optimize(alpha=0.8, c=0.05).gamma
    8
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from specsim.api.allocate import allocate as allocate
    from specsim.api.by_load import LoadPlan as LoadPlan
    from specsim.api.by_profile import ProfileForecast as ProfileForecast
    from specsim.api.calibrate import Calibration as Calibration
    from specsim.api.calibrate import calibrate as calibrate
    from specsim.api.compare import compare as compare
    from specsim.api.compare_result import Differences as Differences
    from specsim.api.defer import RuleComparison as RuleComparison
    from specsim.api.defer import defer as defer
    from specsim.api.deploy import deploy as deploy
    from specsim.api.doctor import Installation as Installation
    from specsim.api.doctor import doctor as doctor
    from specsim.api.engine_blind import EngineBlindCheck as EngineBlindCheck
    from specsim.api.engine_blind import EngineVerdict as EngineVerdict
    from specsim.api.engine_blind import validate_engine as validate_engine
    from specsim.api.engine_servers import engine_servers as engine_servers
    from specsim.api.engine_timing import EngineCalibration as EngineCalibration
    from specsim.api.engine_timing import EngineTiming as EngineTiming
    from specsim.api.engine_timing import calibrate_engine as calibrate_engine
    from specsim.api.explain import Explanation as Explanation
    from specsim.api.explain import explain as explain
    from specsim.api.export import EngineConfiguration as EngineConfiguration
    from specsim.api.export import export as export
    from specsim.api.models import Batches as Batches
    from specsim.api.models import Measurement as Measurement
    from specsim.api.models import Models as Models
    from specsim.api.optimize import evaluate as evaluate
    from specsim.api.optimize import optimize as optimize
    from specsim.api.plan import plan as plan
    from specsim.api.plan_result import CapacityPlan as CapacityPlan
    from specsim.api.read import EngineCounts as EngineCounts
    from specsim.api.read import read as read
    from specsim.api.replay import TraceReplay as TraceReplay
    from specsim.api.replay import replay as replay
    from specsim.api.result import LeftOut as LeftOut
    from specsim.api.result import Result as Result
    from specsim.api.schema import schema as schema
    from specsim.api.schemes import SchemeEvaluation as SchemeEvaluation
    from specsim.api.schemes import SchemeOptimum as SchemeOptimum
    from specsim.api.schemes import SchemeSimulation as SchemeSimulation
    from specsim.api.schemes import simulate as simulate
    from specsim.api.score import Scores as Scores
    from specsim.api.score import score as score
    from specsim.api.serve import serve as serve
    from specsim.api.serving_result import Serving as Serving
    from specsim.api.serving_verdict import ServingVerdict as ServingVerdict
    from specsim.api.sweep import SettingsSweep as SettingsSweep
    from specsim.api.sweep import sweep as sweep
    from specsim.api.validate import validate as validate
    from specsim.api.validate_serving import validate_serving as validate_serving
    from specsim.api.validation import BlindCheck as BlindCheck
    from specsim.api.validation import CountsCheck as CountsCheck
    from specsim.api.validation import EngineCheck as EngineCheck
    from specsim.api.validation import SchemeCheck as SchemeCheck
    from specsim.api.validation import SpeedupCheck as SpeedupCheck
    from specsim.api.validation import SyntheticCheck as SyntheticCheck
    from specsim.api.validation import Tolerance as Tolerance
    from specsim.api.validation import Validation as Validation
    from specsim.api.workload import workload as workload
    from specsim.api.workload_result import WorkloadFigures as WorkloadFigures
    from specsim.api.workload_result import describe_workload as describe_workload
    from specsim.batching.workload import Load as Load
    from specsim.deployment.deployment import Deployment as Deployment
    from specsim.deployment.deployment import HostTime as HostTime
    from specsim.deployment.drafters import DraftModel as DraftModel
    from specsim.deployment.drafters import Eagle as Eagle
    from specsim.deployment.drafters import Eagle3 as Eagle3
    from specsim.deployment.drafters import Medusa as Medusa
    from specsim.deployment.drafters import Mtp as Mtp
    from specsim.deployment.drafters import Ngram as Ngram
    from specsim.deployment.drafters import Parallel as Parallel
    from specsim.deployment.drafters import Suffix as Suffix
    from specsim.extrapolation import Conditional as Conditional
    from specsim.extrapolation import Extrapolation as Extrapolation
    from specsim.extrapolation import GapLaw as GapLaw
    from specsim.extrapolation import Marginal as Marginal
    from specsim.extrapolation import acceptance_from_counts as acceptance_from_counts
    from specsim.extrapolation import extrapolate as extrapolate
    from specsim.hardware.parallel import Parallelism as Parallelism
    from specsim.hardware.roofline import Efficiency as Efficiency
    from specsim.optimizers.allocation import Allocation as Allocation
    from specsim.optimizers.allocation import PricedDrafter as PricedDrafter
    from specsim.optimizers.evaluation import Evaluation as Evaluation
    from specsim.report.page.write import write_page as write_page

# Where each public name lives.  It is imported when it is first asked for, so that
# ``import specsim`` costs next to nothing; the imports above say the same to type checkers.
_HOMES = {
    "specsim.api.allocate": ["allocate"],
    "specsim.api.by_load": ["LoadPlan"],
    "specsim.api.by_profile": ["ProfileForecast"],
    "specsim.api.calibrate": ["Calibration", "calibrate"],
    "specsim.api.compare": ["compare"],
    "specsim.api.compare_result": ["Differences"],
    "specsim.api.defer": ["RuleComparison", "defer"],
    "specsim.api.deploy": ["deploy"],
    "specsim.api.doctor": ["Installation", "doctor"],
    "specsim.api.engine_blind": ["EngineBlindCheck", "EngineVerdict", "validate_engine"],
    "specsim.api.engine_servers": ["engine_servers"],
    "specsim.api.engine_timing": ["EngineCalibration", "EngineTiming", "calibrate_engine"],
    "specsim.api.explain": ["Explanation", "explain"],
    "specsim.api.export": ["EngineConfiguration", "export"],
    "specsim.api.models": ["Batches", "Measurement", "Models"],
    "specsim.api.optimize": ["evaluate", "optimize"],
    "specsim.api.plan": ["plan"],
    "specsim.api.plan_result": ["CapacityPlan"],
    "specsim.api.read": ["EngineCounts", "read"],
    "specsim.api.replay": ["TraceReplay", "replay"],
    "specsim.api.result": ["LeftOut", "Result"],
    "specsim.api.schema": ["schema"],
    "specsim.api.schemes": ["SchemeEvaluation", "SchemeOptimum", "SchemeSimulation", "simulate"],
    "specsim.api.score": ["Scores", "score"],
    "specsim.api.serve": ["serve"],
    "specsim.api.serving_result": ["Serving"],
    "specsim.api.serving_verdict": ["ServingVerdict"],
    "specsim.api.sweep": ["SettingsSweep", "sweep"],
    "specsim.api.validate": ["validate"],
    "specsim.api.validate_serving": ["validate_serving"],
    "specsim.api.validation": [
        "BlindCheck",
        "CountsCheck",
        "EngineCheck",
        "SchemeCheck",
        "SpeedupCheck",
        "SyntheticCheck",
        "Tolerance",
        "Validation",
    ],
    "specsim.api.workload": ["workload"],
    "specsim.api.workload_result": ["WorkloadFigures", "describe_workload"],
    "specsim.batching.workload": ["Load"],
    "specsim.deployment.deployment": ["Deployment", "HostTime"],
    "specsim.deployment.drafters": [
        "DraftModel",
        "Eagle",
        "Eagle3",
        "Medusa",
        "Mtp",
        "Ngram",
        "Parallel",
        "Suffix",
    ],
    "specsim.extrapolation": [
        "Conditional",
        "Extrapolation",
        "GapLaw",
        "Marginal",
        "acceptance_from_counts",
        "extrapolate",
    ],
    "specsim.hardware.parallel": ["Parallelism"],
    "specsim.hardware.roofline": ["Efficiency"],
    "specsim.optimizers.allocation": ["Allocation", "PricedDrafter"],
    "specsim.optimizers.evaluation": ["Evaluation"],
    "specsim.report.page.write": ["write_page"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'specsim' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
