"""The tokens of texts, without the model that reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from calibrate.models.embedded import EMBEDDED
from calibrate.models.load import ModelError, resolve


def token_ids(model: str) -> Callable[[Sequence[str]], list[list[int]]]:
    """What the tokenizer of a model makes of texts, with what it puts before them (BOS).

    model : a folder, or a name of the embedded family or of the Hub, where nothing but the
        tokenizer is fetched
    """
    from transformers import AutoTokenizer

    known = model.startswith(EMBEDDED) or os.path.isdir(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(resolve(model)) if known else model)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"tokenizer {model}: no such folder, and it cannot be fetched from the Hugging Face "
            f"Hub ({type(error).__name__})"
        ) from None

    def ids(texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return found

    return ids
