"""What drafts, described: names and numbers, nothing that runs.

Three readers interpret a description: the law (``proposal_law`` in specsim.schemes.proposals, with
acceptances), the replay (specsim.predict.replay, with recorded text) and the decoder
(calibrate.decode.build, with models).  A drafter may be made of drafters: one that reviews another
(vertical cascade, Chen23), or several one after the other (horizontal cascade, Chen23).
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.checks import InvalidArgumentError, integer


@dataclass(frozen=True)
class _Single:
    """One model or other source of tokens.

    name : of the model, or of what drafts without one
    tokens : most tokens of a proposal, >= 0
    """

    name: str
    tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", integer("tokens", self.tokens))

    @property
    def label(self) -> str:
        return f"{self.name} {self.tokens}"


@dataclass(frozen=True)
class ModelDrafter(_Single):
    """A model that drafts token by token."""


@dataclass(frozen=True)
class EagleDrafter(_Single):
    """A head over the target's last hidden states that drafts token by token (EAGLE, Li24).

    Behind the first token of a proposal it reads features of its own instead of the target's, so
    what it proposes at a place of the text depends on where its proposal began, and its acceptance
    is a rate by position.
    """


@dataclass(frozen=True)
class NgramDrafter(_Single):
    """Counts that draft token by token without a model: ``unigram`` or ``bigram``."""


@dataclass(frozen=True)
class CopyDrafter(_Single):
    """Copies from the context: all tokens of a proposal from one look-up, without a model.

    ``copy`` (prompt lookup) or ``max-gram`` (Chen23).
    """


@dataclass(frozen=True)
class MaskDrafter(_Single):
    """A model that fills in masks: all tokens of a proposal from one run (Xia22)."""


@dataclass(frozen=True)
class VerticalDrafter:
    """A model that drafts by reviewing an inner drafter, step by step (Chen23).

    name : of the reviewing model
    inner : proposes to it
    gamma : most tokens that ``inner`` proposes in a step, >= 0; None for as many as it has
    steps, at_least : so many steps a proposal, or until at least so many tokens are there, what
        overshoots proposed too; one of them is None
    """

    name: str
    inner: Drafter
    gamma: int | None = None
    steps: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.at_least is None):
            raise InvalidArgumentError("give one of steps and at_least")
        for name in ("gamma", "steps", "at_least"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, integer(name, value))

    @property
    def label(self) -> str:
        many = f"{self.steps} steps" if self.steps is not None else f">= {self.at_least}"
        return f"{self.name} reviews {_grouped(self.inner)}, {many}"


@dataclass(frozen=True)
class HorizontalDrafter:
    """Drafters one after the other, verified by the same model (Chen23)."""

    parts: tuple[Drafter, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))

    @property
    def label(self) -> str:
        return ", ".join(_grouped(part) for part in self.parts)


SingleDrafter = ModelDrafter | EagleDrafter | NgramDrafter | CopyDrafter | MaskDrafter
Drafter = SingleDrafter | VerticalDrafter | HorizontalDrafter

# What drafts without a model of its own, by the names that are reserved for it.
_RESERVED: dict[str, type[SingleDrafter]] = {
    "unigram": NgramDrafter,
    "bigram": NgramDrafter,
    "copy": CopyDrafter,
    "max-gram": CopyDrafter,
    "eagle": EagleDrafter,
}


def single_drafter(name: str, tokens: int, one_run: bool = False) -> SingleDrafter:
    """The drafter of a name: a head or no model where the name is reserved, else a model.

    one_run : whether the model drafts all tokens in one run
    """
    return _RESERVED.get(name, MaskDrafter if one_run else ModelDrafter)(name, tokens)


def _grouped(drafter: Drafter) -> str:
    """Its label, in brackets where it is of several words."""
    return f"({drafter.label})" if "," in drafter.label else drafter.label
