"""``specsim doctor``: whether this machine and this installation are fit to measure."""

from __future__ import annotations

import click

from specsim.commands._options import format_option, option


@click.command(epilog="Examples: specsim doctor; specsim doctor --target Qwen/Qwen3-0.6B")
@option(
    "--target",
    str,
    "Also find how many threads calibrate takes for this model: a folder, a Hub name, a shape.",
)
@format_option
def command(target: str | None, output_format: str) -> int:
    """What specsim finds on this machine: each line is ok, or says what to do.

    Versions, cores and threads, the accelerator, what other programs use of the machine just now,
    the embedded family, the inference engine, memory and caches.

    Exits 1 where something is missing or broken that specsim needs.
    """
    from specsim import doctor
    from specsim.report.tables import show

    found = doctor(target=target)
    show(found, output_format)
    return 0 if found.fit else 1
