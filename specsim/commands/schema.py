"""``specsim schema``: JSON Schemas of the files that specsim reads."""

from __future__ import annotations

import click


@click.command(epilog="Example: specsim schema profile > profile.schema.json")
@click.argument("name")
def command(name: str) -> None:
    """The JSON Schema of a kind of file: its fields, and between which ends numbers lie.

    NAME is profile (of specsim calibrate), acceptance (of specsim read), prediction (of specsim
    validate --blind), accelerator or interconnect (of one's own).
    """
    import json

    from specsim import schema

    click.echo(json.dumps(schema(name), indent=2))
