"""``specsim.schema``: JSON Schemas of the files that specsim reads."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from specsim.checks import check_choice

# Where the structure of a file is, by what the file is called.
_FILES = {
    "profile": ("specsim.profiles", "Profile"),
    "acceptance": ("specsim.counts.file", "AcceptanceFile"),
    "prediction": ("specsim.predict.prediction_file", "Predictions"),
    "accelerator": ("specsim.hardware.accelerators", "AcceleratorFile"),
    "interconnect": ("specsim.hardware.interconnects", "InterconnectFile"),
}
FILES = tuple(_FILES)


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of file, as this version of specsim reads it.

    name : profile, acceptance, prediction, accelerator or interconnect

    A schema says which fields there are and between which ends numbers lie.  What fields must be to
    one another (curves that do not rise, cells that are there once) the reader checks besides.

    >>> schema("profile")["$id"]
    'urn:specsim:profile:3'
    """
    import msgspec

    check_choice("name", name, FILES)
    module, kind_name = _FILES[name]
    home = import_module(module)
    kind = getattr(home, kind_name)
    described = msgspec.json.schema(kind)
    version = getattr(home, "VERSION", 1)
    properties = described["$defs"][kind_name]["properties"]
    if "version" in properties:
        properties["schema"] = {"const": home.SCHEMA}
        properties["version"] = {"const": version}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:specsim:{name}:{version}",
        **described,
    }
