"""Over how many cards a model is spread, in the four ways that engines have."""

from __future__ import annotations

from dataclasses import dataclass, fields

from specsim.checks import InvalidArgumentError, integer
from specsim.hardware.shapes import Shape


@dataclass(frozen=True)
class Parallelism:
    """Degrees of parallelism; one card by default.

    tensor : cards that share every layer, heads and widths divided among them; they exchange the
        states of all tokens twice a layer
    pipeline : stages that a run goes through one after the other, each with its share of layers
    data : groups of cards that have requests of their own; they share nothing but dealt-out experts
    expert : cards that the routed experts are dealt out to, whole ones to each; 1: an expert is
        divided like every other weight.  Experts may be dealt out over all cards of a stage, and
        the groups of ``data`` then send their tokens to each other's experts
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            integer(f"{field.name} parallel degree", getattr(self, field.name), low=1)
        if self.stage_cards % self.expert:
            raise InvalidArgumentError(
                f"expert parallel degree must divide tensor x data, which is {self.stage_cards}, "
                f"got {self.expert}"
            )

    @property
    def stage_cards(self) -> int:
        """Cards of a pipeline stage."""
        return self.tensor * self.data

    @property
    def cards(self) -> int:
        """All of them."""
        return self.stage_cards * self.pipeline

    def check(self, shape: Shape, name: str) -> None:
        """Refuse degrees that do not divide what they share; ``name`` is of the model."""
        for part in {part for layer in shape.layers for part in layer.attentions}:
            if part.heads % self.tensor:
                raise InvalidArgumentError(
                    f"tensor parallel degree must divide the {part.heads} attention heads of "
                    f"{name}, got {self.tensor}"
                )
            larger, smaller = max(part.kv_heads, self.tensor), min(part.kv_heads, self.tensor)
            if larger % smaller:
                raise InvalidArgumentError(
                    f"tensor parallel degree must divide the {part.kv_heads} key-value heads of "
                    f"{name} or be a multiple of them, got {self.tensor}"
                )
        if self.pipeline > max(len(shape.layers), 1):
            raise InvalidArgumentError(
                f"pipeline parallel degree must be <= {len(shape.layers)}, the layers of {name}, "
                f"got {self.pipeline}"
            )
        if self.expert == 1:
            return
        counts = {layer.experts for layer in shape.layers if layer.experts}
        if not counts:
            raise InvalidArgumentError(
                f"expert parallel degree must be 1 for {name}, which has no routed experts, "
                f"got {self.expert}"
            )
        for experts in counts:
            if experts % self.expert:
                raise InvalidArgumentError(
                    f"expert parallel degree must divide the {experts} experts of {name}, "
                    f"got {self.expert}"
                )


ONE_CARD = Parallelism()
