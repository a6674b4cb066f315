"""``specsim.validate``: decode for real and compare with what a profile predicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.api.models import Models, need_torch
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import LeftOut, Row, plain
from specsim.api.validation import (
    AnyCheck,
    BlindCheck,
    CountsCheck,
    EngineCheck,
    SchemeCheck,
    SpeedupCheck,
    SyntheticCheck,
    Tolerance,
    Validation,
)
from specsim.batching.cost import MeasuredLoadCost
from specsim.batching.drawn_cost import DrawnLoadCost
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, refuse
from specsim.counts.file import is_acceptance
from specsim.files import file_digest
from specsim.optimizers.workload import Workload
from specsim.profiles import Profile, read_profile
from specsim.schemes import SCHEMES, scheme_name

if TYPE_CHECKING:
    from calibrate.models.busy import Watch
    from calibrate.validate.findings import Findings

# What is decoded with the draft model itself.
_WITH_DRAFT_MODEL = {
    SchemeCheck: "the check of schemes (--scheme)",
    EngineCheck: "the check of an engine (--engine)",
    SyntheticCheck: "the check of batches (--synthetic)",
}


def validate(
    profile: Path,
    check: AnyCheck | None = None,
    tolerance: Tolerance | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
    trust_remote_code: bool = False,
    progress: Progress = quiet,
) -> Validation:
    """Decode for real with the models of a profile, and compare with what it predicts.

    Predictions come from the profile's traces; run times are measured again meanwhile, since
    machines drift.  A run that was killed goes on where it was when it is started again with the
    same arguments.

    profile : of ``specsim.calibrate``, or an acceptance file of ``specsim.read``, of which each
        draft length is predicted from the others and nothing is decoded (``CountsCheck``)
    check : what to decode: ``SpeedupCheck`` (every draft length side by side, the default),
        ``BlindCheck`` (every decoder alone, against a prediction fixed before), ``SchemeCheck``
        (the decoders of all papers), ``SyntheticCheck`` (batches at a synthetic acceptance) or
        ``EngineCheck`` (what an inference engine counts)
    tolerance : how far off the speedups may be; None is no further than the intervals of both
        explain
    device, threads : None is where the profile was measured
    """
    path = Path(profile)
    if is_acceptance(path):
        return _counts(path, check or CountsCheck(), tolerance, device=device, threads=threads)
    check = check or SpeedupCheck()
    if isinstance(check, CountsCheck):
        raise InvalidArgumentError(f"{path} is no acceptance file, which a CountsCheck is of")
    need_torch()
    content = read_profile(path)
    if not isinstance(check, SpeedupCheck | BlindCheck):
        content.require_draft_model(_WITH_DRAFT_MODEL[type(check)])
    models = Models.of(content, device, threads, trust_remote_code)
    asked = _Asked(path, content, models, tolerance or check.tolerance, progress)
    if isinstance(check, SpeedupCheck):
        return _speedups(asked, check)
    if isinstance(check, BlindCheck):
        return _blind(asked, check)
    if isinstance(check, SchemeCheck):
        return _schemes(asked, check)
    if isinstance(check, EngineCheck):
        return _engine(asked, check)
    return _synthetic(asked, check)


def _counts(
    path: Path, check: AnyCheck, tolerance: Tolerance | None, **place: object
) -> Validation:
    refuse(place, f"has no meaning with {path}: no model is run")
    if not isinstance(check, CountsCheck):
        raise InvalidArgumentError(
            f"{path} is an acceptance file: it names no models, so nothing can be decoded; its "
            "check is a CountsCheck"
        )
    from specsim.api.validate_counts import validate_counts

    return validate_counts(path, check, tolerance)


@dataclass(frozen=True)
class _Asked:
    """What is validated, whatever the check."""

    path: Path
    profile: Profile
    models: Models
    tolerance: Tolerance | None
    progress: Progress

    def checkpoint(self, check: AnyCheck, *more: object) -> Checkpoint:
        """Found again by a run on the same profile, asked for the same; ``more`` as JSON."""
        asked = plain(check), plain(self.models)
        return Checkpoint.temporary("validate", file_digest(self.path), *asked, *more)

    def begin(self, check: AnyCheck, *more: object) -> _Run:
        """A run of the same whose run times count, so that the machine is watched meanwhile."""
        from calibrate.models.busy import Watch

        checkpoint = self.checkpoint(check, *more)
        resumed = _resumed(checkpoint)
        # An accelerator's models keep one core of the host at work.
        threads = self.models.threads if self.models.device == "cpu" else None
        return _Run(checkpoint, Watch(checkpoint, self.progress, threads or 1), resumed)

    def result(
        self,
        check: AnyCheck,
        rows: list[Row],
        findings: Findings,
        warnings: tuple[str, ...],
        left_out: tuple[LeftOut, ...] = (),
    ) -> Validation:
        return Validation(
            check=check,
            measured=tuple(rows),
            errors=findings.errors,
            failures=findings.failures,
            inputs={
                "profile": str(self.path),
                "check": check,
                "models": self.models,
                "tolerance": self.tolerance,
            },
            warnings=(*self.profile.warnings, *warnings),
            left_out=left_out,
        )


@dataclass(frozen=True)
class _Run:
    """What is done so far, and what other programs use of the machine."""

    checkpoint: Checkpoint
    watch: Watch
    resumed: tuple[str, ...]

    def done(self) -> tuple[str, ...]:
        """Remove what was kept; the warnings of the run."""
        found = (*self.resumed, *self.watch.warnings())
        self.checkpoint.done()
        return found


def _resumed(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The warning that not all of it is decoded now, if that is so."""
    if not checkpoint.begun:
        return ()
    return (f"went on with what was decoded before, in {checkpoint.folder}",)


