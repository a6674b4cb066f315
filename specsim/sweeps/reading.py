"""The definition of a sweep, from a file of TOML or YAML or from the same as a mapping.

    command = "optimize"

    [inputs]                                      # names of the command's options
    alpha = [0.6, 0.7, 0.8]                       # a list: each of them
    c = { first = 0.02, last = 0.2, step = 0.02 } # a range: in steps,
    overhead = { first = 0.01, last = 1, count = 5, spacing = "log" }  # or so many
    gamma-max = 16                                # one value
    verify-cost = [[1, 1.1, 1.3], [1, 1.2]]       # a list inside: one value of several words

    [[cases]]                                     # inputs that go together
    acceptance-law = "greedy-drafts"
    c-ops = 0.1

Every case is combined with every combination of the inputs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

from specsim.checks import InvalidArgumentError, SpecsimError, check_choice, did_you_mean, shown
from specsim.commands._answers import NOT_INPUTS, CommandInput, inputs_of
from specsim.files import read_regular
from specsim.sweeps.definition import SweepDefinition
from specsim.sweeps.values import Scalar, Spaced, Stepped, Value, Values

_KEYS = ("command", "inputs", "cases")
_RANGE = ("first", "last", "step", "count", "spacing")
_SPACINGS = ("linear", "log")
# Bytes of a file that defines one.
_LARGEST = 2**20
# Beyond this float64 holds not every whole number.
_LARGEST_WHOLE = 2**53


class SweepFileError(SpecsimError):
    """The definition of a sweep cannot be used; the message says which file and why."""


def read_definition(asked: str | PathLike[str] | Mapping[str, Any]) -> SweepDefinition:
    """From a file, or from what a file would hold.

    Raises SweepFileError, with one line, for anything but values that the command itself refuses:
    those are failures of their settings.
    """
    if isinstance(asked, Mapping):
        where, content = "the sweep", asked
    else:
        where = f"sweep {asked}"
        content = _content(Path(asked), where)
    try:
        return _definition(content)
    except InvalidArgumentError as error:
        raise SweepFileError(f"{where}: {error}") from None


def _content(path: Path, where: str) -> Any:
    content = read_regular(path, "sweep", SweepFileError, _LARGEST)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SweepFileError(f"{where}: cannot be read ({error})") from None
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise SweepFileError(f"{where}: not TOML ({error})") from None
    if path.suffix not in (".yaml", ".yml"):
        raise SweepFileError(f"{where}: the name must end in .toml, .yaml or .yml")
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SweepFileError(f"{where}: not YAML ({' '.join(str(error).split())})") from None


def _definition(content: Any) -> SweepDefinition:
    content = _table("a sweep", content)
    for key in content:
        if key not in _KEYS:
            raise InvalidArgumentError(
                f"{shown(key)} is none of {', '.join(_KEYS)}{did_you_mean(key, _KEYS)}"
            )
    command = content.get("command")
    if not isinstance(command, str):
        raise InvalidArgumentError(
            f"command must be the name of a command, such as optimize, got {shown(command)}"
        )
    command = " ".join(command.split())
    known = inputs_of(command)
    inputs: dict[str, Values] = {}
    for name, said in _table("inputs", content.get("inputs", {})).items():
        each = _known(known, command, "inputs", name, inputs)
        inputs[each.name] = _values(f"inputs.{name}", each, said)
    said_cases = content.get("cases", [{}])
    if not isinstance(said_cases, list):
        raise InvalidArgumentError(f"cases must be a list of tables, got {shown(said_cases)}")
    cases = []
    for number, said in enumerate(said_cases):
        place = f"cases[{number}]"
        case: dict[str, Value] = {}
        for name, value in _table(place, said).items():
            each = _known(known, command, place, name, case)
            case[each.name] = _value(f"{place}.{name}", each, value)
        cases.append(case)
    _refuse_missing(known, command, inputs, cases)
    return SweepDefinition(command, inputs, tuple(cases))


def _table(place: str, said: Any) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise InvalidArgumentError(
            f"{place} must be a table of names and values, got {shown(said)}"
        )
    for name in said:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"{place} must have texts as names, got {shown(name)}")
    return said


def _known(
    known: Mapping[str, CommandInput],
    command: str,
    place: str,
    name: str,
    before: Mapping[str, Any],
) -> CommandInput:
    """The input of a name, as it is typed on the command line or in Python."""
    plain = name.removeprefix("--").replace("-", "_")
    name = name[:80]
    if plain in NOT_INPUTS:
        raise InvalidArgumentError(
            f"{place}.{name} is no input of a sweep: it says {NOT_INPUTS[plain]}; leave it out"
        )
    if plain not in known:
        raise InvalidArgumentError(
            f"{place}.{name} is no input of specsim {command}{did_you_mean(plain, known)}"
        )
    if plain in before:
        raise InvalidArgumentError(f"{place}.{name} is given twice")
    return known[plain]


def _refuse_missing(
    known: Mapping[str, CommandInput],
    command: str,
    inputs: Mapping[str, Values],
    cases: list[dict[str, Value]],
) -> None:
    if not inputs and not any(cases):
        raise InvalidArgumentError("inputs is missing: options of the command, and their values")
    for each in known.values():
        if each.required and not (each.name in inputs or all(each.name in case for case in cases)):
            raise InvalidArgumentError(
                f"inputs.{each.name} is missing, specsim {command} needs it in every setting"
            )


def _values(place: str, each: CommandInput, said: Any) -> Values:
    """Several values, or one."""
    if isinstance(said, Mapping):
        if each.is_switch:
            raise InvalidArgumentError(f"{place} must be true or false, or both as a list")
        try:
            return _range(said)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{place}: {error}") from None
    if isinstance(said, list):
        return tuple(_value(place, each, value) for value in said)
    return (_value(place, each, said),)


def _range(said: Mapping[str, Any]) -> Values:
    for name, value in said.items():
        if name not in _RANGE:
            raise InvalidArgumentError(
                f"{shown(name)} is none of {', '.join(_RANGE)}, which a range has"
            )
        if name != "spacing" and not _is_number(value, whole=name == "count"):
            what = "a whole number" if name == "count" else "a number"
            raise InvalidArgumentError(f"{name} must be {what}, got {shown(value)}")
    for name in ("first", "last"):
        if name not in said:
            raise InvalidArgumentError(f"{name} is missing, a range has first and last")
    first, last = said["first"], said["last"]
    if "count" in said:
        if "step" in said:
            raise InvalidArgumentError("step and count exclude each other")
        spacing = said.get("spacing", "linear")
        check_choice("spacing", spacing, _SPACINGS)
        return Spaced(first, last, said["count"], log=spacing == "log")
    if "spacing" in said:
        raise InvalidArgumentError("spacing goes with count")
    if "step" not in said and not (isinstance(first, int) and isinstance(last, int)):
        raise InvalidArgumentError("step or count is missing, whole numbers alone have a step of 1")
    return Stepped(first, last, said.get("step", 1))


def _is_number(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and not whole)


def _value(place: str, each: CommandInput, said: Any) -> Value:
    """One value; a list is one of several words."""
    if not isinstance(said, list) or each.is_switch:
        return _scalar(place, each, said)
    if not said or any(value is None for value in said):
        raise InvalidArgumentError(f"{place} must hold words in an inner list, got {shown(said)}")
    if any(isinstance(value, list) for value in said):  # one of YAML may even hold itself
        raise InvalidArgumentError(f"{place} has lists more than two deep")
    return tuple(_scalar(place, each, value) for value in said)


def _scalar(place: str, each: CommandInput, said: Any) -> Scalar:
    """A value of one word."""
    if isinstance(said, bool) != each.is_switch and said is not None:
        wanted = "true or false" if each.is_switch else "a number or a text"
        raise InvalidArgumentError(f"{place} must be {wanted}, got {shown(said)}")
    if said is not None and not isinstance(said, bool | int | float | str):
        raise InvalidArgumentError(f"{place} must be a number or a text, got {shown(said)}")
    if isinstance(said, int) and abs(said) > _LARGEST_WHOLE:
        raise InvalidArgumentError(f"{place} must be at most 2^53, got {shown(said)}")
    if isinstance(said, float) and not isfinite(said):
        raise InvalidArgumentError(f"{place} must be finite, got {shown(said)}")
    if isinstance(said, str) and any("\ud800" <= letter <= "\udfff" for letter in said):
        # JSON may say half of a pair of UTF-16, and YAML contains JSON; no file holds such a text.
        raise InvalidArgumentError(f"{place} must be a text of Unicode, got {shown(said)}")
    return said
