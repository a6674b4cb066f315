"""A drafter from the words of a command line."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from specsim.checks import InvalidArgumentError, did_you_mean, integer, number, probability
from specsim.deployment.drafters import DRAFTERS, KINDS, Drafter

# As the papers and SGLang write them.
_ALIASES = {"eagle_1": "eagle", "eagle_3": "eagle3", "nextn": "mtp", "prompt_lookup": "ngram"}


def drafter(words: str) -> Drafter:
    """``eagle3:draft_vocab=32000,alpha=0.8/0.7``: a name, and what is said of it.

    A word without ``=`` is the model (``draft_model:llama-3.2-1b``).  ``alpha`` is one rate, or
    conditional ones by position between slashes.  ``dflash``, ``pard`` and ``p_eagle`` are
    ``parallel`` of that kind.

    >>> drafter("ngram:match=0.4,alpha=0.7").match
    0.4
    """
    name, _, rest = words.partition(":")
    key = name.strip().casefold().replace("-", "_")
    key = _ALIASES.get(key, key)
    if key in KINDS:
        key, rest = "parallel", ",".join(filter(None, (rest, f"kind={key}")))
    if key not in DRAFTERS:
        raise InvalidArgumentError(
            f"drafter must be one of {', '.join((*DRAFTERS, *KINDS))}, got {name!r}"
            f"{did_you_mean(key, (*DRAFTERS, *KINDS))}"
        )
    kind = DRAFTERS[key]
    known = {field.name: field.type for field in fields(kind)}
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        field, equals, value = part.partition("=")
        field = field.strip().replace("-", "_") if equals else "model"
        if not equals and "alpha" in given and _is_number(part):
            raise InvalidArgumentError(
                f"drafter {key}: rates of alpha stand between slashes, as alpha=0.7/0.6, got {rest}"
            )
        if field not in known:
            raise InvalidArgumentError(
                f"drafter {key} takes {', '.join(known)}, got {field}{did_you_mean(field, known)}"
            )
        if field in given:
            raise InvalidArgumentError(f"drafter {key}: {field} is given twice")
        given[field] = _parsed(field, str(known[field]), value.strip() if equals else part)
    if key == "draft_model" and "model" not in given:
        raise InvalidArgumentError("drafter draft_model needs a model, as draft_model:llama-3.2-1b")
    return kind(**given)


def _parsed(field: str, kind: str, word: str) -> Any:
    if field == "alpha":
        rates = [probability("alpha", each) for each in word.split("/")]
        return rates[0] if len(rates) == 1 else tuple(rates)
    if field == "model":
        return word
    if field == "kind":
        return word.casefold().replace("-", "_")
    if word.casefold() == "none" and "None" in kind:
        return None
    return integer(field, word) if "int" in kind else number(field, word)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
