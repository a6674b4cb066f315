"""Options made from the fields of a scheme, so that every scheme has its command for free.

A field's option reads ``--name value``; where a search is asked for, whole numbers may be ranges
(``--gamma 1:16``) and other numbers comma lists.  Help texts are the lines of the class docstring.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError, SpecsimError, numbers
from specsim.commands._options import (
    IntegerRange,
    Number,
    Numbers,
    format_option,
    read_verify,
    refuse_given,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.acceptance import Acceptance
    from specsim.cost import Cost
    from specsim.laws import BlockLaw

Candidates = list[Any]

# One line that works for every scheme; shown in its help.
EXAMPLES = {
    "plain": "",
    "speculative": "--acceptance 0.8 --gamma 5 --c 0.05",
    "specdec": "--acceptance 0.9 --block-size 25 --c 0.3",
    "oracle": "--acceptance 0.8 --c 0.05",
    "bild": "--fallback 0.2 --rollback 0.05 --c 0.1",
    "bild-joint": "--table 10/5,20/3,4,40 --c 0.1",
    "horizontal-cascade": "--drafters base,small --lengths 5,3 --acceptances 0.73,0.65 "
    "--cost base=0.022 --cost small=0.0068",
    "vertical-cascade": "--drafters base,small --acceptances 0.73,0.8 --steps 2 --gamma 3 "
    "--cost base=0.022 --cost small=0.0068",
    "vertical-cascade-at-least": "--drafters base,small --acceptances 0.73,0.8 --at-least 5 "
    "--gamma 3 --cost base=0.022 --cost small=0.0068",
    "full-cascade": "--drafters base,small,copy --lengths 5,3,10/3,10/10 "
    "--acceptances 0.73,0.65,0.2/0.8,0.3/0.3 --cost base=0.02 --cost small=0.005 --c 0",
    "token-cascade": "--deferral 0.3 --c 0.1",
    "sequence-cascade": "--deferral 0.3 --length 64 --c 0.1",
    "beam-search": "--acceptance 0.7 --gamma 4 --beam 4 --draft-beam 8 --c 0.05",
    "adaptive-heuristic": "--acceptance 0.8 --c 0.05",
    "adaptive-estimate": "--acceptance 0.8 --c 0.05",
}


class SchemeGroup(click.Group):
    """A command with one sub-command for each scheme, made by ``make`` on demand."""

    make: Callable[[str], click.Command]

    def list_commands(self, context: click.Context) -> list[str]:
        from specsim.schemes import SCHEMES

        return list(SCHEMES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        from specsim.schemes import SCHEMES

        return self.make(name) if name in SCHEMES else None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(context, args[0]) is None:
            known = ", ".join(self.list_commands(context))
            raise InvalidArgumentError(f"no scheme is named {args[0]!r} (known: {known})")
        return super().resolve_command(context, args)


def scheme_command(verb: str, name: str, run: Callable[..., None]) -> click.Command:
    """The sub-command of one scheme; ``run`` gets the candidates of every field and the cost."""
    from specsim.schemes import SCHEMES

    kind = SCHEMES[name]
    summary, descriptions = _documentation(kind)

    def callback(**given: Any) -> None:
        candidates = {field.name: given.pop(field.name) for field in fields(kind)}
        if "c" in candidates:
            given["c"] = candidates["c"][0]
        run(name, candidates, **given)

    command: Callable[..., Any] = format_option(callback)
    # A policy that knows the draft's cost is told it once, for itself and for the pricing.
    knows_cost = any(field.name == "c" for field in fields(kind))
    for option in reversed(_COST_OPTIONS[1:] if knows_cost else _COST_OPTIONS):
        command = option(command)
    for field in reversed(fields(kind)):
        command = _option(field, descriptions.get(field.name))(command)
    return click.command(
        name, help=summary, epilog=f"Example: specsim {verb} {name} {EXAMPLES[name]}"
    )(command)


def _documentation(kind: type) -> tuple[str, dict[str, str]]:
    """The first line of a class docstring, and its ``name : text`` lines."""
    lines = (kind.__doc__ or "").splitlines()
    found: dict[str, str] = {}
    latest = None
    for line in lines[1:]:
        match = re.match(r"    (\w+(?:, \w+)*) : (.*)", line)
        if match:
            latest = match[1].split(", ")
            found.update(dict.fromkeys(latest, match[2]))
        elif latest and line.startswith(" " * 8):
            found.update({name: f"{found[name]} {line.strip()}" for name in latest})
        else:
            latest = None
    return lines[0], found


def _option(field: Field[Any], description: str | None) -> Callable[..., Any]:
    name = "--" + field.name.replace("_", "-")
    help_text = (description or "").replace("``", "")
    if field.type == "bool":
        return click.option(
            f"{name}/--no-{name[2:]}", field.name, default=field.default, help=help_text
        )
    kind = _FieldType(str(field.type))
    if field.default is MISSING:
        return click.option(name, field.name, type=kind, required=True, help=help_text)
    default = str(field.default)
    return click.option(
        name, field.name, type=kind, default=default, show_default=True, help=help_text
    )


class _FieldType(click.ParamType[Any]):
    """The candidates that an option's words name, by the type of the field."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = {
            "int": "n|first:last",
            "float": "number",
            "Acceptance": "alpha",
            "tuple[str, ...]": "name,name",
            "tuple[int, ...]": "n,first:last",
            "tuple[Acceptance, ...]": "alpha,alpha",
            "tuple[tuple[int, ...], ...]": "n,n/n",
            "tuple[tuple[float, ...], ...]": "x/x,x",
            "tuple[tuple[Acceptance, ...], ...]": "alpha,alpha/alpha",
        }.get(kind, "text")

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> Candidates:
        option = parameter.opts[0] if parameter else "value"
        return value if isinstance(value, list) else self.candidates(option, value)

    def candidates(self, option: str, word: str) -> Candidates:
        match self.kind:
            case "int":
                return list(IntegerRange().check(option, word))
            case "float":
                return list(Numbers(float("-inf")).check(option, word))
            case "Acceptance":
                return [acceptance(option, word)]
            case "tuple[str, ...]":
                return [tuple(part.strip() for part in word.split(","))]
        if self.kind.startswith("tuple[tuple"):
            entry = _FieldType(self.kind.removeprefix("tuple[").removesuffix(", ...]"))
            rows = [entry.candidates(option, row) for row in word.split("/")]
            return [tuple(rows) for rows in product(*rows)]
        if self.kind.startswith("tuple["):
            entry = _FieldType(self.kind.removeprefix("tuple[").removesuffix(", ...]"))
            parts = [entry.candidates(option, part) for part in word.split(",")]
            return [tuple(parts) for parts in product(*parts)]
        return [word]


