"""HTML as a tree of elements, strict about what is left open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

# Elements without an end tag.
_VOID = ("meta", "link", "input", "img", "br", "wbr", "hr")


@dataclass
class Element:
    """One element; ``parts`` are its texts and its children in order."""

    tag: str
    attributes: dict[str, str | None]
    parts: list[str | Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that it says, white space run together."""
        return " ".join("".join(self._texts()).split())

    @property
    def raw(self) -> str:
        """Its text as it stands."""
        return "".join(self._texts())

    def _texts(self) -> Iterator[str]:
        for part in self.parts:
            yield part if isinstance(part, str) else part.raw

    def walk(self) -> Iterator[Element]:
        """It and all elements in it."""
        yield self
        for part in self.parts:
            if isinstance(part, Element):
                yield from part.walk()

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements in it of this tag that have these attributes (``class_`` is one of several)."""
        return [
            each
            for each in self.walk()
            if each.tag == tag and all(each.has(*pair) for pair in attributes.items())
        ]

    def has(self, name: str, value: str) -> bool:
        if name == "class_":
            return value in (self.attributes.get("class") or "").split()
        return self.attributes.get(name) == value


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].parts.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].parts.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def parse(text: str) -> Element:
    """The whole document; AssertionError where an element is not closed as it was opened."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].tag}> is not closed"
    return parser.open[0]
