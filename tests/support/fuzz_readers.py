"""Readers of files that no quick command reads: calls that take the file, each by a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from specsim.checks import SpecsimError, UnsupportedError
from tests.support.fuzz_originals import REPOSITORY

# That of no model: heads name that of their target.
TARGET_SHA256 = "0" * 64
# Of a model that is built; a larger one may be built where memory is enough for it.
_MOST_PARAMETERS = 2**20


@lru_cache
def tiny() -> Any:
    """A model of 2 layers, with its tokenizer."""
    import torch

    from calibrate.models.load import load
    from tests.support.models import build_model

    with TemporaryDirectory() as folder:
        path = build_model(Path(folder), layers=2, width=16, seed=1)
        return load(str(path), torch.device("cpu"), torch.float32)


def read_prediction(path: Path) -> None:
    """As validate --blind does, beside the profile that it is of."""
    from specsim.predict.prediction_file import fixed

    found, _ = fixed(path.with_name(path.name.replace(".prediction", "")), 8)
    found.by_temperature()


def answer_sweep(path: Path) -> None:
    """The first settings of a sweep, one by one and as a part of its results."""
    from specsim.commands._answers import answer
    from specsim.sweeps.chunks import answer_chunk
    from specsim.sweeps.parts import SweepParts
    from specsim.sweeps.reading import read_definition

    definition = read_definition(path)
    for number in range(min(2, definition.size)):
        try:
            answer(definition.command, definition.setting(number))
        except SpecsimError as error:
            if "\n" in str(error):
                raise
    definition.described()
    definition.files()
    parts = SweepParts(definition, path.with_name("out"), 2)
    for chunk in islice(parts.chunks(lambda number: False), 1):
        answer_chunk(chunk)


def read_cached(path: Path) -> None:
    """A model's configuration in the cache of the Hub."""
    from specsim.hardware import shape_from_config
    from specsim.hardware.config import read_config

    with patch.dict(os.environ, {"HF_HUB_CACHE": str(path.parents[2])}):
        shape_from_config(read_config(REPOSITORY))


def read_prompts(path: Path) -> None:
    """As calibrate --prompts does."""
    from calibrate.models import prompts

    prompts.read_prompts(path, tiny().tokenizer, 8)


def build_model(path: Path) -> None:
    """As calibrate --cost-only does, where it is small."""
    import torch

    from calibrate.models.shapes import random_model
    from specsim.hardware import shape_from_config
    from specsim.hardware.config import read_config

    config = read_config(str(path))
    try:
        if shape_from_config(config).parameters > _MOST_PARAMETERS:
            return
    except UnsupportedError:
        pass  # of a kind that is not counted
    random_model(config, torch.device("cpu"), torch.float32)


def load_model(path: Path) -> None:
    """As calibrate --target does with a folder."""
    import torch

    from calibrate.models.load import load

    load(str(path.parent), torch.device("cpu"), torch.float32)


def load_head(path: Path) -> None:
    """As validate --with eagle=FOLDER does."""
    from calibrate.models import eagle

    eagle.is_head(path.parent)
    eagle.load_head(path.parent, tiny().model, TARGET_SHA256)


READERS: dict[str, Callable[[Path], None]] = {
    "read-prediction": read_prediction,
    "answer-sweep": answer_sweep,
    "read-cached": read_cached,
    "read-prompts": read_prompts,
    "build-model": build_model,
    "load-model": load_model,
    "load-head": load_head,
}
