"""``specsim workload``: requests in a few figures."""

from __future__ import annotations

from typing import Any

import click

from specsim.commands._options import format_option, seed_option
from specsim.commands._workload import read_workload, workload_options


@click.command(
    epilog="Examples: specsim workload --workload AzureLLMInferenceTrace_conv.csv; "
    "specsim workload --rate 4 --prompt lognormal:1155,0.9 --output 211"
)
@workload_options
@seed_option
@format_option
def command(seed: int, output_format: str, **given: Any) -> None:
    """Requests in a few figures, as specsim serve would get them.

    How many, how fast and how evenly they come, how long prompts and outputs are, and what prompts
    share.
    """
    from specsim import describe_workload
    from specsim.report.tables import show

    show(describe_workload(read_workload(given), seed=seed), output_format, "requests")
