"""The embedded family: where its files are, and whether they are whole.  Needs no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

EMBEDDED = "embedded/"
FAMILY = Path(__file__).parents[1] / "family"
MEMBERS = ("target", "middle", "small", "masks", "aligned")
# Members that are no models by themselves but heads over the target's hidden states.
HEADS = ("eagle",)

_OF_A_HEAD = ("config.json", "model.safetensors")
_OF_A_MODEL = (*_OF_A_HEAD, "generation_config.json", "tokenizer.json", "tokenizer_config.json")
_BESIDE = ("bigram.safetensors", "training.json", "followers.json")
# A header that says more than this is none: those of the family have a few kilobytes.
_LONGEST_HEADER = 1 << 24


def family_files(folder: Path = FAMILY) -> list[Path]:
    """Every file that the family consists of."""
    found = [folder / name for name in _BESIDE]
    found += [folder / member / name for member in MEMBERS for name in _OF_A_MODEL]
    return found + [folder / head / name for head in HEADS for name in _OF_A_HEAD]


def damaged_files(folder: Path = FAMILY) -> list[str]:
    """Files that are missing or not whole, each with the reason; empty where all are well.

    JSON must be complete, and weights as long as their header says.  A byte that changed within
    the weights is not seen.
    """
    found = []
    for path in family_files(folder):
        name = path.relative_to(folder)
        try:
            reason = _damage(path)
        except FileNotFoundError:
            reason = "is missing"
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
        if reason:
            found.append(f"{name} {reason}")
    return found


def _damage(path: Path) -> str:
    """What is wrong with a file; empty where it is whole."""
    if path.suffix == ".json":
        try:
            json.loads(path.read_bytes())
        except ValueError:
            return "is not complete JSON"
        return ""
    with path.open("rb") as stream:
        wanted = _length(stream)
    size = path.stat().st_size
    if wanted is None:
        return "has no header of safetensors"
    return "" if size == wanted else f"has {size:,} bytes of {wanted:,}"


def _length(stream: BinaryIO) -> int | None:
    """Bytes of a file of safetensors by its header: eight bytes that say how long that is, JSON
    that says where every tensor lies, the tensors.  None where there is no such header.
    """
    size = int.from_bytes(stream.read(8), "little")
    if not 0 < size <= _LONGEST_HEADER:
        return None
    try:
        header = json.loads(stream.read(size))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        return 8 + size + int(max(ends, default=0))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return None
