"""Raw files: plain JSON, written whole or not at all as soon as there is something to keep."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from specsim.files import write_atomically

OUT_OF_TIME = "out of time"
# What CompileError says.
UNRECORDED = "cannot be compiled"


class Raw:
    """One file of results, which goes on from what it holds already."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.content: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}

    def save(self) -> None:
        text = json.dumps(_rounded(self.content), separators=(",", ":"))
        write_atomically(self.file, text.encode())

    def put(self, key: str, value: Any) -> None:
        """Set and write."""
        self.content[key] = value
        self.save()

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """What fails inside is named in the file and on stderr, and what follows goes on."""
        errors = self.content.setdefault("errors", {})
        errors.pop(what, None)
        try:
            yield
        except Exception as error:
            errors[what] = first_line(error)
            print(f"{self.file.name}: {what}: {errors[what]}", file=sys.stderr, flush=True)
        self.save()


class Deadline:
    """Until when a part may begin something new; seconds of ``time.time``."""

    def __init__(self, until: float) -> None:
        self.until = until

    @property
    def left_s(self) -> float:
        return self.until - time.time()

    def more_time(self) -> bool:
        return self.left_s > 0


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


def out_of_memory(reason: str) -> bool:
    return "out of memory" in reason.lower() or "can't allocate memory" in reason


def cannot_be_recorded(out: Path, name: str) -> bool:
    """Whether no cell of a pair of shapes could be measured compiled, and not for want of time."""
    cells = Raw(out / f"costs-{name}.json").content.get("cells", {}).values()
    tried = [cell for cell in cells if cell["mode"] == "compiled"]
    return not any("times" in cell for cell in tried) and any(
        UNRECORDED in cell["reason"] for cell in tried
    )


def freed() -> None:
    """Give back the memory of what is no longer used."""
    gc.collect()
    # After a recording that failed the allocator refuses; what runs next is told soon enough.
    with suppress(RuntimeError):
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def device_facts(device: torch.device) -> dict[str, Any]:
    """What ran it, as torch sees it."""
    if device.type != "cuda":
        return {"type": device.type, "name": device.type, "threads": torch.get_num_threads()}
    found = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": found.name,
        "memory_bytes": found.total_memory,
        "threads": torch.get_num_threads(),
    }


def here() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _rounded(value: Any) -> Any:
    """Seven digits of every number: more than any clock here has, and files half as large."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
