"""Options of the commands that ask what to draft, and what they ask together."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    Integer,
    IntegerRange,
    Number,
    acceptance_law_option,
    alpha_option,
    margin_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
    stack,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.api.question import Question

question_options = stack(
    alpha_option,
    option("--c", Number(0), "Cost of a draft run, in target runs."),
    option(
        "--c-ops",
        Number(0),
        "Operations per token, draft / target. [default: 0, the target's own only]",
    ),
    option(
        "--c-memory",
        Number(0),
        "Bytes read per run, draft / target. [default: 0, the target's own only]",
    ),
    verify_options,
    profile_options,
    acceptance_law_option,
    option(
        "--batch",
        IntegerRange(1),
        "Requests that share iterations, one or many. "
        "[default: as in the profile, or 1,2,4,...,256]",
    ),
    option(
        "--context",
        IntegerRange(),
        "Tokens in the cache of each request. [default: as in the profile, or 512,4096]",
    ),
    margin_option,
    option("--prompt", Integer(1), "By load: tokens of a prompt, for the time of reading it."),
    mode_option,
    deployment_options,
)


def read_question(given: dict[str, Any]) -> Question:
    """What ``question_options`` ask, taken out of what was given."""
    from specsim.api.question import Question
    from specsim.cost import Prices

    given["alpha"] = read_alpha(given)
    prices = Prices(**{field.name: given.pop(field.name) for field in fields(Prices)})
    asked_load = [given.pop(name) for name in ("batch", "context", "prompt")]
    load = None
    if any(each is not None for each in asked_load):
        from specsim.batching.workload import Load

        load = Load(*asked_load)
    names = ("alpha", "profile", "temperature", "mode", "acceptance_law", "margin")
    asked = {name: given.pop(name) for name in names}
    return Question(prices=prices, deployment=read_deployment(given), load=load, **asked)
