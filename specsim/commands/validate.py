"""``specsim validate``: decode for real and compare with the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

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
from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    PATH,
    Integer,
    IntegerRange,
    Number,
    Numbers,
    api_option,
    check_figure,
    drafts_option,
    engine_args_option,
    engine_bin_option,
    figure_option,
    format_option,
    option,
    refuse_given,
    report_option,
    seed_option,
    write_report,
)
from specsim.counts.file import is_acceptance
from specsim.profiles import Mode

Check = TypeVar("Check")
# Options that only one of the checks knows; --scheme and --synthetic choose the others.
_OF_SYNTHETIC = ("batch", "context", "alpha", "mode")
_OF_SPEEDUPS = ("gamma", "only", "blind", "passes")
_OF_TEXT = ("prompts", "only", "blind", "passes")
_OF_ENGINE = (
    *("api", "engine_bin", "drafts", "engine_args"),
    *("url", "method", "lookup_max", "lookup_min"),
)
_OF_SPEED = ("median_tolerance", "tolerance", "only", "blind", "passes")
# What decodes has options that have no meaning for an acceptance file.
_OF_DECODING = (
    *_OF_SYNTHETIC,
    *_OF_SPEEDUPS,
    *("prompts", "temperature", "requests", "schemes", "others", "synthetic", "engine", "seed"),
)


class _WithServing(click.Command):
    """With --serving it is another command, which takes the options of ``specsim serve``."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        if any(word.partition("=")[0] == "--serving" for word in args):
            from specsim.commands.validate_serving import command as serving

            return serving.make_context(info_name, args, *more, **extra)
        return super().make_context(info_name, args, *more, **extra)


