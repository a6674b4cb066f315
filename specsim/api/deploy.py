"""``specsim.deploy``: a deployment from names and plain numbers, as commands take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.checks import InvalidArgumentError
from specsim.deployment.deployment import Deployment
from specsim.deployment.drafter_words import drafter
from specsim.deployment.drafters import Drafter
from specsim.hardware import Accelerator, Interconnect, Parallelism, Shape


def deploy(
    target: str | Path | Shape,
    accelerator: str | Path | Accelerator,
    drafters: Sequence[str | Drafter] | str | Drafter = (),
    *,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    data_parallel: int | None = None,
    expert_parallel: int | None = None,
    imbalance: float | None = None,
    routing_exponent: float | None = None,
    interconnect: str | Path | Interconnect | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    memory_utilisation: float | None = None,
    reserve_gb: float | None = None,
    fit: str | Path | None = None,
    efficiency: float | Sequence[float] | None = None,
    layer_us: float | None = None,
    overhead_us: float | None = None,
    round_us: float | None = None,
    graph_tokens: int | None = None,
    eager_layer_us: float | None = None,
) -> Deployment:
    """A target and its drafters on cards, in the units that people type; None is the default.

    drafters : one or several, each a Drafter or its words (``"eagle3:draft_vocab=32000"``,
        ``"draft_model:llama-3.2-1b"``)
    fit : name of a shipped fit, or a profile or acceptance file to fit to; what is given beside it
        replaces single values of it
    efficiency : share of the peaks that is reached, one for all or (compute, memory)

    Everything else is as in ``Deployment`` and ``Efficiency``, with microseconds and GiB.
    """
    several = [drafters] if isinstance(drafters, (str, Drafter)) else drafters
    base = Deployment(
        target,
        accelerator,
        tuple(drafter(each) if isinstance(each, str) else each for each in several),
        Parallelism(
            **_given(
                tensor=tensor_parallel,
                pipeline=pipeline_parallel,
                data=data_parallel,
                expert=expert_parallel,
            )
        ),
        interconnect,
        dtype,
        kv_dtype,
        **_given(
            utilisation=memory_utilisation,
            routing_exponent=routing_exponent,
            imbalance=imbalance,
        ),
        **_given(reserve=None if reserve_gb is None else 2.0**30 * reserve_gb),
    )
    if fit is not None:
        from specsim.deployment.fits import fitted

        base = as_fitted = fitted(base, fit)
        if routing_exponent is not None:
            base = replace(base, routing_exponent=routing_exponent)
    shares = [] if efficiency is None else np.atleast_1d(efficiency).tolist()
    if len(shares) > 2:
        raise InvalidArgumentError(
            f"efficiency must be one number or compute,memory, got {len(shares)} of them"
        )
    reached = replace(
        base.efficiency,
        **(_given(compute=shares[0], memory=shares[-1]) if shares else {}),
        **_given(layer_s=_s(layer_us), graph_tokens=graph_tokens, eager_layer_s=_s(eager_layer_us)),
    )
    host = replace(base.host, **_given(step_s=_s(overhead_us), round_s=_s(round_us)))
    changed = replace(base, efficiency=reached, host=host)
    if fit is not None and changed != as_fitted:
        # What was held out of the fit says nothing of other values.
        return replace(
            changed, fit=f"{base.fit}; with other values given beside it", fit_error=None
        )
    return changed


def _s(microseconds: float | None) -> float | None:
    return None if microseconds is None else 1e-6 * microseconds


def _given(**values: Any) -> dict[str, Any]:
    """Those that were said."""
    return {name: value for name, value in values.items() if value is not None}
