"""Decisions by load on the command line: what they are read from, and ``optimize --batch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from specsim.checks import InvalidArgumentError
from specsim.commands._options import refuse_given, stack

if TYPE_CHECKING:
    from pathlib import Path

    from specsim.batching.cost import LoadCost
    from specsim.batching.point import BatchPoint
    from specsim.batching.tokens_per_block import TokensPerBlock
    from specsim.checks import Floats
    from specsim.hardware import Shape
    from specsim.profiles import Acceptance, Profile

# Asked for where only contexts, or only batches, are.
_BATCHES = tuple(2**power for power in range(9))
_CONTEXTS = (512, 4096)

# Longest draft that is looked at without --gamma-max, where nothing measured ends before.
_GAMMA_MAX = 16

# Options of ``optimize`` that mean nothing without a load, and nothing with one.
ONLY_BY_LOAD = ("batch", "context", "figure", "target", "draft", "accelerator", "mode")
_NEVER_BY_LOAD = ("c", "c_ops", "c_memory", "verify_slope", "verify_cost", "overhead")

load_options = stack(
    click.option(
        "--target",
        metavar="SHAPE",
        help="Target model by its shape: a shipped one, or a config.json. No measurement needed.",
    ),
    click.option("--draft", metavar="SHAPE", help="Draft model by its shape."),
    click.option("--accelerator", metavar="NAME", help="Accelerator that both models run on."),
    click.option(
        "--mode",
        type=click.Choice(["eager", "compiled"]),
        help="Which of the profile's run times in batches. [default: compiled, if measured]",
    ),
)


@dataclass(frozen=True)
class Load:
    """One sampling setting, ready to be asked at any batch and context.

    survival : S_1.., over all of the text
    replay : makes ``gains``, what a block gains; of a profile from its trace, so where blocks start
    temperature : of the profile; None where nothing was measured
    context : longest that the models take; None where it is not known
    draft_name : as in the profile
    """

    survival: Floats
    replay: Callable[[], TokensPerBlock]
    cost: LoadCost
    gamma_max: int
    temperature: float | None = None
    context: int | None = None
    draft_name: str | None = None

    @cached_property
    def gains(self) -> TokensPerBlock:
        """By draft length, up to ``gamma_max``."""
        return self.replay()

    def extrapolated(self, settings: Sequence[BatchPoint]) -> list[BatchPoint]:
        """Those outside what was measured."""
        from specsim.batching.cost import MeasuredLoadCost

        cost = self.cost
        if not isinstance(cost, MeasuredLoadCost):
            return []
        return [setting for setting in settings if not cost.covers(setting.batch, setting.context)]

    def batches(self, asked: Sequence[int] | None) -> list[int]:
        """The batches asked for, or else those that were measured, or the usual ones."""
        from specsim.batching.cost import MeasuredLoadCost

        measured = self.cost.batches if isinstance(self.cost, MeasuredLoadCost) else _BATCHES
        return sorted(set(asked or measured))

    def contexts(self, asked: Sequence[int] | None) -> list[int]:
        """The contexts asked for, or else those that were measured, or the usual ones."""
        from specsim.batching.cost import MeasuredLoadCost

        limit = self.context
        if asked is None:
            return list(
                self.cost.contexts if isinstance(self.cost, MeasuredLoadCost) else _CONTEXTS
            )
        if limit is not None and max(asked) > limit:
            raise InvalidArgumentError(
                f"--context must be <= {limit}, which is all that the models take, got {max(asked)}"
            )
        return sorted(set(asked))


def loads(given: dict[str, Any]) -> list[Load]:
    """The settings that the options name: one of a roofline, one a temperature of a profile."""
    if given["profile"] is not None:
        refuse_given(["target", "draft", "accelerator"], "and --profile exclude each other")
        return _measured(given)
    refuse_given(["temperature", "mode"], "needs --profile")
    if not any(given[name] for name in ("target", "draft", "accelerator")):
        raise InvalidArgumentError(
            "--profile is missing, or --target, --draft and --accelerator: "
            "what runs cost depends on the batch"
        )
    return [_from_shapes(given)]


def _from_shapes(given: dict[str, Any]) -> Load:
    from specsim.batching.cost import RooflineLoadCost
    from specsim.batching.tokens_per_block import TokensPerBlock
    from specsim.hardware import accelerator

    for name in ("target", "draft", "accelerator"):
        if given[name] is None:
            raise InvalidArgumentError(
                f"--{name} is missing; give --target, --draft and --accelerator, or --profile"
            )
    if given["alpha"] is None:
        raise InvalidArgumentError("--alpha is missing: shapes say nothing of acceptance")
    gamma_max = _gamma_max(given, _GAMMA_MAX)
    survival = _survival(given["alpha"], gamma_max)
    return Load(
        survival=survival,
        replay=partial(TokensPerBlock.of_survival, survival),
        cost=RooflineLoadCost(
            _shape(given, "target"),
            _shape(given, "draft"),
            accelerator(given["accelerator"]),
            longest=gamma_max + 1,
        ),
        gamma_max=gamma_max,
    )


def _measured(given: dict[str, Any]) -> list[Load]:
    import numpy as np

    from specsim.batching.cost import MeasuredLoadCost
    from specsim.batching.tokens_per_block import TokensPerBlock
    from specsim.profiles import read_profile

    profile, wanted = read_profile(given["profile"]), given["temperature"]
    context = min(profile.target.context, profile.draft.context)

    def load(temperature: float, of_trace: Acceptance | None) -> Load:
        cost = MeasuredLoadCost.of(profile, temperature, given["mode"])
        reach = cost.longest - 1
        if of_trace is None:
            gamma_max = _gamma_max(given, min(_GAMMA_MAX, reach))
            survival = _survival(given["alpha"], gamma_max)
            replay = partial(TokensPerBlock.of_survival, survival)
        else:
            survival = np.array([rate.best for rate in of_trace.survival])
            gamma_max = _gamma_max(given, min(_GAMMA_MAX, reach, survival.size))
            replay = partial(_replayed, profile, given["profile"], of_trace, gamma_max)
        if gamma_max > reach:
            raise InvalidArgumentError(
                f"--gamma-max must be <= {reach} with this profile, got {gamma_max}; "
                "calibrate with a larger one"
            )
        return Load(survival, replay, cost, gamma_max, temperature, context, profile.draft.name)

    if given["alpha"] is not None:
        known = sorted({row.temperature for row in profile.batch_overhead})
        return [load(t, None) for t in known if wanted in (None, t)] or [load(wanted or 0.0, None)]
    if not profile.acceptance:
        raise InvalidArgumentError("--alpha is missing: the profile has costs and no acceptance")
    return [load(each.sampling.temperature, each) for each in profile.sampled(wanted)]


def _replayed(profile: Profile, path: Path, of_trace: Acceptance, gamma_max: int) -> TokensPerBlock:
    from specsim.batching.tokens_per_block import TokensPerBlock

    return TokensPerBlock.of_trace(profile.trace(path, of_trace), gamma_max)


def _gamma_max(given: dict[str, Any], usual: int) -> int:
    """The option if it was typed; its default is for the other ways to ask."""
    source = click.get_current_context().get_parameter_source("gamma_max")
    return given["gamma_max"] if source is ParameterSource.COMMANDLINE else usual


def _survival(alphas: tuple[float, ...], gamma_max: int) -> Floats:
    from specsim.acceptance import PerPositionAcceptance

    return PerPositionAcceptance(alphas).survival(max(gamma_max, 1))[1:]


def _shape(given: dict[str, Any], name: str) -> Shape:
    from specsim.hardware import read_config, shape_from_config
    from specsim.hardware.config import ConfigError

    try:
        return shape_from_config(read_config(given[name]))
    except ConfigError as error:
        raise InvalidArgumentError(f"--{name} {error}") from None


def optimize_by_load(given: dict[str, Any], output_format: str) -> None:
    """Print the best draft length of every batch and context that the options ask for."""
    refuse_given(
        _NEVER_BY_LOAD,
        "has no meaning by load: costs come from --profile, or from --target, --draft and "
        "--accelerator",
    )
    from specsim.report.tables import render

    figure = given["figure"]
    if figure is not None and (figure.suffix != ".png" or not figure.parent.is_dir()):
        raise InvalidArgumentError(f"--figure {figure} must be a .png in a folder that exists")
    found = [
        (load, _cells(load, load.batches(given["batch"]), load.contexts(given["context"])))
        for load in loads(given)
    ]
    click.echo(render([row for found_ in found for row in _rows(*found_)], output_format, _TITLE))
    for load, cells in found:
        for line in _sentences(load, cells):
            click.echo(line if len(found) == 1 else f"{_name(load)}, {line}", err=True)
    if figure is not None:
        from specsim.report.load_plots import best_by_load
        from specsim.report.plots import save

        save(best_by_load({_name(load): cells for load, cells in found}), figure)
        click.echo(f"figure: {figure}", err=True)


_TITLE = "best draft length by load"


def _cells(load: Load, batches: Sequence[int], contexts: Sequence[int]) -> list[BatchPoint]:
    """The best setting of every cell that can be priced; the others are named on stderr."""
    from specsim.batching.cost import CellUnavailableError
    from specsim.batching.point import best_of_cell

    found: list[BatchPoint] = []
    missing: list[tuple[str, CellUnavailableError]] = []
    for context in contexts:
        for batch in batches:
            try:
                found.append(best_of_cell(load.gains, load.cost, batch, context, load.gamma_max))
            except CellUnavailableError as error:
                missing.append((f"batch {batch}, context {context}", error))
    if not found:
        raise missing[0][1]
    for cell, reason in missing:
        click.echo(f"{cell} is left out: {reason}", err=True)
    return found


def _rows(load: Load, cells: Sequence[BatchPoint]) -> list[dict[str, Any]]:
    measured = {} if load.temperature is None else {"temperature": load.temperature}
    return [{**measured, **cell.row()} for cell in cells]


def _name(load: Load) -> str:
    return "" if load.temperature is None else f"temperature {load.temperature:g}"


def _sentences(load: Load, cells: Sequence[BatchPoint]) -> list[str]:
    """What the table does not say: where it stops to pay, and what to doubt."""
    lines = []
    for context in dict.fromkeys(cell.context for cell in cells):
        lines.append(_until(load, [cell for cell in cells if cell.context == context]))
    bounded = [cell for cell in cells if cell.gamma == load.gamma_max > 0]
    if bounded:
        lines.append(
            f"gamma {load.gamma_max}, the longest that was considered, is best at "
            f"{_listed(bounded)}: a longer one may pay more"
        )
    outside = load.extrapolated(cells)
    if outside:
        lines.append(f"extrapolated beyond the measured grid: {_listed(outside)}")
    return lines


def _until(load: Load, cells: Sequence[BatchPoint]) -> str:
    """Up to which batch it pays at the context of ``cells``."""
    from specsim.batching.point import stops_paying

    context, most = cells[0].context, max(cell.batch for cell in cells)
    stop = stops_paying(load.gains, load.cost, context, most, load.gamma_max)
    if stop == 1:
        return f"context {context:g}: never pays"
    off = _ranges([cell.batch for cell in cells if not cell.gamma and cell.batch < (stop or most)])
    until = "pays at every batch asked for" if stop is None else f"pays up to batch {stop - 1}"
    return f"context {context:g}: {until}" + (f", but not at {off}" if off else "")


def _listed(cells: Sequence[BatchPoint]) -> str:
    """``batch 65-100 at context 64, 128; batch 1, 2 at context 256``."""
    batches: dict[float, list[int]] = {}
    for cell in cells:
        batches.setdefault(cell.context, []).append(cell.batch)
    alike: dict[str, list[str]] = {}
    for context, found in batches.items():
        alike.setdefault(_ranges(found), []).append(f"{context:g}")
    return "; ".join(f"batch {b} at context {', '.join(c)}" for b, c in alike.items())


def _ranges(numbers: Sequence[int]) -> str:
    """``1, 2, 4-7`` of increasing numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
