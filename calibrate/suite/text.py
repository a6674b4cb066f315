"""Text to train on where there is no network: the Python files that every Python brings."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from calibrate.suite.plan import PairPlan
from calibrate.train.loop import encode

_HELD_OUT_SHARE = 10  # one file in so many
# Files that are encoded at once; encodings take a hundred times the room of their tokens.
_AT_ONCE = 256


def sources(most_bytes: int) -> tuple[dict[str, str], dict[str, str]]:
    """Texts to train on and held-out ones, by path: in the order of a hash of it, each once.

    The standard library and the installed packages; a path's hash says which side it is on, so
    machines with the same packages agree.
    """
    found = sorted(_files(), key=lambda each: _hash(each[0]))
    train: dict[str, str] = {}
    held_out: dict[str, str] = {}
    seen: set[str] = set()
    size = 0
    for name, path in found:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        # Packages bring copies of each other's files, which must not sit on both sides.
        content = hashlib.sha256(text.encode()).hexdigest()
        if not text or content in seen:
            continue
        seen.add(content)
        side = held_out if int(_hash(name)[-8:], 16) % _HELD_OUT_SHARE == 0 else train
        side[name] = text
        size += len(text)
        if size >= most_bytes:
            break
    return train, held_out


def train_tokenizer(texts: dict[str, str], plan: PairPlan) -> Tokenizer:
    """Byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=plan.vocabulary,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first(texts, plan.tokenizer_bytes), trainer)
    return tokenizer


def flat_tokens(tokenizer: Tokenizer, texts: dict[str, str]) -> torch.Tensor:
    """All texts as one row of token ids, each opened by token 0."""
    left = iter(texts.items())
    rows = []
    while part := dict(islice(left, _AT_ONCE)):
        rows.append(encode(tokenizer, part))
    return torch.cat(rows)


def _files() -> Iterator[tuple[str, Path]]:
    """Every Python file by its path below the folder that it was found in."""
    paths = sysconfig.get_paths()
    folders = {Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")}
    for folder in sorted(folders):
        for path in folder.rglob("*.py"):
            # Packages may be installed inside the folder of the standard library.
            inside = [other for other in folders if other != folder and folder in other.parents]
            if not any(other in path.parents for other in inside):
                yield path.relative_to(folder).as_posix(), path


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _first(texts: dict[str, str], most_bytes: int) -> Iterator[str]:
    size = 0
    for text in texts.values():
        yield text
        size += len(text)
        if size >= most_bytes:
            return
