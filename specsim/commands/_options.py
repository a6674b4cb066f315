"""Options that several commands share, and the types that turn words into checked numbers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from specsim.acceptance import ACCEPTANCE_LAWS
from specsim.checks import InvalidArgumentError, integer, integer_range, number, numbers

if TYPE_CHECKING:
    from specsim.acceptance import AlphaLike
    from specsim.api.result import Result

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Checked(click.ParamType[Any]):
    """Turns the words of an option into a checked value; the message names the option."""

    name = "number"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        option = parameter.opts[0] if parameter else "value"
        return self.check(option, value.strip())

    def check(self, option: str, word: str) -> Any:
        raise NotImplementedError


class Number(_Checked):
    """One finite number in [low, high]."""

    def __init__(self, low: float = float("-inf"), high: float = float("inf")) -> None:
        self.low, self.high = low, high

    def check(self, option: str, word: str) -> float:
        return number(option, word, low=self.low, high=self.high)


class Numbers(_Checked):
    """One number or a comma list, all in [low, high]."""

    name = "number[,number...]"

    def __init__(self, low: float, high: float = float("inf")) -> None:
        self.low, self.high = low, high

    def check(self, option: str, word: str) -> tuple[float, ...]:
        words = [part.strip() for part in word.split(",")] if word else []
        return tuple(numbers(option, words, low=self.low, high=self.high).tolist())


class Integer(_Checked):
    """One whole number >= low."""

    name = "whole number"

    def __init__(self, low: int = 0) -> None:
        self.low = low

    def check(self, option: str, word: str) -> int:
        return integer(option, word, low=self.low)


class IntegerRange(_Checked):
    """Whole numbers: ``4``, a comma list ``1,2,4``, a range ``1:16``, or both ``1:4,8``."""

    name = "n|n,n|first:last"

    def __init__(self, low: int = 0) -> None:
        self.low = low

    def check(self, option: str, word: str) -> tuple[int, ...]:
        return tuple(integer_range(option, word, low=self.low))


def option(name: str, kind: Any, help_text: str, **more: Any) -> Decorator:
    """One option; its default is shown where there is one."""
    return click.option(name, type=kind, help=help_text, show_default=True, **more)


PATH = click.Path(path_type=Path)


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--format`` and ``--wide``, on every command that prints a result."""
    from specsim.report.tables import FORMATS
    from specsim.report.terminal import keep_wide

    formats = click.option(
        *("--format", "output_format"),
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="How to print the result.",
    )
    wide = click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=keep_wide,
        help="All columns of a table, however wide. [default: those that the terminal has room "
        "for, or 80 characters elsewhere]",
    )
    return formats(wide(command))


