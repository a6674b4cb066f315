"""Where everything is kept that was measured of an engine under load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import specsim
from specsim.api.engine_question import engine_file
from studies.serving import settings
from studies.serving.settings import Setting

# What is timed of the engine beforehand, on servers that are started alike.
_TIMING = specsim.EngineTiming(gamma=settings.GAMMAS, repeats=10, engine_args=settings.ENGINE_ARGS)


@dataclass(frozen=True)
class LoadFiles:
    """Beside a profile.

    profile : acceptance of the pair of models
    """

    profile: Path

    @property
    def prompts(self) -> Path:
        """Texts that the profile was calibrated with; none where it is another's."""
        return self.profile.with_name(f"{self.profile.stem}.prompts.jsonl")

    @property
    def timing(self) -> specsim.EngineTiming:
        """What is timed of the engine."""
        return replace(_TIMING, prompts=self.prompts if self.prompts.is_file() else None)

    @property
    def timed(self) -> Path:
        """Steps and prompts of the engine."""
        return engine_file(self.profile, _TIMING)

    @property
    def folder(self) -> Path:
        return self.profile.with_name(f"{self.profile.stem}.serving")

    @property
    def requests(self) -> Path:
        """Texts and lengths."""
        return self.folder / "requests.jsonl"

    @property
    def load(self) -> Path:
        """Rates, and what they rest on."""
        return self.folder / "load.json"

    def run(self, setting: Setting, number: int) -> Path:
        """What the benchmark saw of a setting in the pass of this number."""
        return self.folder / "runs" / f"{setting.name}-{number}.json"

    def runs(self, setting: Setting) -> list[Path]:
        """Of every pass that was measured."""
        every = [self.run(setting, number) for number in range(settings.PASSES)]
        return [each for each in every if each.is_file()]
