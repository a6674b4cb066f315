"""transformers 5.23.0: settings of ``generation_config`` (``generation/configuration_utils.py``).

With a draft model they belong to the assistant: given to the target they are ignored.  A schedule
or a confidence threshold would change the draft length on the way, so both are off.  Prompt lookup,
multi-token prediction and DFlash are settings of the target itself; a block of DFlash holds one
token more than it drafts.
"""

from __future__ import annotations

import json
from typing import Any

from specsim.checks import UnsupportedError
from specsim.engines.drafting import Configuration, Drafting, Engine, Method, Order

_METHODS: dict[Method, Drafting] = {
    "draft_model": Drafting("assistant_model", model="none", acceptance_law="ratio-test"),
    "dflash": Drafting("dflash", model="none", acceptance_law="ratio-test"),
    "mtp": Drafting("use_mtp", model="none", acceptance_law="ratio-test"),
    "ngram": Drafting("prompt_lookup_num_tokens", model="none"),
}


def _write(order: Order) -> Configuration:
    """Lines of Python; assisted generation takes one request at a time."""
    if order.batch != 1:
        raise UnsupportedError(f"transformers drafts at batch 1 only, got --batch {order.batch}")
    length, word = order.one_length, order.drafting.word
    if word == "assistant_model":
        settings: dict[str, Any] = {
            "num_assistant_tokens": length,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
        return Configuration(_lines("assistant_model", settings))
    if word == "use_mtp":
        note = (
            "transformers drafts one token for each MTP layer of the model and takes no draft "
            f"length; the best would be {length}"
        )
        return Configuration(_lines("model", {word: True}), (note,))
    if word == "dflash":
        target = _lines("model", {"speculation_type": word})
        return Configuration(f"{target}\nassistant_model.config.block_size = {length + 1}")
    settings = {word: length}
    if order.lookup_max is not None:
        settings["max_matching_ngram_size"] = order.lookup_max
    return Configuration(_lines("model", settings))


def _lines(owner: str, settings: dict[str, Any]) -> str:
    # JSON writes numbers and strings as Python does, but not true.
    return "\n".join(
        f"{owner}.generation_config.{name} = {value if value is True else json.dumps(value)}"
        for name, value in settings.items()
    )


ENGINE = Engine(
    "transformers",
    "transformers 5.23.0",
    _METHODS,
    _write,
    lookups=("lookup_max",),
    one_request=True,
)