def stack(*options: Decorator) -> Decorator:
    """Several options as one decorator, listed in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


verify_options = stack(
    option(
        "--verify-slope",
        Number(0),
        "v(n) = 1 + SLOPE (n - 1): cost of a target run on n tokens. [default: 0]",
    ),
    option("--verify-cost", Numbers(0), "v(1),v(2),... as measured, instead of a slope."),
    option("--overhead", Number(0), "Host time of a block, in target runs. [default: 0]"),
)

alpha_option = stack(
    option(
        "--alpha",
        Numbers(0, 1),
        "Acceptance rate at every position, of the drafts that get there; or assumed "
        "alpha_1,alpha_2,..., at every draft length (the last one holds on). Not the share of all "
        "drafts that engines print, which counts those behind a rejected one: see specsim read.",
    ),
    option(
        "--marginal",
        Numbers(0, 1),
        "S_1,...,S_K as measured with K drafts: shares of all rounds. Carried to other lengths.",
    ),
    option(
        "--conditional",
        Numbers(0, 1),
        "alpha_1,...,alpha_K as measured with K drafts, of those that got to each position.",
    ),
    option("--rounds", Number(1), "Rounds behind measured rates. [default: weighed like 400]"),
    click.option(
        "--heads/--no-heads",
        default=None,
        help="Whether measured rates are those of heads (EAGLE, MTP), whose acceptance falls with "
        "depth, or of a draft model. [default: as what drafts, or heads where nobody says]",
    ),
)

margin_option = option(
    "--margin",
    Number(0),
    "By load: what drafts must gain over plain decoding, or none are made. [default: 0.05]",
)
mode_option = option(
    "--mode",
    click.Choice(["eager", "compiled"]),
    "Which of the profile's run times in batches. [default: compiled, if measured]",
)

seed_option = option("--seed", Integer(), "Random seed.", default=0)

api_option = option(
    "--api",
    click.Choice(["serve", "generate"]),
    "How --engine is asked: its own server, or LLM.generate. [default: serve]",
)


def _words(_: click.Context, __: click.Parameter, typed: str | None) -> tuple[str, ...] | None:
    """What a shell would make of it."""
    try:
        return None if typed is None else tuple(shlex.split(typed))
    except ValueError as error:
        raise InvalidArgumentError(f"--engine-args has no end: {error}") from None


engine_bin_option = option(
    "--engine-bin",
    PATH,
    "The program that --engine starts. [default: $ENGINE_VENV/bin/vllm, .engine/bin/vllm beside "
    "specsim's .venv or in the checkout (make engine), or vllm on the PATH]",
)

engine_args_option = option(
    "--engine-args",
    str,
    "Further words for the servers that --engine starts, as deployed: '--block-size 32'.",
    callback=_words,
)

drafts_option = option(
    "--drafts",
    click.Choice(["greedy", "probabilistic"]),
    "How the draft's tokens are chosen with --engine.  [default: greedy, as vLLM's]",
)

figure_option = option("--figure", PATH, "Picture to write, a PNG.")


def _page_path(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Before anything is worked out, refuse a page that could not be written."""
    if path is not None:
        from specsim.report.page.write import check_page_path

        check_page_path("--report", path)
    return path


report_option = option(
    "--report", PATH, "Page of the answer to write, one .html with charts.", callback=_page_path
)


profile_options = stack(
    option(
        "--profile",
        PATH,
        "Profile of specsim calibrate, or acceptance file of specsim read, in place of numbers.",
    ),
    option("--temperature", Number(0), "Which of the profile's temperatures. [default: all]"),
)


acceptance_law_option = option(
    "--acceptance-law",
    click.Choice(ACCEPTANCE_LAWS),
    "How drafts are accepted: sampled ones by the ratio test, greedy ones, or sampled ones that "
    "match the target's own sample. [default: as in the profile]",
)


def read_alpha(given: dict[str, Any]) -> AlphaLike | None:
    """The acceptance that ``alpha_option`` says, if any, taken out of what was given."""
    said = {name: given.pop(name) for name in ("alpha", "marginal", "conditional")}
    named = [name for name, value in said.items() if value is not None]
    rounds, heads = given.pop("rounds"), given.pop("heads")
    if len(named) > 1:
        raise InvalidArgumentError(f"--{named[0]} and --{named[1]} exclude each other")
    if named in ([], ["alpha"]):
        for name, value in {"rounds": rounds, "heads": heads}.items():
            if value is not None:
                raise InvalidArgumentError(f"--{name} needs --marginal or --conditional")
        alpha: AlphaLike | None = said["alpha"]
        return alpha
    from specsim.extrapolation import Conditional, Marginal

    kind = Marginal if named == ["marginal"] else Conditional
    return kind(said[named[0]], rounds, heads)


def check_figure(figure: Path | None) -> None:
    """Before anything is worked out, refuse a picture that could not be written."""
    if figure is None:
        return
    from specsim.files import check_replaceable

    if figure.suffix != ".png" or not isdir(figure.parent):
        raise InvalidArgumentError(f"--figure {figure} must be a .png in a folder that exists")
    check_replaceable(figure, "--figure")


def was_given(name: str) -> bool:
    """Whether an option was typed."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def refuse_given(names: Iterable[str], reason: str) -> None:
    """Refuse options that were typed but have no meaning here, rather than ignore them."""
    for name in names:
        if was_given(name):
            option = "--" + name.replace("_", "-").replace("output-", "")
            raise InvalidArgumentError(f"{option} {reason}")


def typed() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["specsim", *sys.argv[1:]])


def write_report(result: Result, report: Path | None) -> None:
    """The page of a result, where one was asked for."""
    if report is not None:
        from specsim.report.page.write import write_page

        write_page(result, report, typed())
        click.echo(f"page: {report}", err=True)
