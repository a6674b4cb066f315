"""``specsim completion``: the script with which a shell completes words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog='Examples: eval "$(specsim completion bash)" in ~/.bashrc; '
    'eval "$(specsim completion zsh)" in ~/.zshrc, behind compinit; '
    "specsim completion fish > ~/.config/fish/completions/specsim.fish"
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and their words in SHELL.

    The shell then asks specsim itself at every tab, so that the script need not be printed again
    after an update.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has all three"
    root = context.find_root().command
    click.echo(kind(root, {}, "specsim", "_SPECSIM_COMPLETE").source(), nl=False)
