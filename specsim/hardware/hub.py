"""The local cache of the Hugging Face Hub, read without its library and without the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

from specsim.checks import SpecsimError
from specsim.files import FileError, check_file_name, read_regular

# One name, or organisation and name, as the Hub allows them.
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Bytes of a file that names a revision.
_LARGEST_REFERENCE = 4096


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
        content = read_regular(model / "refs" / "main", "", FileError, _LARGEST_REFERENCE)
        revision = content.decode("utf-8").strip()
        check_file_name(revision)
        snapshots = [model / "snapshots" / revision]
    except (SpecsimError, UnicodeDecodeError):
        try:
            snapshots = list((model / "snapshots").iterdir())
        except OSError:
            snapshots = []
    config = snapshots[0] / "config.json" if len(snapshots) == 1 else None
    return config if config is not None and os.path.isfile(config) else None
