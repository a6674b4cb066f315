"""What a model's name finds: shipped shapes, aliases, files and the local Hub cache."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from specsim import hardware
from specsim.checks import SpecsimError
from tests.support.refusals import refuses
from tests.support.shapes import SMALL, VARIANTS


def cached(folder: Path, name: str, revision: str, config: object) -> Path:
    """A model in a Hub cache, laid out as huggingface_hub does."""
    model = folder / f"models--{name.replace('/', '--')}"
    snapshot = model / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return model


CACHES = {
    "HF_HUB_CACHE": "",
    "HF_HOME": "hub",
    "XDG_CACHE_HOME": "huggingface/hub",
    "HOME": ".cache/huggingface/hub",
}


@pytest.mark.parametrize("variable", CACHES)
def test_the_local_hub_cache(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CACHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    folder = tmp_path / CACHES[variable]
    small, other = VARIANTS["qwen3"], VARIANTS["llama"]
    # One snapshot serves; of several the one that main means.
    model = cached(folder, "some/model", "aaa", small)
    assert hardware.read_config("some/model") == small
    cached(folder, "some/model", "bbb", other)
    with pytest.raises(SpecsimError, match=r"has no config\.json of it"):
        hardware.read_config("some/model")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbb\n", encoding="utf-8")
    assert hardware.read_config("some/model") == other
    # What is cached goes before an alias, and a shipped shape's own name before what is cached.
    cached(folder, "meta-llama/Llama-3.1-8B-Instruct", "ccc", small)
    assert hardware.read_config("meta-llama/Llama-3.1-8B-Instruct") == small
    cached(folder, "llama-3.1-8b", "ddd", small)
    assert hardware.read_config("llama-3.1-8b")["num_hidden_layers"] == 32
    with pytest.raises(SpecsimError) as refusal:
        hardware.read_config("meta-llama/Llama-3.1-9B")
    assert str(folder) in str(refusal.value)
    assert "did you mean" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_aliases() -> None:
    text = (Path(hardware.__file__).parents[1] / "configs" / "aliases.csv").read_text("utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    names = [row["checkpoint"].rpartition("/")[2].casefold() for row in rows]
    assert len(set(names)) == len(names)
    assert {row["shape"] for row in rows} == set(hardware.known_shapes())
    for row in rows:
        by_name = hardware.shape(row["shape"])
        for spelling in (row["checkpoint"], row["checkpoint"].rpartition("/")[2].upper()):
            shape = hardware.shape(spelling)
            assert (shape.layers, shape.precision) == (by_name.layers, by_name.precision)
    assert hardware.shape("Qwen3-Coder-30B-A3B-Instruct").longest_context == 262_144
    assert hardware.shape("Llama-3.1-8B-INSTRUCT").longest_context == 131_072


def made(model: str, **change: object) -> hardware.Shape:
    return hardware.shape_from_config({**VARIANTS[model], **change})


test_what_is_not_known_is_refused = refuses(
    (lambda: hardware.read_config("qwen3-8"), "nor a config.json, did you mean qwen3-8b"),
    (lambda: hardware.read_config("no/such"), r"neither a known shape \(deepseek-v3, "),
    (lambda: hardware.shape("no/llama-9"), "did you mean llama-3"),
    (lambda: made("qwen3_next", layer_types=["other"] * 4), "layer type 'other' is not known"),
    (lambda: made("llama4_text", layer_types=["sliding_attention"] * 4), "chunked_attention"),
    (lambda: SMALL[0].flops(2, 0, logits=3), r"logits must be a whole number in \[0, 2\], got 3"),
    error=SpecsimError,
)
