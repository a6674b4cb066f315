"""The collector of unused objects, which would interrupt what is timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def models_not_walked() -> Iterator[None]:
    """What lives long, models and modules, is not walked by a collection in mid-request."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
