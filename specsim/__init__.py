"""specsim: will speculative decoding pay, with which draft, how many tokens, and how sure is that?

The Python calls behind the commands are here and load on first use::

    >>> import specsim
    >>> specsim.optimize(alpha=0.8, c=0.05).gamma
    8
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.extrapolation import extrapolate
    from specsim.optimizers.gamma import Evaluation, evaluate, optimize

__version__ = "0.1.0"
__all__ = ["Evaluation", "evaluate", "extrapolate", "optimize"]

_HOME = {
    "Evaluation": "specsim.optimizers.gamma",
    "evaluate": "specsim.optimizers.gamma",
    "optimize": "specsim.optimizers.gamma",
    "extrapolate": "specsim.extrapolation",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'specsim' has no attribute {name!r}")
