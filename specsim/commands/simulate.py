"""``specsim simulate``: draw blocks of any decoding scheme."""

from __future__ import annotations

from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import Integer, option, seed_option
from specsim.commands._schemes import Candidates, SchemeGroup, only, scheme_command

_OPTIONS = (
    option("--blocks", Integer(1), "Blocks of the long run. [default: 1000000]"),
    option("--tokens", Integer(1), "Instead: requests of exactly so many tokens."),
    option("--requests", Integer(2), "Requests, with --tokens. [default: 10000]"),
    seed_option,
)


class _Simulate(SchemeGroup):
    def make(self, name: str) -> click.Command:
        return scheme_command("simulate", name, _simulate, _OPTIONS)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and not context.resilient_parsing:
            schemes = ", ".join(self.list_commands(context))
            raise InvalidArgumentError(f"SCHEME is missing, one of: {schemes}")
        return super().parse_args(context, args)


@click.command(
    cls=_Simulate,
    epilog="Example: specsim simulate bild --fallback 0.2 --rollback 0.05 --c 0.1",
)
def command() -> None:
    """Draw blocks of a decoding scheme: speedup and tokens per call, each with its interval.

    specsim simulate SCHEME --help lists the options of a scheme.
    """


def _simulate(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    from specsim import simulate
    from specsim.report.tables import show

    scheme, known = only(kind, candidates, knowns)
    result = simulate(scheme, known=known, **given)
    show(result, output_format, f"Monte Carlo, {result.drawn.level:.0%} intervals")
