"""Options that say what runs on which cards, and how an engine runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specsim.checks import InvalidArgumentError
from specsim.commands._options import Integer, Number, Numbers, option, stack

if TYPE_CHECKING:
    from specsim.deployment.deployment import Deployment

_SHAPE = {"metavar": "SHAPE"}
_NAME = {"metavar": "NAME"}
# By the name of the argument: its type, its help, and what else click should know.
_OPTIONS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "target": (
        str,
        "Target model by its shape: a shipped one, a config.json, or a name in the Hub's cache.",
        _SHAPE,
    ),
    "draft": (str, "Draft model by its shape; short for --drafter draft_model:SHAPE.", _SHAPE),
    "drafter": (
        str,
        "Where drafts come from: draft_model, eagle, eagle3, mtp, medusa, parallel (or its kinds "
        "p_eagle, pard and dflash), ngram or suffix, and what is known of it, as "
        "eagle3:llama-3.1-8b,alpha=0.8/0.7. Several are compared.",
        {"metavar": "NAME[:KEY=VALUE,...]", "multiple": True},
    ),
    "accelerator": (str, "Accelerator, or a .json file: docs/deployments.md.", _NAME),
    "tensor_parallel": (Integer(1), "Cards that share every layer. [default: 1]", {}),
    "pipeline_parallel": (Integer(1), "Stages of layers. [default: 1]", {}),
    "data_parallel": (Integer(1), "Groups of cards with requests of their own. [default: 1]", {}),
    "expert_parallel": (
        Integer(1),
        "Cards that routed experts are dealt out to. [default: 1, every expert is divided]",
        {},
    ),
    "imbalance": (
        Number(1),
        "Work of the busiest of those cards, over what chance gives it. [default: 1]",
        {},
    ),
    "routing_exponent": (
        Number(0, 1),
        "n drafts of a request choose as many experts as n^R independent ones. [default: 1]",
        {},
    ),
    "interconnect": (str, "Between the cards. [default: the accelerator's]", _NAME),
    "dtype": (str, "Number type of the target's weights. [default: as in its config.json]", {}),
    "kv_dtype": (
        str,
        "Number type of the caches. [default: as its config.json says, else 16 bits]",
        {},
    ),
    "memory_utilisation": (
        Number(0, 1),
        "Share of the memory in use. [default: 0.9; vLLM takes 0.92 since 0.32]",
        {},
    ),
    "reserve_gb": (Number(0), "GiB of a card for graphs and activations. [default: 2]", {}),
    "fit": (
        str,
        "How close the engine gets to the peaks: a shipped fit, a profile or an acceptance file.",
        {"metavar": "NAME|FILE"},
    ),
    "efficiency": (
        Numbers(0, 1),
        "Share of the peaks that is reached, one number or compute,memory. [default: 1, a bound]",
        {},
    ),
    "layer_us": (Number(0), "Microseconds of a layer that no work hides. [default: 0]", {}),
    "overhead_us": (Number(0), "Microseconds of host time of every step. [default: 0]", {}),
    "round_us": (Number(0), "Microseconds that a round with drafts adds. [default: 0]", {}),
    "graph_tokens": (Integer(1), "Tokens of the largest CUDA graph. [default: no limit]", {}),
    "eager_layer_us": (
        Number(0),
        "Microseconds that the host needs for a layer behind the largest graph. [default: 0]",
        {},
    ),
}
deployment_options = stack(
    *(
        option(f"--{name.replace('_', '-')}", kind, help_text, **more)
        for name, (kind, help_text, more) in _OPTIONS.items()
    )
)


def read_deployment(given: dict[str, Any]) -> Deployment | None:
    """What ``deployment_options`` say, if anything, taken out of what was given."""
    said = {parameter: given.pop(parameter) for parameter in _OPTIONS}
    if not any(value not in (None, ()) for value in said.values()):
        return None
    for name in ("target", "accelerator"):
        if said[name] is None:
            raise InvalidArgumentError(
                f"--{name} is missing; give --target, --accelerator and --draft or --drafter, or "
                "--profile"
            )
    from specsim.api.deploy import deploy

    drafters = list(said.pop("drafter"))
    if (draft := said.pop("draft")) is not None:
        drafters.insert(0, f"draft_model:{draft}")
    return deploy(drafters=drafters, **said)
