"""A headless Chromium: the one of the system, or the one that playwright keeps.

    python -m tests.support.browser docs/page-1600.png docs/page-360.png

takes the pictures of docs/pages.md and README, whose widths are in their names.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LONGEST_MS = 30_000


@dataclass
class Opened:
    """A page in the browser, and what it said and asked for since.

    said : warnings and errors of its console, and errors that nobody caught
    requests : addresses, without those of the file itself and of data in it
    """

    page: Any
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def is_as_wide_as_the_screen(self) -> bool:
        """Whether nothing has to be scrolled sideways."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth"))


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; ImportError without playwright, playwright's own error without a Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        program = next(filter(None, map(which, _NAMES)), None)
        # In a container there may be no user without rights to run it as.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, width: int = 1600, dark: bool = False) -> Iterator[Opened]:
    """The file as it opens from disk, once all charts are drawn."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    try:
        found = Opened(context.new_page())
        address = path.absolute().as_uri()

        def hear(message: Any) -> None:
            if message.type in ("warning", "error"):
                found.said.append(message.text)

        def see(request: Any) -> None:
            if request.url != address and not request.url.startswith("data:"):
                found.requests.append(request.url)

        found.page.on("console", hear)
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("request", see)
        found.page.goto(address)
        found.page.wait_for_selector("html[data-drawn]", state="attached", timeout=_LONGEST_MS)
        yield found
    finally:
        context.close()


def photograph(page: Path, picture: Path, browser: Any) -> None:
    """The top of a page as wide as the name of the picture says."""
    (width,) = re.findall(r"\d+", picture.stem)
    with opened(browser, page, int(width)) as found:
        height = min(int(found.page.evaluate("document.documentElement.scrollHeight")), 1500)
        clip = {"x": 0, "y": 0, "width": int(width), "height": height}
        found.page.screenshot(path=str(picture), clip=clip, full_page=True)


def _main(pictures: list[str]) -> None:
    import specsim

    result = specsim.optimize(
        0.7,
        deployment=specsim.deploy("llama-3.1-8b", "H100-SXM", ["draft_model:llama-3.2-1b"]),
        load=specsim.Load([2**power for power in range(9)], [512, 4096]),
    )
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "page.html"
        command = (
            "specsim optimize --target llama-3.1-8b --draft llama-3.2-1b --accelerator H100-SXM "
            f"--alpha 0.7 --batch {','.join(str(2**power) for power in range(9))} "
            "--context 512,4096 --report page.html"
        )
        specsim.write_page(result, page, command)
        for picture in pictures:
            photograph(page, Path(picture), browser)


if __name__ == "__main__":
    _main(sys.argv[1:])
