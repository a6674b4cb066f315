"""JSON in a text: one document, or one in every line; comment lines aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from specsim.checks import InvalidArgumentError

Object = dict[str, Any]


def is_json(text: str) -> bool:
    """Whether the first line that is neither empty nor a comment begins a JSON document."""
    return _without_comments(text).lstrip()[:1] in ("{", "[")


def objects(text: str) -> list[Object]:
    """Every object of the documents of a text, outer before inner."""
    return [found for document in documents(text) for found in _within(document)]


def documents(text: str) -> list[Any]:
    """The JSON document of a text, or those of its lines (JSONL)."""
    text = _without_comments(text)
    try:
        return [_parsed(text)]
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or lines[0].strip() in ("{", "["):
            raise InvalidArgumentError(f"not complete JSON ({error})") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_parsed(line))
        except ValueError as error:
            raise InvalidArgumentError(f"document {number}: not complete JSON ({error})") from None
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _within(document: Any) -> Iterator[Object]:
    """All objects, outer before inner, without recursion."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            value = list(value.values())
        if isinstance(value, list):
            waiting.extend(each for each in reversed(value) if isinstance(each, (dict, list)))


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
