"""Decisions from a profile: its trace replayed exactly, priced with the measured run times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from specsim.acceptance import AcceptanceLaw
from specsim.api.result import Result, Row
from specsim.checks import significant
from specsim.optimizers.workload import Forecast, Workload
from specsim.profiles import read_profile

_LOOKUP = (
    "prompt lookup has no draft runs, so the papers' c is 0 and their formula takes every round to "
    "draft gamma tokens for nothing; the replay drafts what is found and pays for the search"
)

_LONGER = 1.1


@dataclass(frozen=True, kw_only=True)
class ProfileForecast(Result):
    """What one draft length does, or which is best, at every temperature asked for.

    forecasts : one for each temperature
    given : whether the draft length was asked for
    by_lookup : whether prompt lookup drafts
    """

    schema: ClassVar[str] = "specsim.profile-forecast"

    forecasts: tuple[Forecast, ...]
    given: bool = False
    by_lookup: bool = False

    def rows(self) -> list[Row]:
        return [asdict(forecast) for forecast in self.forecasts]

    @property
    def essential(self) -> tuple[str, ...]:
        return (
            *("temperature", "gamma", "speedup", "speedup_low", "speedup_high", "tokens_per_call"),
            *("formula_gamma", "formula_speedup", "formula_best_speedup", "alpha", "c"),
        )

    def sentences(self) -> list[str]:
        chosen = (
            "gamma is the one with the smallest expected regret over what acceptance and run times "
            "leave open; what being the best of several flatters it by is taken off its speedup"
        )
        return [
            *([] if self.given else [chosen]),
            *(_moved(each) for each in self.forecasts if each.gamma),
            "alpha is the mean over the tokens of the trace, at which the papers' formula promises "
            "too much where acceptance differs from place to place; the replay does not use it",
            *([_LOOKUP] if self.by_lookup else []),
        ]


def _moved(forecast: Forecast) -> str:
    """What the speedup is of: on a machine that others use too it does not stay what it was."""
    change = _LONGER**forecast.elasticity - 1
    return (
        f"temperature {forecast.temperature:g}: plain decoding took "
        f"{significant(forecast.plain_ms_per_token, 3)} ms a token in the calibration; where it "
        f"takes {_LONGER - 1:.0%} longer, the speedup is {abs(change):.1%} "
        f"{'higher' if change >= 0 else 'lower'}"
    )


def optimize_profile(
    path: Path, temperature: float | None = None, law: AcceptanceLaw | None = None
) -> ProfileForecast:
    """The draft length that loses least in the mean over all that its costs leave open; 0 is plain
    decoding.

    law : how drafts are accepted; None is as the profile's rates are
    """
    profile = read_profile(path)
    loads = Workload.all_of(profile, path, temperature, law)
    found = [load.forecast(load.best()) for load in loads]
    asked = {"profile": path, "temperature": temperature, "acceptance_law": law}
    doubts = [
        f"temperature {each.temperature:g}: gamma {each.gamma} is the longest of the profile; a "
        "longer one may pay more (calibrate with a larger --gamma-max)"
        for each in found
        if each.at_gamma_max
    ]
    return ProfileForecast(
        forecasts=tuple(found),
        by_lookup=profile.by_lookup,
        inputs=asked,
        warnings=(*doubts, *profile.warnings),
    )


def evaluate_profile(
    path: Path,
    gamma: int,
    temperature: float | None = None,
    law: AcceptanceLaw | None = None,
) -> ProfileForecast:
    """What drafting ``gamma`` tokens per call does; ``law`` as in ``optimize_profile``."""
    profile = read_profile(path)
    loads = Workload.all_of(profile, path, temperature, law)
    found = [load.forecast(load.predict([gamma])[0]) for load in loads]
    asked: Mapping[str, Any] = {
        "profile": path,
        "gamma": gamma,
        "temperature": temperature,
        "acceptance_law": law,
    }
    return ProfileForecast(
        forecasts=tuple(found),
        given=True,
        by_lookup=profile.by_lookup,
        inputs=asked,
        warnings=tuple(profile.warnings),
    )
