"""What the tests of more than one study need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specsim.schemes import Scheme, scheme_name


def described(scheme: Scheme) -> dict[str, Any]:
    """What a row of ``specsim validate --scheme`` says of its setting."""
    fields = dict.fromkeys(("drafters", "gamma", "steps", "at_least", "rule", "threshold"))
    named = {"scheme": scheme_name(scheme), "setting": scheme.label, "lossless": scheme.lossless}
    return {**named, **fields, **scheme.row_fields()}


def decoding(scheme: Scheme, tokens: float, speedup: float, **changes: Any) -> dict[str, Any]:
    """A row of ``specsim validate --scheme``, as far as studies read it."""
    return {
        "temperature": 1.0,
        **described(scheme),
        "requests": 4,
        "predicted_tokens_per_call": tokens,
        "measured_tokens_per_call": tokens,
        "predicted_speedup": 1.1 * speedup,
        "measured_speedup": speedup,
        "measured_low": 0.9 * speedup,
        "measured_high": 1.2 * speedup,
        "agreement": 1.0,
        **changes,
    }


def document(rows: Sequence[Mapping[str, Any]]) -> str:
    """The JSON of a result with these rows, as far as studies read it."""
    return json.dumps({"answer": {"rows": rows}})


def sentences(text: str) -> list[str]:
    """A period, a space and a capital or a digit end a sentence."""
    return re.split(r"(?<=\.) (?=[A-Z0-9])", text)
