"""One sub-command for each scheme, made from the fields of its description.

The options of a scheme are its own fields and those of what its law must know.  Where a search is
asked for, whole numbers may be ranges (``--gamma 1:16``) and other numbers comma lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    Number,
    format_option,
    option,
    refuse_given,
    stack,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.schemes import Known, Scheme
    from specsim.schemes.fields import Words

# Values of fields by name, several where a search is meant.
Candidates = dict[str, list[Any]]


class SchemeGroup(click.Group):
    """A command with one sub-command for each scheme, made by ``make`` on demand."""

    make: Callable[[str], click.Command]

    def list_commands(self, context: click.Context) -> list[str]:
        from specsim.schemes import SCHEMES

        return list(SCHEMES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return self.make(name) if name in self.list_commands(context) else None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from specsim.api.schemes import named_scheme

        if not context.resilient_parsing:  # not while a shell completes what is typed
            named_scheme(args[0])
        return super().resolve_command(context, args)


def scheme_command(
    verb: str, name: str, run: Callable[..., None], own: Sequence[Any] = ()
) -> click.Command:
    """The sub-command of one scheme.

    run : gets the class of the scheme, the candidates of its fields, those of what is known, and
        all other options by name, those of cost as ``specsim.evaluate`` has them
    own : options of the command itself
    """
    from specsim.schemes import SCHEMES
    from specsim.schemes.fields import options

    kind = SCHEMES[name]
    knows = {field.name: field for known in kind.knows for field in options(known).values()}

    def callback(**given: Any) -> None:
        candidates = _typed(given, options(kind))
        knowns = _known(kind, _typed(given, knows))
        if "c" in candidates:  # A policy that knows the draft's cost is told it once.
            given["c"] = candidates["c"][0]
        for field, value in kind.implied_by(knowns[0]).items():
            candidates.setdefault(field, [value])
        _refuse_missing(kind, candidates)
        run(kind, candidates, knowns, costs=_read_costs(given.pop("cost")), **given)

    price = _COST_OPTIONS[1:] if "c" in options(kind) else _COST_OPTIONS
    made = [_option(field) for field in {**options(kind), **knows}.values()]
    command = stack(*own, *made, *price, format_option)(callback)
    summary = (kind.__doc__ or "").splitlines()[0]
    example = f"Example: specsim {verb} {name} {kind.example}"
    return click.command(name, help=summary, epilog=example)(command)


def _option(field: Field[Any]) -> Callable[..., Any]:
    from specsim.schemes.fields import SWITCH, required

    words: Words = field.metadata["words"]
    name, help_text = "--" + field.name.replace("_", "-"), field.metadata["help"]
    if words is SWITCH:
        default = "" if field.default else "no-"
        help_text = f"{help_text} [default: {default}{name[2:]}]"
        return click.option(f"{name}/--no-{name[2:]}", field.name, default=None, help=help_text)
    if not required(field) and field.default is not None:
        help_text = f"{help_text} [default: {field.default}]"
    return click.option(name, field.name, type=_Words(words), help=help_text)


class _Words(click.ParamType[Any]):
    """The candidates that an option's words name."""

    def __init__(self, words: Words) -> None:
        self.words, self.name = words, words.metavar

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Any:
        option = parameter.opts[0] if parameter else "value"
        return self.words.candidates(option, value)


def _typed(given: dict[str, Any], fields: Any) -> Candidates:
    """The fields that were typed, taken out of what was given; a switch has one value."""
    typed = {name: given.pop(name) for name in fields}
    return {
        name: value if isinstance(value, list) else [value]
        for name, value in typed.items()
        if value is not None
    }


def _known(kind: type[Scheme], typed: Candidates) -> list[Known | None]:
    """What is known: all combinations of what was typed, of the one kind that it belongs to."""
    from specsim.schemes.fields import options

    if not kind.knows:
        return [None]
    touched = [known for known in kind.knows if set(options(known)) & set(typed)]
    if len(touched) > 1:
        named = " and ".join("--" + name for name in typed)
        raise InvalidArgumentError(f"{named} exclude each other")
    chosen = touched[0] if touched else kind.knows[0]
    _refuse_missing(chosen, typed)
    combinations = product(*(typed[name] for name in options(chosen)))
    return [chosen(*values) for values in combinations]


def _refuse_missing(kind: type, typed: Candidates) -> None:
    from specsim.schemes.fields import options, required

    for name, field in options(kind).items():
        if name not in typed and required(field):
            raise InvalidArgumentError(
                f"--{name.replace('_', '-')} is missing. {field.metadata['help']}"
            )


def only(kind: type[Scheme], candidates: Candidates, knowns: Sequence[Any]) -> tuple[Scheme, Any]:
    """The scheme of the one value of every field, and the one thing known."""
    if len(knowns) > 1:
        raise InvalidArgumentError(
            f"what is known must be one value here, got {len(knowns)}; specsim optimize searches"
        )
    for name, values in candidates.items():
        if len(values) > 1:
            option = "--" + name.replace("_", "-")
            raise InvalidArgumentError(
                f"{option} must be one value here, got {len(values)}; specsim optimize searches"
            )
    return kind(**{name: values[0] for name, values in candidates.items()}), knowns[0]


_COST_OPTIONS = (
    option(
        "--c",
        Number(0),
        "Cost of a draft run in target runs, of every draft model not named in --cost.",
    ),
    option(
        "--cost",
        str,
        "Cost of a run of one draft model; may be repeated.",
        multiple=True,
        metavar="NAME=C",
    ),
    verify_options,
)


def _read_costs(pairs: Sequence[str]) -> dict[str, float]:
    """The costs of models by name."""
    costs: dict[str, float] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--cost must be NAME=C, got {pair}")
        if name in costs:
            raise InvalidArgumentError(f"--cost {name} is given twice")
        costs[name] = Number(0).check(f"--cost {name}", value)
    return costs


def refuse_mixture(context: click.Context) -> None:
    """Options before the scheme's name would be ignored: say so instead."""
    reason = f"stands before the scheme {context.invoked_subcommand}; put it behind"
    refuse_given(context.params, reason)
