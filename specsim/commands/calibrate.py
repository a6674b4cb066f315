"""``specsim calibrate``: measure a pair of models and write a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from specsim.api.models import Batches, Measurement, Models
from specsim.api.result import Result
from specsim.checkpoint import Checkpoint
from specsim.checks import integer
from specsim.commands._models import measurement_options, models_options
from specsim.commands._options import (
    PATH,
    IntegerRange,
    api_option,
    drafts_option,
    engine_args_option,
    engine_bin_option,
    format_option,
    option,
    refuse_given,
    report_option,
    typed,
    was_given,
    write_report,
)

# What only acceptance is measured with.
_OF_ACCEPTANCE = ("prompts", "requests", "prompt_tokens", "max_new_tokens", "top_k", "top_p")


@click.command(
    epilog="Examples: specsim calibrate --target Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B "
    "--prompts prompts.jsonl --out qwen.json; specsim calibrate --cost-only "
    "--target llama-3.1-8b --draft llama-3.2-1b --batch 1,2,4,8,16,32,64 --out costs.json"
)
@models_options
@measurement_options
@option(
    "--batch",
    IntegerRange(1),
    "Measure run times in batches too. [default with --context or --cost-only: 1,2,4,...,32]",
)
@option(
    "--context",
    IntegerRange(1),
    "Tokens in the caches of a batch. [default: 512,4096, or what the models can read]",
)
@click.option(
    "--compiled",
    is_flag=True,
    help="Time batches compiled as well: as CUDA graphs, on a CPU by torch.compile (minutes).",
)
@click.option(
    "--cost-only",
    is_flag=True,
    help="Measure what runs cost and nothing else; a model may then be given by its shape alone: "
    "a config.json, or a shape that specsim ships.",
)
@click.option("--quick", is_flag=True, help="Fewer requests and repeats: half a minute or less.")
@option("--engine", click.Choice(["vllm"]), "Time this engine at --batch too, in OUT's .vllm.json.")
@api_option
@engine_bin_option
@engine_args_option
@drafts_option
@option("--out", PATH, "Profile to write; traces go beside it.", required=True)
@report_option
@format_option
def command(
    models: Models,
    measurement: Measurement,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    compiled: bool,
    cost_only: bool,
    quick: bool,
    engine: Literal["vllm"] | None,
    api: Literal["serve", "generate"] | None,
    engine_bin: Path | None,
    engine_args: tuple[str, ...] | None,
    drafts: Literal["greedy", "probabilistic"] | None,
    out: Path,
    report: Path | None,
    output_format: str,
) -> int:
    """Measure how often drafts are accepted and what runs cost, and write a profile.

    Text is drawn from the target, the draft reads it in one pass, and both models' run times are
    measured in the rhythm of real decoding.  With --draft prompt-lookup drafts are copied from the
    text.  A calibration that was killed goes on when started again with the same arguments.

    With --batch, run times of whole batches are measured as well, which decisions by load (specsim
    optimize --batch) rest on.  Exits 1 if some could not be measured; the others are kept.  With
    --engine, its own servers (or LLM.generate) are timed instead (1,4,16), at the lowest of the
    temperatures, in 2 to 6 repeats as far as --repeats says; servers also under load, by as many
    clients.
    """
    from specsim.api.calibrate import calibrate
    from specsim.api.engine_question import engine_file
    from specsim.api.engine_timing import (
        EngineCalibration,
        EngineTiming,
        awaits_timing,
        calibrate_engine,
    )
    from specsim.files import check_replaceable
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    if cost_only:
        refuse_given(
            (*_OF_ACCEPTANCE, "acceptance_law", "spread_minutes"),
            "and --cost-only exclude each other",
        )
    if quick:
        # Typed as it usually is, it is asked for all the same.
        measurement = measurement.quick(tuple(filter(was_given, vars(measurement))))
    timing, batches = None, None
    if engine is None:
        refuse_given(("api", "engine_bin", "engine_args", "drafts"), "goes with --engine")
    if engine is not None:
        refuse_given(
            ("context", "compiled", "cost_only", "spread_minutes"), "does not go with --engine"
        )
        models.require_draft_model("--engine")
        _check_lengths(measurement)
        timing = EngineTiming(
            engine,
            api or "serve",
            # At temperature 0 rounds are known beforehand, so that less is left open.
            min(measurement.temperature),
            batch=batch or (1, 4, 16),
            repeats=max(2, min(EngineTiming.repeats, measurement.repeats)),
            requests=min(EngineTiming.requests, *measurement.requests),
            prompts=measurement.prompts,
            engine_bin=engine_bin,
            drafts=drafts or "greedy",
            engine_args=engine_args or (),
            seed=measurement.seed,
        )
        timing.find_program()
        check_replaceable(engine_file(out, timing), "--out of the engine's step times,")
    elif batch or context or compiled:
        batches = Batches(
            batch or Batches.batch, context, ("eager", "compiled") if compiled else ("eager",)
        )
    trusted = models.trust_remote_code
    with progress_bar() as bar:
        if timing is not None and awaits_timing(out, timing, typed()):
            click.echo(f"went on with {out}, which this command wrote before", err=True)
            Checkpoint.remove_behind(out)
            found: Result = calibrate_engine(
                out, timing=timing, trust_remote_code=trusted, progress=bar
            )
        else:
            found = calibrate(
                out,
                models,
                measurement,
                batches,
                cost_only=cost_only,
                command=typed(),
                progress=bar,
            )
            if timing is not None:
                click.echo(f"wrote {out}", err=True)
                first = found.warnings
                found = calibrate_engine(
                    out, timing=timing, trust_remote_code=trusted, progress=bar
                )
                found = replace(found, warnings=(*first, *found.warnings))
    click.echo(f"wrote {found.path if isinstance(found, EngineCalibration) else out}", err=True)
    title = "run times of one token, and how far off the fit is"
    show(found, output_format, title if cost_only else "best draft length, predicted")
    write_report(found, report)
    return 1 if found.left_out else 0


def _check_lengths(measurement: Measurement) -> None:
    """Refuse, before anything is measured, a profile that no engine could be timed with."""
    longest = integer("--gamma-max (with --engine)", measurement.gamma_max, low=2)
    integer("--max-new-tokens (with --engine)", measurement.max_new_tokens, low=longest + 2)