def acceptance(option: str, word: str) -> Acceptance:
    """``0.8``; ``0.9,0.8`` by position; ``beta:a,b``; ``decay:alpha,rate``; ``survival:S1,S2``."""
    from specsim import acceptance as kinds

    kind, colon, rest = word.partition(":")
    if not colon:
        rates = numbers(option, word.split(","), low=0, high=1)
        if rates.size == 1:
            return kinds.ConstantAcceptance(float(rates[0]))
        return kinds.PerPositionAcceptance(tuple(rates.tolist()))
    values = numbers(option, rest.split(",")).tolist()
    makers: dict[str, Callable[..., Acceptance]] = {
        "beta": kinds.BetaAcceptance,
        "decay": kinds.DecayingAcceptance,
        "survival": lambda *curve: kinds.SurvivalAcceptance(curve),
    }
    if kind not in makers:
        raise InvalidArgumentError(
            f"{option} must be a rate or one of {', '.join(makers)}:..., got {word}"
        )
    try:
        return makers[kind](*values)
    except TypeError:
        raise InvalidArgumentError(f"{option} {word} has the wrong number of numbers") from None


_COST_OPTIONS = (
    click.option(
        "--c",
        type=Number(0),
        help="Cost of a draft run in target runs, of every draft model not named in --cost.",
    ),
    click.option(
        "--cost",
        multiple=True,
        metavar="NAME=C",
        help="Cost of a run of one draft model; may be repeated.",
    ),
    verify_options,
)


