"""The local cache of the Hugging Face Hub, read without its library and without the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

# One name, or organisation and name, as the Hub allows them.
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


def cache_folder() -> Path:
    """Where the Hub's library keeps what it downloads: HF_HUB_CACHE, or hub in HF_HOME.

    HF_HOME is ~/.cache/huggingface where it is not set, or in XDG_CACHE_HOME
    (huggingface_hub, ``constants.py``).
    """
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def is_repository(name: str) -> bool:
    """Whether ``name`` is spelled like organisation/name on the Hub."""
    return "/" in name and _REPOSITORY.fullmatch(name) is not None


def cached_config(name: str) -> Path | None:
    """The config.json of a model's revision ``main`` in the cache, or None where it is not there.

    Where the cache names no revision ``main``, its only snapshot.
    """
    if _REPOSITORY.fullmatch(name) is None:
        return None
    model = cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        revision = (model / "refs" / "main").read_text("utf-8").strip()
        snapshots = [model / "snapshots" / revision]
    except OSError:
        folder = model / "snapshots"
        snapshots = list(folder.iterdir()) if folder.is_dir() else []
    config = snapshots[0] / "config.json" if len(snapshots) == 1 else None
    return config if config is not None and config.is_file() else None
