"""The inputs on a page: words that somebody types, and nothing of Python's own."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import specsim
from specsim.api.result import plain
from specsim.api.validation import BlindCheck
from specsim.deployment.drafters import DRAFTERS
from specsim.report.page.shown import name_of_input, shown_inputs
from tests.support.results import RESULTS


@cache
def class_names() -> frozenset[str]:
    """Of all classes of specsim."""
    modules = pkgutil.walk_packages(specsim.__path__, "specsim.")
    return frozenset(
        name
        for module in modules
        if not module.name.endswith("__main__")
        for name, each in vars(import_module(module.name)).items()
        if inspect.isclass(each) and each.__module__.startswith("specsim")
    )


@pytest.mark.parametrize("name", RESULTS)
def test_inputs_have_no_names_of_classes_and_nothing_that_python_writes_of_objects(
    name: str, results: Callable[[str], specsim.Result]
) -> None:
    shown = list(shown_inputs(plain(results(name).inputs)))
    assert shown
    for _, text in shown:
        assert text
        assert not class_names() & set(re.findall(r"\w+", text)), text
        assert not re.search(r"<|\bat 0x|Path\(|\w\(\w+=|\{", text), text


def test_kinds_are_named_as_they_are_typed() -> None:
    assert {"LognormalLength", "DraftModel", "Deployment", "VllmEngine"} < class_names()
    for method, each in DRAFTERS.items():
        drafter = {"kind": each.__name__, "model": "m"}
        assert dict(shown_inputs({"drafter": drafter})) == {"drafter": method, "drafter.model": "m"}
    inputs = {
        "deployment": specsim.deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b"),
        "alpha": specsim.Marginal([0.8, 0.6]),
        "workload": specsim.workload(prompt="lognormal:1155,0.9", output=7, rate=2.0).inputs,
        "profile": Path("p.json"),
        "check": BlindCheck(),
    }
    found = dict(shown_inputs(plain(inputs)))
    assert "deployment" not in found
    expected = {
        "deployment.target": "llama-3.1-8b",
        "deployment.drafters 1": "draft_model",
        "deployment.drafters 1.model": "llama-3.2-1b",
        "alpha": "marginal",
        "workload.arrivals": "poisson",
        "workload.prompt": "lognormal",
        "workload.output": "fixed",
        "profile": "p.json",
        "check": "blind",
    }
    assert {name: found[name] for name in expected} == expected


def test_names_end_with_their_units() -> None:
    assert name_of_input("deployment.efficiency.eager_layer_s") == (
        "deployment.efficiency.eager layer (s)"
    )
    assert name_of_input("gamma_max") == "gamma max"
    assert name_of_input("inputs") == "inputs"
