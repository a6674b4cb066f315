"""``specsim simulate``: draw blocks of any decoding scheme."""

from __future__ import annotations

from typing import Any

import click

from specsim.commands._options import Integer
from specsim.commands._schemes import (
    SchemeGroup,
    build,
    draft_models,
    only,
    read_cost,
    scheme_command,
)


class _Simulate(SchemeGroup):
    def make(self, name: str) -> click.Command:
        command = scheme_command("simulate", name, simulate)
        command.params.insert(
            0,
            click.Option(
                ["--blocks"],
                type=Integer(1),
                default=1_000_000,
                show_default=True,
                help="Blocks of the long run.",
            ),
        )
        command.params.insert(
            1,
            click.Option(
                ["--tokens"], type=Integer(1), help="Instead: requests of exactly so many tokens."
            ),
        )
        command.params.insert(
            2,
            click.Option(
                ["--requests"],
                type=Integer(2),
                default=10_000,
                show_default=True,
                help="Requests, with --tokens.",
            ),
        )
        command.params.insert(
            3,
            click.Option(
                ["--seed"], type=Integer(), default=0, show_default=True, help="Random seed."
            ),
        )
        return command


@click.command(
    cls=_Simulate,
    epilog="Example: specsim simulate bild --fallback 0.2 --rollback 0.05 --c 0.1",
)
def command() -> None:
    """Draw blocks of a decoding scheme: speedup and tokens per call, each with its interval.

    specsim simulate SCHEME --help lists the options of a scheme.
    """


def simulate(
    name: str,
    candidates: dict[str, Any],
    blocks: int,
    tokens: int | None,
    requests: int,
    seed: int,
    output_format: str,
    **given: Any,
) -> None:
    import numpy as np

    from specsim.predict import monte_carlo
    from specsim.report.tables import render

    scheme = build(name, only(candidates))
    adaptive = hasattr(scheme, "policy")
    source = scheme if adaptive else scheme.law()
    cost = read_cost({scheme.drafter} if adaptive else draft_models(source), given)
    plain = {"plain": scheme.plain()} if hasattr(scheme, "plain") else {}
    random = np.random.default_rng(seed)
    row: dict[str, Any] = {"scheme": name}
    drawn: monte_carlo.Simulation | monte_carlo.Requests
    if tokens is None:
        drawn = monte_carlo.simulate(source, cost, random, blocks, **plain)
        row["blocks"] = drawn.blocks
    else:
        drawn = monte_carlo.simulate_requests(source, cost, random, tokens, requests, **plain)
        row.update(requests=requests, tokens=tokens)
        for percent in (50, 95, 99):
            row[f"cost_p{percent}"] = float(np.quantile(drawn.cost, percent / 100))
    for figure in ("speedup", "tokens_per_call"):
        estimate = getattr(drawn, figure)
        row[figure] = estimate.best
        row[f"{figure}_low"], row[f"{figure}_high"] = estimate.low, estimate.high
    click.echo(render(row, output_format, f"Monte Carlo, {drawn.level:.0%} intervals"))
