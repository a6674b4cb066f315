"""Published schemas: what the readers take is valid, and what they refuse for its form is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.api.schema import FILES
from specsim.checks import InvalidArgumentError
from specsim.counts.file import read_acceptance
from specsim.predict.prediction_file import fixed
from specsim.profiles import read_profile
from tests.support.command_line import fail, run
from tests.support.mutations import SAMPLES
from tests.support.profiles import write_grid

# As the readers bound them.
_KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def problems(value: Any, told: dict[str, Any], whole: dict[str, Any], path: str = "$") -> list[str]:
    """Where a value is not as a schema says: the words of it that these schemas use, and no more.

    A slow obvious twin of the libraries that check JSON Schema.
    """
    if "$ref" in told:
        return problems(value, whole["$defs"][told["$ref"].rpartition("/")[2]], whole, path)
    if "anyOf" in told:
        found = [problems(value, each, whole, path) for each in told["anyOf"]]
        return [] if not all(found) else found[0]
    known = {
        *("type", "title", "description", "properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "default"),
        *("exclusiveMaximum", "pattern", "enum", "const", "$schema", "$id", "$defs"),
    }
    assert set(told) <= known, set(told) - known
    wrong = []
    if "const" in told and value != told["const"]:
        wrong.append(f"{path}: const")
    if "enum" in told and value not in told["enum"]:
        wrong.append(f"{path}: enum")
    kind = told.get("type")
    if kind is not None and (
        not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        return [*wrong, f"{path}: type"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        within = (
            told.get("minimum", value) <= value <= told.get("maximum", value)
            and ("exclusiveMinimum" not in told or value > told["exclusiveMinimum"])
            and ("exclusiveMaximum" not in told or value < told["exclusiveMaximum"])
        )
        wrong += [] if within else [f"{path}: range"]
    if isinstance(value, str) and "pattern" in told and not re.search(told["pattern"], value):
        wrong.append(f"{path}: pattern")
    if isinstance(value, list):
        if not told.get("minItems", 0) <= len(value) <= told.get("maxItems", len(value)):
            wrong.append(f"{path}: length")
        for at, each in enumerate(value):
            wrong += problems(each, told.get("items", {}), whole, f"{path}[{at}]")
    if isinstance(value, dict) and told.get("type") == "object":
        inner, rest = told.get("properties", {}), told.get("additionalProperties", True)
        missing = [name for name in told.get("required", []) if name not in value]
        wrong += [f"{path}.{name}: missing" for name in missing]
        for name, each in value.items():
            if name in inner:
                wrong += problems(each, inner[name], whole, f"{path}.{name}")
            elif rest is False:
                wrong.append(f"{path}.{name}: unknown")
            elif isinstance(rest, dict):
                wrong += problems(each, rest, whole, f"{path}.{name}")
    return wrong


def valid(value: Any, name: str) -> list[str]:
    told = specsim.schema(name)
    return problems(value, {"$ref": told["$ref"]}, told)


@pytest.mark.parametrize("name", FILES)
def test_a_schema_names_its_version(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, "schema", name)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told == specsim.schema(name)
    assert told["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert re.fullmatch(rf"urn:specsim:{name}:\d+", told["$id"])


def test_files_that_are_written_are_valid(tmp_path: Path) -> None:
    profile = write_grid(tmp_path)
    assert valid(json.loads(profile.read_text()), "profile") == []
    acceptance = tmp_path / "acceptance.json"
    specsim.read(SAMPLES / "vllm-bench-serve-mtp3.txt", out=acceptance)
    assert valid(json.loads(acceptance.read_text()), "acceptance") == []
    _, prediction = fixed(profile, 20)
    assert valid(json.loads(prediction.read_text()), "prediction") == []
    assert read_profile(profile).gamma_max == 4
    assert read_acceptance(acceptance).counts
    own = {"name": "a", "memory_gb": 80, "bandwidth_gb_s": 3000.0, "tflops": {"bfloat16": 900}}
    assert valid(own, "accelerator") == []
    link = {"name": "l", "bandwidth_gb_s": 450, "latency_us": 5, "peer_bandwidth_gb_s": None}
    assert valid(link, "interconnect") == []
    assert valid({**own, "interconnect": link}, "accelerator") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"surprise": 1}, "$.surprise: unknown"),
        ({"version": 2}, "$.version: const"),
        ({"gamma_max": 0}, "$.gamma_max: range"),
        ({"gamma_max": "four"}, "$.gamma_max: type"),
        ({"grid": [{"model": "judge"}]}, "$.grid[0].model: enum"),
    ],
)
def test_what_is_refused_for_its_form_is_not_valid(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    content = json.loads(write_grid(tmp_path).read_text())
    assert said in valid({**content, **change}, "profile")


def test_an_unknown_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name must be one of profile, acceptance" in fail(capsys, "schema", "trace")
    with pytest.raises(InvalidArgumentError, match="got 'trace'"):
        specsim.schema("trace")
