"""Operations, memory traffic and arithmetic intensity of a law, against plain decoding.

Operations grow with the positions that a model reads, memory traffic with its runs: weights and
KV cache are read once per run, however many positions it has.  That is why speculation multiplies
operations by a little more than one, divides memory operations by nearly E[N], and raises the
intensity by both (Leviathan23 Thm 3.11 and section 3.4; Kim23 Figure 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specsim.checks import UnsupportedError, number
from specsim.laws import TARGET, BlockLaw


@dataclass(frozen=True)
class Operations:
    """Per emitted token, over the same for plain decoding.

    operations : arithmetic operations
    memory : memory operations (bytes of weights and KV cache read)
    """

    operations: float
    memory: float

    @property
    def intensity(self) -> float:
        """Arithmetic operations per memory operation."""
        return self.operations / self.memory


def operations(law: BlockLaw, c_ops: Mapping[str, float], c_mem: Mapping[str, float]) -> Operations:
    """Stationary operations and memory traffic of a law.

    c_ops : for each draft model, operations per position over the target's, >= 0
    c_mem : for each draft model, bytes read per run over the target's, >= 0
    """
    arithmetic = traffic = 0.0
    for run, count in law.expected_runs().items():
        arithmetic += count * run.positions * _ratio("c_ops", c_ops, run.model)
        traffic += count * _ratio("c_mem", c_mem, run.model)
    return Operations(arithmetic / law.tokens_per_call, traffic / law.tokens_per_call)


def _ratio(name: str, ratios: Mapping[str, float], model: str) -> float:
    if model == TARGET:
        return 1.0
    if model not in ratios:
        raise UnsupportedError(f"{name} is not known for the model {model!r}")
    return number(f"{name} of {model}", ratios[model], low=0.0)
