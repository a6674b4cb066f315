"""``specsim.validate`` with a ``SchemeCheck``: the decoders of all papers."""

from __future__ import annotations

from collections.abc import Iterable

from specsim.api.checked_profile import CheckedProfile
from specsim.api.not_compared import not_compared
from specsim.api.progress import steps
from specsim.api.result import LeftOut
from specsim.api.validation import SchemeCheck, Validation
from specsim.checks import InvalidArgumentError
from specsim.optimizers.workload import Workload
from specsim.schemes import SCHEMES, scheme_name


def validate_schemes(asked: CheckedProfile, check: SchemeCheck) -> Validation:
    """Every setting of the schemes that the models at hand can run, decoded and predicted."""
    _known("schemes", check.schemes, ["all", *SCHEMES])
    profile = asked.profile
    workloads = Workload.all_of(profile, asked.path, check.temperature)
    device, dtype = asked.models.place()
    from calibrate.models.load import load_measured_pair
    from calibrate.models.pool import ROLES, load_pool
    from calibrate.validate.catalogue import settings
    from calibrate.validate.findings import scheme_findings
    from calibrate.validate.schemes import timed_prompts
    from calibrate.validate.schemes import validate_schemes as decode_schemes
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
        for name in sorted(set(check.schemes) - {"all"} - {scheme_name(s) for s in listed}):
            why = f"no setting of it is decoded at temperature {found.sampling.temperature:g}"
            missing[f"{name} {found.sampling.temperature:g}"] = LeftOut(name, why)
        for scheme, reason in [(each, pool.why_not(each)) for each in chosen]:
            if reason is not None:
                missing[scheme_name(scheme)] = LeftOut(scheme_name(scheme), reason)
                chosen.remove(scheme)
        for name in sorted({name for each in chosen for name in each.models} - pool.names):
            missing[name] = LeftOut(f"what needs {name}", "no such model; name one in others")
        if runs := [s for s in chosen if pool.names.issuperset(s.models)]:
            checked.append((found, runs))
    if not checked:
        reasons = "; ".join(dict.fromkeys(f"{each.what}: {each.why}" for each in missing.values()))
        raise InvalidArgumentError(
            f"schemes {', '.join(check.schemes)}: nothing of it runs at these temperatures with "
            f"the models at hand ({reasons})"
        )
    run = asked.begin(check, dict(pool.digests))
    decoded = sum(len(each.prompts) + len(timed_prompts(each)) for each, _ in checked)
    advance = {
        "predicting": steps(run.watch.progress, "predicting", sum(len(c) for _, c in checked)),
        "decoding": steps(run.watch.progress, "decoding", decoded),
    }
    rows = decode_schemes(
        pool,
        checked,
        pair.target.end_of_text,
        check.seed,
        run.checkpoint,
        advance=lambda stage: advance[stage](),
    )
    findings = scheme_findings(rows, asked.tolerance)
    warnings = (*run.done(), *not_compared(profile, workloads))
    return asked.result(check, rows, findings, warnings, tuple(missing.values()))


def _known(name: str, asked: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise InvalidArgumentError(
            f"{name} must be of {', '.join(known)}, got {', '.join(unknown)}"
        )
