"""``specsim.calibrate``: measure a pair of models and write a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from specsim.api.by_profile import ProfileForecast, optimize_profile
from specsim.api.models import Batches, Measurement, Models
from specsim.api.progress import Progress, quiet
from specsim.api.result import LeftOut, Result, Row
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, refuse
from specsim.files import check_replaceable
from specsim.hardware.run_time_error import fit_rows
from specsim.profiles import Profile

if TYPE_CHECKING:
    from calibrate.measure.calibration import Settings
    from calibrate.measure.grid import GridSettings
    from calibrate.models.load import Pair


_NO_BATCHES = (
    "batches are measured with causal models only: an encoder-decoder pair is calibrated without "
    "them (no --batch, no --cost-only)"
)


@dataclass(frozen=True, kw_only=True)
class Calibration(Result):
    """What was measured: a profile, and what it says at first sight.

    path : where the profile was written; its traces lie beside it
    best : what ``specsim.optimize(profile=path)`` says; None where only costs were measured, and
        the rows are how far off the fit of run times is
    """

    schema: ClassVar[str] = "specsim.calibrate"

    path: Path
    profile: Profile
    best: ProfileForecast | None

    def rows(self) -> list[Row]:
        return self._fits if self.best is None else self.best.rows()

    @cached_property
    def _fits(self) -> list[Row]:
        return fit_rows(self.profile)

    @property
    def essential(self) -> tuple[str, ...]:
        return () if self.best is None else self.best.essential

    def summary(self) -> Row:
        return {"profile": str(self.path)}


def calibrate(
    out: Path,
    models: Models = Models(),
    measurement: Measurement = Measurement(),
    batches: Batches | None = None,
    *,
    cost_only: bool = False,
    command: str = "specsim.calibrate",
    more_time: Callable[[], bool] = lambda: True,
    progress: Progress = quiet,
) -> Calibration:
    """Measure how often drafts are accepted and what runs cost, and write the profile ``out``.

    Text is drawn from the target, the draft reads it in one pass, and both models' run times are
    measured in the rhythm of real decoding.  With ``prompt-lookup`` as the draft no model drafts:
    drafts are copied from the text, and searching for them is timed instead.  A calibration that
    was killed goes on where it was when it is started again with the same arguments.

    batches : measure run times of whole batches as well, which decisions by load rest on; what
        could not be measured is left out, with its reason
    cost_only : measure those batches (by default the usual ones) and nothing of acceptance; a
        model may then be given by its shape alone.  Of the measurement only temperature, gamma_max,
        repeats and seed mean something
    command : what was typed, for the record
    more_time : with ``cost_only``, whether another batch and context may be begun; those that were
        not are left out, or have fewer repeats, and another call with the same arguments goes on
        with them
    """
    # Traces lie beside the profile itself, wherever a link to it lies.
    out = check_replaceable(Path(out), "out")
    if cost_only or batches:
        models.require_draft_model("the timing of batches (--batch, --cost-only)")
    warnings: list[str] = []
    if cost_only:
        _refuse_beside_costs(measurement)
        asked = batches or Batches()
        profile = _costs(out, models, measurement, asked, command, more_time, progress)
    else:
        for requests in measurement.requests:
            # Intervals are over requests, so one says nothing.
            integer("requests", requests, low=2)
        pair = models.load()
        from calibrate.measure import calibration

        if pair.target.reads_source:
            _check_sources(measurement, batches)
        settings = _settings(pair, measurement, warnings)
        grid = _grid(batches, measurement, pair.context) if batches else None
        profile = calibration.calibrate(pair, settings, out, command, grid, progress)
    from calibrate.measure.grid import UNFINISHED

    warnings += [line for line in profile.notes if line.startswith(UNFINISHED)]
    best = optimize_profile(out) if profile.acceptance else None
    return Calibration(
        path=out,
        profile=profile,
        best=best,
        inputs={
            "models": models,
            "measurement": measurement,
            "batches": batches,
            "cost_only": cost_only,
        },
        warnings=tuple(dict.fromkeys((*warnings, *(best or profile).warnings))),
        left_out=tuple(
            LeftOut(f"batch {cell.batch}, context {cell.context}, {cell.mode}", cell.reason)
            for cell in profile.missing
        ),
    )


def _check_sources(measurement: Measurement, batches: Batches | None) -> None:
    """Refuse what has no meaning for encoder-decoder models, whose prompts are sources."""
    if batches is not None:
        raise UnsupportedError(_NO_BATCHES)
    if measurement.prompts is None:
        raise InvalidArgumentError(
            "prompts must be given with an encoder-decoder model: a file of source texts, one a "
            "line or .jsonl"
        )


def _settings(pair: Pair, measurement: Measurement, warnings: list[str]) -> Settings:
    """The measurement in tokens of the pair; prompts that are lacking or cut are a warning."""
    from calibrate.measure.calibration import Settings
    from calibrate.models.prompts import PromptError, find_prompts
    from calibrate.models.sampling import Sampling

    requests = measurement.requests
    if len(requests) == 1:
        requests = requests * len(measurement.temperature)
    prompts = find_prompts(
        measurement.prompts, pair.target.tokenizer, measurement.prompt_tokens, max(requests)
    )
    if len(prompts) < 2:
        raise PromptError(
            f"prompt file {measurement.prompts} has one prompt, at least two are needed: intervals "
            "are over requests"
        )
    if len(prompts) < max(requests):
        warnings.append(f"only {len(prompts)} prompts for {max(requests)} requests")
    full = sum(len(prompt) == measurement.prompt_tokens for prompt in prompts)
    # Those of the held-out modules are as long as was asked for.
    if measurement.prompts is not None and full:
        what = "sources" if pair.target.reads_source else "prompts"
        warnings.append(
            f"{full} of {len(prompts)} {what} have all of prompt_tokens "
            f"({measurement.prompt_tokens}): longer ones have lost their beginning"
        )
    settings = Settings(
        prompts=tuple(tuple(prompt) for prompt in prompts),
        samplings=tuple(
            Sampling(temperature, measurement.top_k, measurement.top_p)
            for temperature in measurement.temperature
        ),
        requests=tuple(min(count, len(prompts)) for count in requests),
        prompt_tokens=measurement.prompt_tokens,
        max_new_tokens=measurement.max_new_tokens,
        gamma_max=measurement.gamma_max,
        repeats=measurement.repeats,
        seed=measurement.seed,
        acceptance_law=measurement.acceptance_law,
        spread_s=60 * measurement.spread_minutes,
    )
    settings.check_fits(pair.context)
    return settings


def _grid(batches: Batches, measurement: Measurement, longest: int) -> GridSettings:
    """The batches as a grid for models that read up to ``longest`` tokens."""
    from calibrate.measure.grid import GridSettings, usual_contexts

    grid = GridSettings(
        batches=batches.batch,
        contexts=batches.context or usual_contexts(longest, measurement.gamma_max),
        gamma_max=measurement.gamma_max,
        repeats=measurement.repeats,
        temperatures=measurement.temperature,
        modes=batches.modes,
        seed=measurement.seed,
        top_k=measurement.top_k,
        top_p=measurement.top_p,
        acceptance_law=measurement.acceptance_law,
    )
    grid.check_fits(longest)
    return grid


def _refuse_beside_costs(measurement: Measurement) -> None:
    """A profile of costs alone does not say how tokens were drawn and drafts verified, and is of
    one stretch of time.
    """
    law = measurement.acceptance_law
    drawn = {
        "top_k": measurement.top_k,
        "top_p": measurement.top_p,
        "acceptance_law": None if law == Measurement.acceptance_law else law,
        "spread_minutes": measurement.spread_minutes or None,
    }
    refuse(drawn, "does not go with cost_only")


def _costs(
    out: Path,
    models: Models,
    measurement: Measurement,
    batches: Batches,
    command: str,
    more_time: Callable[[], bool],
    progress: Progress,
) -> Profile:
    """The profile of a pair of which each may be a shape."""
    device, dtype = models.place()
    from calibrate.decode.encoder_decoder import is_encoder_decoder
    from calibrate.measure.calibration import calibrate_costs
    from calibrate.models.load import load_or_build

    def load(name: str) -> tuple[Any, Any]:
        return load_or_build(name, device, dtype, models.trust_remote_code)

    target, draft = load(models.target), load(models.draft)
    if any(is_encoder_decoder(model) for model, _ in (target, draft)):
        raise UnsupportedError(_NO_BATCHES)
    models.try_threads(target[0])
    grid = _grid(batches, measurement, min(target[1].context, draft[1].context))
    return calibrate_costs(target, draft, grid, out, command, progress, more_time)
