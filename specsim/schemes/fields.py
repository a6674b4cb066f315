"""Fields of the descriptions: what each means, how words are read into it, and shared checks.

A field says itself what the command line needs of it, in its metadata: ``described`` puts a help
text there, and ``Words`` to read its value with.  A field without ``Words`` is no option: rules
and thresholds that a decoder needs and no law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from itertools import product
from math import prod
from typing import Any

from specsim.checks import InvalidArgumentError, integer, integer_range, numbers, probability
from specsim.laws import TARGET

# Combinations of the numbers of one option; a search tries far fewer.
_MOST_CANDIDATES = 100_000


@dataclass(frozen=True)
class Words:
    """How the words of an option are read.

    metavar : what stands for them in a help text; empty for a switch, which has none
    candidates : the values that these words of this option name, several where a search is meant
    check : a field's name and the value it is made with, to the value as it is kept
    """

    metavar: str
    candidates: Callable[[str, str], list[Any]]
    check: Callable[[str, Any], Any] = lambda name, value: value


def described(help_text: str, words: Words | None = None, **given: Any) -> Any:
    """A field with its help text and, where it is an option, how to read it.

    given : ``default`` and other arguments of ``dataclasses.field``
    """
    return field(metadata={"help": help_text, "words": words}, **given)


def draft_name(default: str = "draft", more: str = "") -> Any:
    """The field that names the one draft model of a scheme."""
    help_text = f"Name of the draft model, whose runs the cost prices{more}."
    return described(help_text, NAME, default=default)


def options(kind: type) -> Mapping[str, Field[Any]]:
    """The fields of a description that are options, by name."""
    return {each.name: each for each in fields(kind) if each.metadata.get("words") is not None}


def required(each: Field[Any]) -> bool:
    """Whether a field has no default."""
    return each.default is MISSING and each.default_factory is MISSING


def model_names(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """At least one model name, all different, none of them the target's."""
    names = tuple(value)
    if not names or len(set(names)) < len(names) or TARGET in names:
        raise InvalidArgumentError(
            f"{name} must be different model names, at least one and not {TARGET!r}, got {names}"
        )
    return names


def _tuples(separator: str, entry: Words, metavar: str) -> Words:
    """Words of tuples: every combination of the candidates of each entry."""

    def candidates(option: str, words: str) -> list[Any]:
        parts = [entry.candidates(option, part) for part in words.split(separator)]
        if prod(map(len, parts)) > _MOST_CANDIDATES:
            raise InvalidArgumentError(
                f"{option} must be at most {_MOST_CANDIDATES:,} combinations, got "
                f"{prod(map(len, parts)):,}"
            )
        return list(product(*parts))

    def check(name: str, value: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(entry.check(name, each) for each in value)

    return Words(metavar, candidates, check)


SWITCH = Words("", lambda _, given: [given])
INTEGER = Words("n|first:last", integer_range, integer)
NUMBER = Words(
    "number[,number...]", lambda option, words: numbers(option, words.split(",")).tolist()
)
PROBABILITY = replace(NUMBER, check=probability)
NAME = Words(
    "name", lambda _, words: [words.strip()], lambda name, value: model_names(name, (value,))[0]
)
NAMES = Words(
    "name,name", lambda _, words: [tuple(part.strip() for part in words.split(","))], model_names
)
INTEGERS = _tuples(",", INTEGER, "n,first:last")
ROWS = _tuples("/", INTEGERS, "n,n/n")
TABLE = Words(
    "x/x,x",
    lambda option, words: [
        tuple(tuple(numbers(option, row.split(",")).tolist()) for row in words.split("/"))
    ],
)


def settle(instance: object, **values: Any) -> None:
    """Set checked values on a frozen dataclass, from its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


class Described:
    """Base of dataclasses of ``described`` fields: each value is checked as its words say."""

    def __post_init__(self) -> None:
        for name, each in options(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                settle(self, **{name: each.metadata["words"].check(name, value)})


def same_size(name: str, value: Sequence[Any], size: int, what: str) -> None:
    """One entry of ``value`` for each of ``size`` things."""
    if len(value) != size:
        raise InvalidArgumentError(f"{name} must have {size} entries, {what}, got {len(value)}")