@click.command(
    cls=_WithServing,
    epilog="Example: specsim validate profile.json --gamma 1:8 --requests 12",
)
@click.argument("profile", type=PATH)
@option(
    "--serving",
    PATH,
    "Compare specsim serve with an engine's request log instead of decoding; it has options of its "
    "own: specsim validate --serving LOG --help.",
    expose_value=False,
)
@option(
    "--counted",
    PATH,
    "With an acceptance file: another one to predict. [default: each draft length from the others]",
)
@option("--gamma", IntegerRange(1), "Draft lengths. [default: 1 to the profile's longest]")
@option("--temperature", Number(0), "One of the profile's temperatures. [default: all]")
@option(
    "--requests",
    Integer(2),
    "Requests on each set of prompts, at most. [default: 12, --blind 8, --scheme 6, --engine "
    "32; with --synthetic segments of each cell, 8, fewer where clearly slower]",
)
@option("--prompts", PATH, "The prompt file given to calibrate. [default: held-out modules]")
@option("--only", click.Choice(["calibration", "unseen"]), "Only these prompts.")
@option(
    "--median-tolerance",
    Number(0),
    "Largest median error that passes. [default: by intervals]",
)
@option(
    "--tolerance",
    Number(0),
    "Largest relative error of the speedup that passes. [default: by intervals]",
)
@click.option("--blind", is_flag=True, help="Fix the prediction, then run each decoder alone.")
@option(
    "--passes", Integer(2), "Passes of --requests each with --blind. [default: 5, with --engine 6]"
)
@option(
    "--starts",
    Integer(1),
    "How often servers are started for the passes of --blind --engine. [default: 2]",
)
@click.option(
    "--scheme",
    "schemes",
    help="Check decoding schemes instead: all, or names such as vertical-cascade,bild.",
)
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="ROLE=MODEL",
    help="Another model for --scheme: middle (a better drafter), masks, aligned, eagle. "
    "[default: the embedded family's, for its target]",
)
@click.option(
    "--synthetic",
    is_flag=True,
    help="Check what batches cost instead: decode them with acceptance drawn, not tested.",
)
@option(
    "--batch", IntegerRange(1), "Batches for --synthetic, --blind --engine. [default: as measured]"
)
@option("--context", IntegerRange(1), "Contexts for --synthetic. [default: as in the profile]")
@option(
    "--alpha",
    Numbers(0, 1),
    "Acceptance for --synthetic, one rate or one by position. [default: as in the profile]",
)
@option(
    "--mode",
    click.Choice(["eager", "compiled"]),
    "How models run with --synthetic. [default: compiled, if measured]",
)
@option("--engine", click.Choice(["vllm"]), "Check what an inference engine counts instead.")
@api_option
@option(
    "--url",
    str,
    "A running server for --engine, such as http://127.0.0.1:8000, used by nobody else. "
    "[default: one is started for each draft length]",
)
@engine_bin_option
@engine_args_option
@option(
    "--method",
    click.Choice(["draft_model", "ngram"]),
    "Who drafts with --engine: the profile's draft, or look-ups. [default: draft_model]",
)
@drafts_option
@option(
    "--lookup-max", Integer(1), "Longest run that ngram looks up. [default: the shortest, or 5]"
)
@option("--lookup-min", Integer(1), "Shortest run that ngram looks up. [default: the longest]")
@figure_option
@report_option
@option("--device", str, "cpu, cuda, ... [default: the profile's]")
@option("--threads", Integer(1), "CPU threads. [default: the profile's]")
@click.option("--trust-remote-code", is_flag=True, help="Run the code that comes with the models.")
@seed_option
@format_option
def command(
    profile: Path,
    counted: Path | None,
    gamma: tuple[int, ...] | None,
    temperature: float | None,
    requests: int | None,
    prompts: Path | None,
    only: Literal["calibration", "unseen"] | None,
    median_tolerance: float | None,
    tolerance: float | None,
    blind: bool,
    passes: int | None,
    starts: int | None,
    schemes: str | None,
    others: tuple[str, ...],
    synthetic: bool,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    alpha: tuple[float, ...] | None,
    mode: Mode | None,
    engine: Literal["vllm"] | None,
    seed: int,
    figure: Path | None,
    report: Path | None,
    output_format: str,
    **place: Any,
) -> int:
    """Decode plainly and speculatively, interleaved, and print predicted beside measured.

    Predictions come from the profile's traces; all decoders go side by side, and what runs cost
    is taken from just then, since machines drift (on an accelerator from the profile).  Exits 1
    when speedups are further off than the intervals explain, or counted calls contradict the replay
    (z).

    With --blind, what the profile predicts is written beside it first, and how that moves where
    plain decoding takes longer; then every decoder runs alone, whole requests in random order, in
    several passes.  The prediction is judged at what plain decoding takes then.

    With --scheme, the decoders of all papers go side by side on the calibration's prompts, each
    predicted from the profile's text: runs of every model, speedup, and quality where it is not
    the target's.  Each request is decoded once more, or until there are six, to tell what runs
    take.

    With --synthetic, batches decode with so many tokens accepted as the profile's acceptance (or
    --alpha) says, which tests the run times alone; the profile must have a grid of them
    (specsim calibrate --batch).  Then --requests is how often each cell is decoded at most.

    PROFILE may be an acceptance file of specsim read: then nothing is decoded, and tokens per call
    at each draft length that the engine counted are predicted from its counts at the others.

    With --engine, a real engine decodes the calibration's prompts, and the rounds, drafts and
    accepted tokens that it counts stand beside the replay of the same text: equal at temperature
    0, and elsewhere within what chance explains (z).  --drafts must say how it drafts.
    With --blind too, speedups are predicted of its step times (specsim calibrate --engine), at
    temperature 0 unless --temperature says otherwise.

    A run that was killed goes on where it was if it is started again with the same arguments.
    """
    from specsim.api.engine_blind import EngineBlindCheck, EngineVerdict, validate_engine
    from specsim.api.validate import validate
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    check_figure(figure)
    check: AnyCheck | EngineBlindCheck
    text = {"temperature": temperature, "requests": requests, "prompts": prompts, "seed": seed}
    of_engine = {"gamma": gamma, **{name: place.pop(name) for name in _OF_ENGINE}}
    if engine is None:
        refuse_given(_OF_ENGINE, "goes with --engine")
    if engine is None or not blind:
        refuse_given(("starts",), "goes with --blind --engine")
    if is_acceptance(profile):
        refuse_given(_OF_DECODING, f"has no meaning with {profile}: no model is run")
        check = CountsCheck(counted)
    elif counted is not None:
        raise InvalidArgumentError(f"--counted goes with an acceptance file, {profile} is none")
    elif engine is not None:
        if synthetic or schemes is not None:
            raise InvalidArgumentError("--engine goes with neither --scheme nor --synthetic")
        if others:
            raise InvalidArgumentError("--with goes with --scheme")
        if blind:
            others_of = (*_OF_ENGINE[4:], *_OF_SYNTHETIC[1:], "only", "device", "threads")
            refuse_given(others_of, "does not go with --blind --engine")
            more = {"batch": batch, "passes": passes, "starts": starts}
            check = _asked(EngineBlindCheck, text, **more, **of_engine)
        else:
            refuse_given(("batch",), "does not go with --engine alone")
            refuse_given((*_OF_SYNTHETIC, *_OF_SPEED), "does not go with --engine")
            check = _asked(EngineCheck, text, **of_engine)
    elif synthetic:
        if schemes is not None or others:
            raise InvalidArgumentError("--scheme and --with do not go with --synthetic")
        refuse_given(_OF_TEXT, "does not go with --synthetic")
        cells = {"batch": batch, "context": context, "gamma": gamma, "alpha": alpha, "mode": mode}
        check = _asked(SyntheticCheck, cells, temperature=temperature, rounds=requests, seed=seed)
    else:
        refuse_given(_OF_SYNTHETIC, "goes with --synthetic")
        if schemes is not None:
            refuse_given(_OF_SPEEDUPS, "does not go with --scheme")
            names, roles = tuple(schemes.split(",")), dict(map(_role, others))
            check = _asked(SchemeCheck, text, schemes=names, others=roles)
        elif others:
            raise InvalidArgumentError("--with goes with --scheme")
        elif blind:
            refuse_given(("only",), "does not go with --blind")
            check = _asked(BlindCheck, text, gamma=gamma, passes=passes)
        else:
            refuse_given(("passes",), "goes with --blind")
            check = _asked(SpeedupCheck, text, gamma=gamma, only=only)
    if not isinstance(check, BlindCheck | EngineBlindCheck | SpeedupCheck):
        refuse_given(("figure",), "draws speedups by draft length: --blind, or all side by side")
    given = median_tolerance is not None or tolerance is not None
    with progress_bar() as progress:
        allowed = Tolerance(median_tolerance, tolerance) if given else None
        found: Validation | EngineVerdict
        if isinstance(check, EngineBlindCheck):
            trusted = place["trust_remote_code"]
            found = validate_engine(
                *(profile, check, allowed), trust_remote_code=trusted, progress=progress
            )
        else:
            found = validate(profile, check, allowed, **place, progress=progress)
    show(found, output_format)
    write_report(found, report)
    if figure is not None:
        from specsim.report.plots import speedup_by_gamma, write

        write(speedup_by_gamma(found.rows(), found.title), figure)
    return 0 if found.passed else 1


def _asked(kind: type[Check], said: Mapping[str, Any], **more: Any) -> Check:
    """A check with what was typed of it; the rest is its own default."""
    return kind(**{name: value for name, value in {**said, **more}.items() if value is not None})


def _role(word: str) -> tuple[str, str]:
    role, _, model = word.partition("=")
    if not model:
        raise InvalidArgumentError(f"--with must be ROLE=MODEL, got {word}")
    return role, model
