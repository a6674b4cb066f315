"""Options that say what serves, shared by all that simulates it."""

from __future__ import annotations

from typing import Any

import click

from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    Integer,
    acceptance_law_option,
    alpha_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
    stack,
)
from specsim.commands._workload import read_gamma

_ROUTINGS = ("round-robin", "least-outstanding", "prefix-aware")

engine_option = option(
    "--engine",
    str,
    "Engine and its own settings: docs/serving.md.",
    default="vllm",
    metavar="NAME[:SETTING=VALUE,...]",
)
routing_option = option(
    "--routing", click.Choice(_ROUTINGS), "Who gets a request.", default="round-robin"
)
setup_options = stack(
    option(
        "--gamma",
        str,
        "Drafts of a round: a number, 'table' for what optimize finds by load, ranges of batches "
        "as 1-16=5,17-64=3, or 'adaptive' (or adaptive:FILE) as SGLang adapts them. [default: "
        "plain decoding, no drafter]",
        metavar="N|table|RANGES|adaptive",
    ),
    alpha_option,
    profile_options,
    acceptance_law_option,
    mode_option,
    deployment_options,
    option(
        "--step-cost",
        str,
        "Coefficients of a step, or tables of kernels (kernels:FOLDER,layers=N), in place of a "
        "profile or deployment: docs/serving.md.",
        metavar="NAME=VALUE,...",
    ),
    engine_option,
    option("--replicas", Integer(1), "Engines behind a router.", default=1),
    routing_option,
)


def read_setup(given: dict[str, Any]) -> dict[str, Any]:
    """What ``setup_options`` say in words that need reading, taken out of what was given."""
    return {
        "gamma": read_gamma(given.pop("gamma")),
        "alpha": read_alpha(given),
        "deployment": read_deployment(given),
        "step_model": given.pop("step_cost"),
    }
