"""The table of all decoders, from what ``specsim validate --scheme`` said.

    specsim validate profile.json --scheme all --format json > decoders.json
    python -m studies.decoders decoders.json --format markdown
    python -m studies.decoders decoders.json --orderings

With ``--orderings``: who beats whom according to the papers (``studies.orderings``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from specsim.commands._scheme_check import show
from specsim.report.tables import FORMATS, render
from studies.orderings import compute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rows", type=Path, help="what specsim validate --scheme --format json said")
    parser.add_argument("--format", default="table", choices=FORMATS)
    parser.add_argument("--orderings", action="store_true", help="the papers' claims instead")
    arguments = parser.parse_args()
    rows = json.loads(arguments.rows.read_text())
    if arguments.orderings:
        claims = compute(rows)
        print(render(claims, arguments.format, "the papers' orderings, on these models"))
    else:
        show(rows, arguments.format)


if __name__ == "__main__":
    main()
