"""``specsim.validate``: decode for real and compare with what a profile predicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specsim.api.checked_profile import CheckedProfile, draft_lengths, resumed_warnings
from specsim.api.models import Models, need_torch
from specsim.api.not_compared import not_compared
from specsim.api.progress import Progress, quiet, steps
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
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, refuse
from specsim.counts.file import is_acceptance
from specsim.files import file_digest
from specsim.optimizers.workload import Workload
from specsim.profiles import read_profile

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
    more_time: Callable[[], bool] = lambda: True,
    progress: Progress = quiet,
) -> Validation:
    """Decode for real with the models of a profile, and compare with what it predicts.

    Predictions come from the profile's traces.  Of decoders that go side by side run times are
    measured again meanwhile, since machines drift, where every run is waited for (on a CPU).  A run
    that was killed goes on where it was when it is started again with the same arguments.

    profile : of ``specsim.calibrate``, or an acceptance file of ``specsim.read``, of which each
        draft length is predicted from the others and nothing is decoded (``CountsCheck``)
    check : what to decode: ``SpeedupCheck`` (every draft length side by side, the default),
        ``BlindCheck`` (every decoder alone, against a prediction fixed before), ``SchemeCheck``
        (the decoders of all papers), ``SyntheticCheck`` (batches at a synthetic acceptance) or
        ``EngineCheck`` (what an inference engine counts)
    tolerance : how far off the speedups may be; None is no further than the intervals of both
        explain
    device, threads : None is where the profile was measured
    more_time : of a ``BlindCheck``, whether another request may be decoded; the answer is then of
        the passes that are whole, two at least
    """
    path = Path(profile)
    if is_acceptance(path):
        place = {"device": device, "threads": threads}
        trusted = trust_remote_code or None
        return _counts(path, check or CountsCheck(), tolerance, **place, trust_remote_code=trusted)
    check = check or SpeedupCheck()
    if isinstance(check, CountsCheck):
        raise InvalidArgumentError(f"{path} is no acceptance file, which a CountsCheck is of")
    need_torch()
    content = read_profile(path)
    if not isinstance(check, SpeedupCheck | BlindCheck):
        content.require_draft_model(_WITH_DRAFT_MODEL[type(check)])
    models = Models.of(content, device, threads, trust_remote_code)
    asked = CheckedProfile(path, content, models, tolerance or check.tolerance, progress)
    if isinstance(check, SpeedupCheck):
        return _speedups(asked, check)
    if isinstance(check, BlindCheck):
        return _blind(asked, check, more_time)
    if isinstance(check, EngineCheck):
        refuse({"tolerance": tolerance}, "is of speedups, and an engine's counts have none")
        return _engine(asked, check)
    if isinstance(check, SchemeCheck):
        from specsim.api.validate_schemes import validate_schemes

        return validate_schemes(asked, check)
    from specsim.api.validate_batches import validate_batches

    return validate_batches(asked, check)


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


def _speedups(asked: CheckedProfile, check: SpeedupCheck) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = draft_lengths(check.gamma, profile.gamma_max)
    # A decoder never drafts as many tokens as it may write, so that such a block is never timed.
    limit = min(each.measured.max_new_tokens for each in workloads)
    integer("max_new_tokens of the profile", limit, low=2)
    integer("gamma", min(gammas), low=1, high=limit - 1)
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
    warnings = (*run.done(), *not_compared(profile, workloads))
    return asked.result(check, rows, speedup_findings(rows, asked.tolerance), warnings)


def _blind(asked: CheckedProfile, check: BlindCheck, more_time: Callable[[], bool]) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = draft_lengths(check.gamma, profile.gamma_max)
    from specsim.predict.prediction_file import fixed

    predictions, file = fixed(asked.path, check.requests)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.validate.blind import compare_passes, decode_passes, turns
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
    decoded = decode_passes(
        *(pair, checked, gammas, check.requests, check.passes, check.seed, run.checkpoint),
        advance=advance,
        more_time=more_time,
    )
    rows = compare_passes(checked, predictions.by_temperature(), gammas, decoded)
    warnings = (fixed_before, *run.done(), *not_compared(profile, workloads))
    return asked.result(check, rows, blind_findings(rows, asked.tolerance), warnings)


def _engine(asked: CheckedProfile, check: EngineCheck) -> Validation:
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    gammas = draft_lengths(check.gamma, profile.gamma_max)
    temperatures = [each.measured.sampling.temperature for each in workloads]
    if check.method == "ngram" and any(temperatures):
        raise UnsupportedError(
            "temperature must be 0 with method ngram, where the trace says what the engine writes "
            f"behind the end of a text, got {', '.join(f'{each:g}' for each in temperatures)}"
        )
    device, dtype = asked.models.place()
    from calibrate.engine.server import engine_told_apart_by, find_program
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
    # What an engine counted before a kill is not of another one.
    here = engine_told_apart_by(find_program(check.engine_bin)) if check.url is None else []
    checkpoint = asked.checkpoint(check, here)
    warnings = resumed_warnings(checkpoint)
    advance = steps(asked.progress, "decoding", decoded)
    rows = engine.validate(pair, servers, requests, check, checkpoint, advance)
    checkpoint.done()
    left_out = tuple(each.left_out for each in requests if each.left_out is not None)
    return asked.result(check, rows, engine_findings(rows), warnings, left_out)
