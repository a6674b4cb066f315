"""``specsim.compare``: two results side by side, what changed, and whether it is more than chance.

Where a figure has an interval on both sides, chance explains a difference of logarithms up to the
root of the sum of squares of the half widths (``specsim.intervals.apart``).  Many figures are
compared at once and one of them is always furthest, so the limit is for all of them together
(``specsim.intervals.chance_limit``).  The two sides are taken as independent: where both rest on
the same requests less than said is left to chance, and a difference must be larger to be seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from os import PathLike
from os.path import isdir
from pathlib import Path
from typing import Any

import msgspec

from specsim.api.compare_result import Difference, Differences
from specsim.api.compared import INPUT, SUBJECT, Side, document_side
from specsim.api.result import LeftOut, Result
from specsim.checks import InvalidArgumentError
from specsim.files import check_regular, read_regular
from specsim.intervals import normal_quantile


def compare(
    first: Result | Mapping[str, Any] | str | PathLike[str],
    second: Result | Mapping[str, Any] | str | PathLike[str],
    *,
    level: float = 0.95,
) -> Differences:
    """Two results of one call, two profiles, two acceptance files or two sweeps, side by side.

    first, second : results, their documents, or files of their JSON; or files of profiles or
        counts, or folders of sweeps
    level : probability, inside (0, 1), that nothing is found where nothing changed

    What only one of them has is left out and named.  Raises InvalidArgumentError where the two are
    not of one kind, or have no figure in common.

    >>> from specsim import evaluate
    >>> compare(evaluate(0.8, 0.05, 5), evaluate(0.7, 0.05, 5)).differs
    True
    """
    normal_quantile(level)  # refuses what is no level
    sides = read_side(first, "first"), read_side(second, "second")
    kinds = [each.kind for each in sides]
    if kinds[0] != kinds[1]:
        raise InvalidArgumentError(
            f"first and second must be of one kind, got {kinds[0]} and {kinds[1]}"
        )
    sides = _with_common_settings(*sides)
    values = [each.values for each in sides]
    both = [(key, values[0][key], values[1][key]) for key in values[0] if key in values[1]]
    common = [each for each in both if each[1:] != (None, None)]
    if not common:
        raise InvalidArgumentError(
            f"{sides[0].name} and {sides[1].name} have no figure of one setting in common: compare "
            "two that were asked for the same settings"
        )
    return Differences(
        kind=kinds[0],
        names=(sides[0].name, sides[1].name),
        figures=tuple(Difference(*each) for each in common),
        other_inputs=_other_inputs(*sides),
        level=level,
        inputs={"first": sides[0].name, "second": sides[1].name, "level": level},
        warnings=tuple(_own_warnings(*sides)),
        left_out=tuple(_one_sided(*sides)),
    )


def read_side(given: Result | Mapping[str, Any] | str | PathLike[str], which: str) -> Side:
    """A result, its document, or a file of that, of a profile or of counts, or a sweep's folder.

    which : "first" or "second"

    Raises InvalidArgumentError where it is none of those, and what reading a profile or an
    acceptance file raises.
    """
    if isinstance(given, Result):
        return document_side(given.document(), which)
    if isinstance(given, Mapping):
        return document_side(given, which)
    path = Path(given)
    if isdir(path):
        from specsim.api.compared_files import sweep_side

        return sweep_side(path)
    check_regular(path, f"{which} {path}", InvalidArgumentError)
    from specsim.counts.file import is_acceptance
    from specsim.profiles import is_profile

    if is_profile(path) or is_acceptance(path):
        from specsim.api.compared_files import acceptance_side, profile_side

        return profile_side(path) if is_profile(path) else acceptance_side(path)
    content = read_regular(path, which, InvalidArgumentError)
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"{which} {path}: not complete JSON ({error})") from None
    return document_side(document, str(path))


def _with_common_settings(first: Side, second: Side) -> tuple[Side, Side]:
    """The two without the columns of a table that say one thing throughout, and another on the
    other side: what two cards, drafters or schemes are compared for, and inputs that a sweep did
    not vary.  They are inputs that differ.
    """
    said = _subjects(first), _subjects(second)
    apart = {key for key in said[0] if key in said[1] and _differ(said[0][key], said[1][key])}
    sides = []
    for side, values in zip((first, second), said, strict=True):
        moved = {name: ", ".join(values[table, name]) for table, name in sorted(apart)}
        named = {name: word for name, word in moved.items() if not name.startswith(INPUT)}
        figures_of = {
            key.without([name for table, name in apart if table == key.table]): value
            for key, value in side.values.items()
        }
        sides.append(replace(side, inputs={**side.inputs, **named}, values=figures_of))
    return sides[0], sides[1]


def _subjects(side: Side) -> dict[tuple[str, str], set[str]]:
    """What columns that may be compared say, by table and name."""
    found: dict[tuple[str, str], set[str]] = {}
    for key in side.values:
        for name, value in key.setting:
            if name in SUBJECT or name.startswith(INPUT):
                found.setdefault((key.table, name), set()).add(value)
    return found


def _differ(first: Collection[str], second: Collection[str]) -> bool:
    return len(first) == len(second) == 1 and first != second


def _other_inputs(first: Side, second: Side) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*first.inputs, *second.inputs])
    asked = {name: (first.inputs.get(name), second.inputs.get(name)) for name in names}
    return {name: pair for name, pair in asked.items() if pair[0] != pair[1]}


def _own_warnings(first: Side, second: Side) -> list[str]:
    """Those of one side alone."""
    return [
        f"{side.name}: {warning}"
        for side, other in ((first, second), (second, first))
        for warning in side.warnings
        if warning not in other.warnings
    ]


def _one_sided(first: Side, second: Side) -> list[LeftOut]:
    """Settings, and figures of settings that both have, of one side alone."""
    found = []
    for side, other in ((first, second), (second, first)):
        settings = {(key.table, key.setting) for key in other.values}
        missing: dict[str, None] = {}
        for key in side.values:
            if (key.table, key.setting) not in settings:
                missing[key.where or "the answer"] = None
            elif key not in other.values:
                missing[f"{key.figure} of {key.where}" if key.where else key.figure] = None
        found += [LeftOut(what, f"only {side.name} has it") for what in missing]
    return found