def draft_models(law: BlockLaw) -> set[str]:
    """The models that a law runs, but for the target."""
    from specsim.laws import TARGET

    return {run.model for run in law.runs} - {TARGET}


def read_cost(models: Collection[str], given: dict[str, Any]) -> Cost:
    """The cost that the options say, for these draft models."""
    from specsim.cost import Cost

    named: dict[str, float] = {}
    for pair in given["cost"]:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--cost must be NAME=C, got {pair}")
        named[name] = Number(0).check(f"--cost {name}", value)
    unknown = [name for name in named if name not in models]
    if unknown:
        known = ", ".join(sorted(models)) or "none"
        raise InvalidArgumentError(
            f"--cost names {unknown[0]!r}, the scheme's drafters are: {known}"
        )
    missing = sorted(set(models) - set(named))
    if missing and given["c"] is None:
        raise InvalidArgumentError(
            f"--c is missing: the cost of a run of {', '.join(missing)}, in target runs"
        )
    return Cost(
        {**dict.fromkeys(missing, given["c"] or 0.0), **named},
        read_verify(given),
        given["overhead"],
    )


def refuse_mixture(context: click.Context) -> None:
    """Options before the scheme's name would be ignored: say so instead."""
    reason = f"stands before the scheme {context.invoked_subcommand}; put it behind"
    refuse_given(context.params, reason)


def build(name: str, values: dict[str, Any]) -> Any:
    """The scheme."""
    from specsim.schemes import SCHEMES

    return SCHEMES[name](**values)


def only(candidates: dict[str, Candidates]) -> dict[str, Any]:
    """The one value of every field."""
    for name, values in candidates.items():
        if isinstance(values, list) and len(values) > 1:
            option = "--" + name.replace("_", "-")
            raise InvalidArgumentError(
                f"{option} must be one value here, got {len(values)}; specsim optimize searches"
            )
    return {
        n: values[0] if isinstance(values, list) else values for n, values in candidates.items()
    }


def grid(candidates: dict[str, Candidates], most: int) -> Iterator[dict[str, Any]]:
    """Every combination of the candidates."""
    lists = [values if isinstance(values, list) else [values] for values in candidates.values()]
    size = 1
    for values in lists:
        size *= len(values)
    if size > most:
        raise SpecsimError(
            f"the search has {size:,} candidates, at most {most:,} are tried; narrow it"
        )
    for combination in product(*lists):
        yield dict(zip(candidates, combination, strict=True))


def varied(candidates: dict[str, Candidates]) -> Sequence[str]:
    """The fields that the search varies."""
    return [n for n, values in candidates.items() if isinstance(values, list) and len(values) > 1]


def scheme_row(name: str, scheme: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a scheme gives: the renewal figures and the runs of each model per block."""
    from specsim.predict import renewal
    from specsim.schemes import stationary_law

    law = stationary_law(scheme)
    cost = read_cost(draft_models(law), given)
    plain = {"plain": scheme.plain()} if hasattr(scheme, "plain") else {}
    figures = renewal.stationary(law, cost, **plain)
    models = dict.fromkeys(run.model for run in law.runs)
    return {
        "scheme": name,
        "speedup": figures.speedup,
        "tokens_per_call": figures.tokens_per_call,
        "cost_per_block": figures.cost_per_block,
        **{f"{model}_runs_per_block": law.calls(model) for model in models},
    }