def _speedups(asked: _Asked, check: SpeedupCheck) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = _gammas(check.gamma, profile.gamma_max)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.validate import speedups
    from calibrate.validate.findings import speedup_findings

    pair = load_measured_pair(profile, device, dtype, asked.models.trust_remote_code)
    checked = [
        speedups.CheckedPrompts.find(
            workload, name == "calibration", check.prompts, pair.target.tokenizer, check.requests
        )
        for workload in workloads
        for name in ((check.only,) if check.only else ("calibration", "unseen"))
    ]
    prompts = [each.prompts for each in checked]
    run = asked.begin(check, prompts)
    advance = steps(run.watch.progress, "decoding", sum(map(len, prompts)))
    rows = speedups.validate(profile, pair, checked, gammas, check.seed, run.checkpoint, advance)
    return asked.result(check, rows, speedup_findings(rows, asked.tolerance), run.done())


def _blind(asked: _Asked, check: BlindCheck) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = _gammas(check.gamma, profile.gamma_max)
    from specsim.predict.prediction_file import fixed

    predictions, file = fixed(asked.path, check.requests)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.validate.blind import turns, validate_blind
    from calibrate.validate.findings import blind_findings
    from calibrate.validate.speedups import CheckedPrompts

    pair = load_measured_pair(profile, device, dtype, asked.models.trust_remote_code)
    tokenizer = pair.target.tokenizer
    checked = [
        CheckedPrompts.find(workload, True, check.prompts, tokenizer, workload.measured.requests)
        for workload in workloads
    ]
    run = asked.begin(check, file_digest(file))
    fixed_before = (
        f"predicted {predictions.created}, before decoding, in {file} "
        f"(sha256 {file_digest(file)[:12]})"
    )
    total = check.passes * len(turns(checked, gammas, check.requests, 0, check.seed))
    advance = steps(run.watch.progress, "decoding", total)
    rows = validate_blind(
        pair,
        checked,
        predictions.by_temperature(),
        gammas,
        check.requests,
        check.passes,
        check.seed,
        run.checkpoint,
        advance,
    )
    warnings = (fixed_before, *run.done())
    return asked.result(check, rows, blind_findings(rows, asked.tolerance), warnings)


def _schemes(asked: _Asked, check: SchemeCheck) -> Validation:
    _known("schemes", check.schemes, ["all", *SCHEMES])
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.models.pool import ROLES, load_pool
    from calibrate.validate.catalogue import settings
    from calibrate.validate.findings import scheme_findings
    from calibrate.validate.schemes import validate_schemes
    from calibrate.validate.speedups import CheckedPrompts

    _known("others", check.others, ROLES)
    pair = load_measured_pair(profile, device, dtype, asked.models.trust_remote_code)
    pool = load_pool(pair, check.others, asked.models.trust_remote_code)
    checked = []
    missing: dict[str, LeftOut] = {}
    for workload in workloads:
        found = CheckedPrompts.find(
            workload, True, check.prompts, pair.target.tokenizer, check.requests
        )
        listed = settings(found.sampling)
        chosen = [s for s in listed if {"all", scheme_name(s)} & set(check.schemes)]
        for scheme, reason in [(each, pool.why_not(each)) for each in chosen]:
            if reason is not None:
                missing[scheme_name(scheme)] = LeftOut(scheme_name(scheme), reason)
                chosen.remove(scheme)
        for name in sorted({name for each in chosen for name in each.models} - pool.names):
            missing[name] = LeftOut(f"what needs {name}", "no such model; name one in others")
        checked.append((found, [s for s in chosen if pool.names.issuperset(s.models)]))
    if not any(chosen for _, chosen in checked):
        raise InvalidArgumentError(
            f"schemes {', '.join(check.schemes)}: nothing of it runs at these temperatures with "
            "the models at hand; name more in others"
        )
    contexts = sorted({row.context for row in profile.run_times})
    run = asked.begin(check, dict(pool.digests))
    decoded = sum(len(each.prompts) for each, _ in checked)
    advance = {
        "predicting": steps(run.watch.progress, "predicting", sum(len(c) for _, c in checked)),
        "decoding": steps(run.watch.progress, "decoding", decoded),
    }
    rows = validate_schemes(
        pool,
        checked,
        contexts,
        pair.target.end_of_text,
        check.seed,
        run.checkpoint,
        advance=lambda stage: advance[stage](),
    )
    findings = scheme_findings(rows, asked.tolerance)
    return asked.result(check, rows, findings, run.done(), tuple(missing.values()))


