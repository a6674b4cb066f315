"""How wide the terminal is, lines broken to fit it, and ``--wide``, after which tables have no end.

Where standard output is no terminal a table has 80 characters, whatever the terminal behind it:
what a pipe or a file gets does not change with a window.  Lines on standard error are broken on
terminals alone, so that programs get each of them whole.
"""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import click

# Characters of a line where there is no terminal.
PIPED = 80

_WIDE = "specsim.report.terminal.wide"


def keep_wide(context: click.Context, parameter: click.Parameter, wide: bool) -> None:
    """The callback of ``--wide``: keeps it as long as the command runs."""
    if wide:
        context.meta[_WIDE] = True


def table_width() -> int | None:
    """Characters that a table may take; None, without limit, after ``--wide``."""
    import click

    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_WIDE):
        return None
    return line_width(sys.stdout) or PIPED


def line_width(stream: TextIO | None) -> int | None:
    """Characters of a line of the terminal behind a stream; None where there is none."""
    if stream is None or not stream.isatty():  # None: it was closed
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPED
    except (OSError, ValueError):  # says it is a terminal and has no file
        return PIPED


def broken(line: str, width: int | None) -> str:
    """A line, broken at spaces into some of at most ``width`` characters; None: as it is.

    Words that are longer stay whole.
    """
    if width is None:
        return line
    return textwrap.fill(
        line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def say(line: str) -> None:
    """A line on standard error."""
    import click

    click.echo(broken(line, line_width(sys.stderr)), err=True)
