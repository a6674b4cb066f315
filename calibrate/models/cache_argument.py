"""What a model calls the key-value cache that it is run with."""

from __future__ import annotations

import inspect
from typing import Any


def cache_argument(model: Any) -> str:
    """The name of the argument of ``model.forward`` that takes the cache.

    Up to transformers 5.23 all models call it ``past_key_values``; 5.24 renames it to ``cache``,
    warns of the old name in every run, and is to drop it in 5.40.  Models whose code comes with
    their weights keep the name that they were written with.
    """
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