def _engine(asked: _Asked, check: EngineCheck) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = _gammas(check.gamma, profile.gamma_max)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.validate import engine
    from calibrate.validate.findings import engine_findings
    from calibrate.validate.speedups import CheckedPrompts

    pair = load_measured_pair(profile, device, dtype, asked.models.trust_remote_code)
    pair.target.require_causal(check.engine)
    checked = [
        CheckedPrompts.find(each, True, check.prompts, pair.target.tokenizer, check.requests)
        for each in workloads
    ]
    servers = engine.Servers.of(profile, check, gammas)
    requests = [engine.Asked.of(each, max(servers.gammas)) for each in checked]
    decoded = len(servers.gammas) * sum(len(each.prompts) for each in requests)
    checkpoint = asked.checkpoint(check)
    warnings = _resumed(checkpoint)
    advance = steps(asked.progress, "decoding", decoded)
    rows = engine.validate(pair, servers, requests, check, checkpoint, advance)
    checkpoint.done()
    left_out = tuple(each.left_out for each in requests if each.left_out is not None)
    return asked.result(check, rows, engine_findings(rows), warnings, left_out)


def _synthetic(asked: _Asked, check: SyntheticCheck) -> Validation:
    source = Source(check.alpha, None, asked.path, check.temperature, check.mode)
    grids = [_Grid.of(asked.profile, workload, check) for workload in source.workloads()]
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured
    from calibrate.validate.batching import validate_cell
    from calibrate.validate.findings import synthetic_findings

    trusted = asked.models.trust_remote_code
    target, draft = load_measured(asked.profile, device, dtype, trusted)
    run = asked.begin(check)
    advance = steps(run.watch.progress, "decoding", sum(len(grid.cells) for grid in grids))
    rows: list[Row] = []
    for grid in grids:
        for batch, context in grid.cells:
            rows += validate_cell(
                target,
                draft,
                batch,
                context,
                grid.gammas,
                grid.workload.survival.tolist(),
                grid.workload.temperature or 0.0,
                check.rounds,
                grid.cost,
                grid.workload.basis.error(batch, context),
                check.seed,
                run.checkpoint,
            )
            advance()
    return asked.result(check, rows, synthetic_findings(rows, asked.tolerance), run.done())


@dataclass(frozen=True)
class _Grid:
    """What is decoded of one workload: draft lengths, and batch and context of each cell."""

    workload: BatchWorkload
    cost: DrawnLoadCost
    gammas: tuple[int, ...]
    cells: list[tuple[int, int]]

    @staticmethod
    def of(profile: Profile, workload: BatchWorkload, check: SyntheticCheck) -> _Grid:
        from calibrate.measure.grid import room

        assert isinstance(workload.cost, MeasuredLoadCost)
        cost = DrawnLoadCost.of(profile, workload.temperature or 0.0, workload.cost.mode)
        assert workload.context is not None, "a profile says what its models can read"
        gammas = _gammas(check.gamma, workload.gamma_max)
        most = workload.context - room(max(gammas))
        contexts = sorted(set(workload.contexts(check.context)))
        if contexts[-1] > most:
            raise InvalidArgumentError(
                f"context must be <= {most} with these models, got {contexts[-1]}"
            )
        batches = sorted(set(workload.batches(check.batch)))
        cells = [(batch, context) for context in contexts for batch in batches]
        return _Grid(workload, cost, gammas, cells)


def _gammas(asked: tuple[int, ...] | None, longest: int) -> tuple[int, ...]:
    gammas = asked or tuple(range(1, longest + 1))
    if max(gammas) > longest:
        raise InvalidArgumentError(
            f"gamma must be in [1, {longest}] with this profile, got {max(gammas)}"
        )
    return gammas


def _known(name: str, asked: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise InvalidArgumentError(
            f"{name} must be of {', '.join(known)}, got {', '.join(unknown)}"
        )
