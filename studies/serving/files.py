"""Where everything is kept that was measured of an engine under load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import specsim
from specsim.api.engine_question import engine_file
from studies.serving import settings
from studies.serving.settings import Setting

# What is timed of the engine before each pass, on servers that are started alike.
_TIMING = specsim.EngineTiming(
    gamma=settings.GAMMAS,
    batch=settings.TIMED_BATCHES,
    repeats=settings.REPEATS,
    sets=settings.TIMED_SETS,
    requests=settings.TIMED_REQUESTS,
    engine_args=settings.ENGINE_ARGS,
)


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

    def timing_before(self, number: int) -> specsim.EngineTiming:
        """The same before the pass of this number, with requests of its own under load."""
        return replace(self.timing, seed=number)

    def timed(self, number: int) -> Path:
        """Steps and prompts of the engine, as timed before the pass of this number."""
        return engine_file(self.profile, _TIMING, f"-{number}")

    @property
    def folder(self) -> Path:
        return self.profile.with_name(f"{self.profile.stem}.serving")

    def requests(self, number: int) -> Path:
        """Texts and lengths of the pass of this number, of which a rate is sent the first ones."""
        return self.folder / f"requests-{number}.jsonl"

    @property
    def load(self) -> Path:
        """Of which engine, and on how many cores."""
        return self.folder / "load.json"

    def run(self, setting: Setting, number: int) -> Path:
        """What the benchmark saw of a setting in the pass of this number."""
        return self.folder / "runs" / f"{setting.name}-{number}.json"

    def passes(self, setting: Setting) -> list[int]:
        """Numbers of those that were measured."""
        return [at for at in range(settings.PASSES) if self.run(setting, at).is_file()]
