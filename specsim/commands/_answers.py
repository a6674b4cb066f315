"""The inputs of a command by name, and what it answers to them where there is no terminal.

Sweeps ask commands this way, so that an input means to a sweep exactly what it means to a user: its
name is the option's, and the command itself reads it, checks it and calls.  There is no second list
of names and no second conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import click

from specsim.api.result import Result
from specsim.checks import InvalidArgumentError, did_you_mean
from specsim.cli import specsim
from specsim.sweeps.values import Value, word

# Commands whose answers follow from their inputs; the others run models or write files.
ANSWERING = (
    *("optimize", "evaluate", "explain", "serve", "plan", "simulate", "allocate", "replay"),
    *("defer", "workload", "read"),
)
# Options that are no inputs, and what they say.
_WHERE = "where and how one answer is shown"
NOT_INPUTS = {
    **dict.fromkeys(("figure", "out", "report", "save_requests", "save_steps"), _WHERE),
    **dict.fromkeys(("speculation_profile", "format", "wide"), _WHERE),
    "workers": "who works on one answer",
}


@dataclass(frozen=True)
class CommandInput:
    """An input of a command.

    name : as it is typed, without dashes in front and with _ for -
    on : the option's word; empty: an argument, which has none
    off : the word that switches it off, where there is one
    is_switch : whether it takes no value
    repeats : whether it may be given several times
    required : whether the command ends without it
    """

    name: str
    on: str
    off: str
    is_switch: bool
    repeats: bool
    required: bool


@lru_cache
def inputs_of(command: str) -> Mapping[str, CommandInput]:
    """The inputs of a command, ``simulate bild`` for one with a scheme, by name.

    Raises InvalidArgumentError for what is no command that answers.
    """
    found = {}
    for parameter in _command(command).params:
        if isinstance(parameter, click.Option):
            on = max(parameter.opts, key=len)
            off = next(iter(parameter.secondary_opts), "")
            several, switch = parameter.multiple, parameter.is_flag
        else:
            on, off, several, switch = "", "", parameter.nargs != 1, False
        name = on.removeprefix("--").replace("-", "_") or parameter.name or ""
        if name not in NOT_INPUTS:
            found[name] = CommandInput(name, on, off, switch, several, parameter.required)
    return found


def answer(command: str, setting: Mapping[str, Value]) -> Result:
    """What the command answers to these inputs.

    Raises SpecsimError with the line that a terminal would show.
    """
    from specsim.report.kept import kept_results

    words = ["--format=json", *_words(inputs_of(command), setting)]
    with kept_results() as kept:
        try:
            _command(command).main(words, prog_name=f"specsim {command}", standalone_mode=False)
        except click.Abort:
            raise KeyboardInterrupt from None
        except click.ClickException as error:
            raise InvalidArgumentError(" ".join(error.format_message().split())) from None
    (found,) = kept
    return found


def _why_not(name: str) -> str:
    """What is said behind a name of none of these; of another command, why it is none."""
    from specsim.cli import COMMANDS

    if name in COMMANDS:
        return ", which runs models, writes files or is about others' results: no sweep does that"
    return did_you_mean(name, ANSWERING)


@lru_cache
def _command(words: str) -> click.Command:
    names = words.split()
    if not names or names[0] not in ANSWERING:
        raise InvalidArgumentError(
            f"command must be one of {', '.join(ANSWERING)}, got {words!r}"
            f"{_why_not(names[0]) if names else ''}"
        )
    found: click.Command = specsim
    context = click.Context(found)
    for name in names:
        below = found.get_command(context, name) if isinstance(found, click.Group) else None
        if below is None:
            near = found.list_commands(context) if isinstance(found, click.Group) else []
            hint = did_you_mean(name, near)
            raise InvalidArgumentError(f"command {words!r} has no {name!r}{hint}")
        found = below
    if isinstance(found, click.Group) and not found.invoke_without_command:
        schemes = ", ".join(found.list_commands(context))
        raise InvalidArgumentError(f"command {words!r} needs a scheme behind it: {schemes}")
    return found


def _words(inputs: Mapping[str, CommandInput], setting: Mapping[str, Value]) -> list[str]:
    """A setting as it is typed; an input that is None is not."""
    options: list[str] = []
    arguments: list[str] = []
    for name, value in setting.items():
        each = inputs[name]
        if value is None:
            continue
        if each.is_switch:
            options += filter(None, [each.on if value else each.off])
            continue
        several: tuple[Value, ...] = (value,)
        if each.repeats and isinstance(value, tuple):
            several = value
        if each.on:
            options += [f"{each.on}={word(one)}" for one in several]
        else:
            arguments += map(word, several)
    return [*options, "--", *arguments] if arguments else options
