"""The tokens of texts, without the model that reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from calibrate.models.embedded import EMBEDDED
from calibrate.models.load import ModelError, resolve
from specsim.checks import reason_of


def token_ids(model: str) -> Callable[[Sequence[str]], list[list[int]]]:
    """What the tokenizer of a model makes of texts, with what it puts before them (BOS).

    model : a folder, or a name of the embedded family or of the Hub, where nothing but the
        tokenizer is fetched
    """
    from transformers import AutoTokenizer

    known = model.startswith(EMBEDDED) or os.path.isdir(model)
    source = str(resolve(model)) if known else model
    try:
        # Unless it is told, transformers asks at the terminal whether to run what comes with it.
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    # transformers raises whatever a damaged file leads it to, which all means the same.
    except Exception as error:
        if known:
            raise ModelError(f"tokenizer {model} cannot be loaded: {reason_of(error)}") from None
        raise ModelError(
            f"tokenizer {model}: no such folder, and it cannot be fetched from the Hugging Face "
            f"Hub ({type(error).__name__})"
        ) from None

    def ids(texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        return found

    return ids
