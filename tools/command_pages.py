"""The documentation site's page of every command, made of the commands themselves.

mkdocs runs this in every build: it is named under ``hooks`` in mkdocs.yml, and calls the functions
``on_...``.  Nothing here is written by hand that ``specsim COMMAND --help`` does not say.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specsim import commands
from specsim.cli import COMMANDS
from specsim.cli import specsim as program

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FOLDER = "commands"
# An example of an epilog, and the words that may follow: the next one, what it is, where it goes.
_EXAMPLE = re.compile(r'specsim \S.*?(?=; |, | && | \| | > |\)"|$)')
# A link from docs/ to a file elsewhere in the repository, which the site does not have.
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#]+)(?:#[^)]*)?\)")


def examples(command: click.Command) -> list[str]:
    """The examples below the help of a command, each as it is typed."""
    return _EXAMPLE.findall(" ".join((command.epilog or "").split()))


def pages() -> dict[str, str]:
    """Markdown by the path that it has under docs/: every command, and the list of them."""
    listed = [f"[specsim {name}]({name}.md)\n:   {_escaped(COMMANDS[name])}\n" for name in COMMANDS]
    found = {f"{FOLDER}/index.md": "\n".join(["# Commands", "", *listed])}
    return found | {f"{FOLDER}/{name}.md": _page(name) for name in COMMANDS}


def _page(name: str) -> str:
    root = click.Context(program, info_name="specsim")
    command = _command(name)
    context = click.Context(command, info_name=name, parent=root)
    lines = [f"# specsim {name}", "", *_described(command, context)]
    # Commands that an option puts in the place of this one.
    for path in sorted(Path(inspect.getfile(commands)).parent.glob(f"{name}_*.py")):
        other = _command(path.stem)
        option = path.stem.removeprefix(name).replace("_", " --", 1).replace("_", "-")
        lines += [f"## specsim {name}{option}", ""]
        lines += _described(other, click.Context(other, info_name=name, parent=root))
    if isinstance(command, click.Group):
        for scheme in command.list_commands(context):
            inner = command.get_command(context, scheme)
            assert inner is not None, "it is on the list"
            lines += [f"## specsim {name} {scheme}", ""]
            lines += _described(inner, click.Context(inner, info_name=scheme, parent=context))
    return "\n".join(lines) + "\n"


def _command(module: str) -> click.Command:
    command: click.Command = import_module(f"specsim.commands.{module}").command
    return command


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Usage, help, options and examples, as lines."""
    yield from ("```text", command.get_usage(context).removeprefix("Usage: "), "```", "")
    yield from (_escaped(inspect.cleandoc(command.help or "")), "")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            words, said = (" ".join(part.split()) for part in record)
            yield from (f"`{words}`", f":   {_escaped(said)}", "")
    found = examples(command)
    if found:
        yield from ("```sh", *found, "```", "")


def _escaped(text: str) -> str:
    """Text in which no letter means something to Markdown."""
    return re.sub(r"([*`])", r"\\\1", text).replace("<", "&lt;")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that the table of contents does not name stand behind the others, the commands last."""
    named = json.dumps(config.nav)
    found = sorted(page.name for page in Path(config.docs_dir).glob("*.md"))
    others = [name for name in found if f'"{name}"' not in named]
    more = [{"More": others}] if others else []
    names = [{name: f"{FOLDER}/{name}.md"} for name in COMMANDS]
    config.nav = [*(config.nav or []), *more, {"Commands": [f"{FOLDER}/index.md", *names]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """They are files like those of docs/."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What lies outside docs/ is named instead of linked to."""
    return _OUTSIDE.sub(r"\1 (`\2` in the repository)", markdown)
