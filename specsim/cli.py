"""The command ``specsim``.  A sub-command's module is imported only when it is called.

Result on stdout, progress and warnings on stderr.  Exit 0: done.  1: a check that the command
makes has failed.  2: bad input, with one line on stderr.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from specsim import __version__

# Name, what it does; ``specsim.commands.<name>`` holds the click command ``command``.
COMMANDS = {
    "demo": "The whole loop on the embedded models: measure, predict, decide, check.",
    "calibrate": "Measure a pair of models and write a profile.",
    "validate": "Decode for real and compare with the prediction.",
    "optimize": "The draft length that pays best.",
    "evaluate": "What one draft length gives.",
    "explain": "Why a draft length is no faster, at one batch: where the time goes.",
    "serve": "Latency and throughput of one set-up under load, simulated step by step.",
    "workload": "Requests in a few figures, from a file or from laws, as serve would get them.",
    "read": "What an inference engine counted of its drafts, from what it prints.",
    "plan": "How many cards keep service levels under load, with drafts and without.",
    "export": "The best draft lengths by load, as an inference engine reads them.",
    "replay": "Replay a trace exactly for every draft length.",
    "allocate": "How many tokens each of several drafters should draft.",
    "simulate": "Draw blocks of any decoding scheme.",
    "score": "What two models think of text whose every next token is known.",
    "defer": "Where to defer to the target: every rule, and the optimum, from such a file.",
    "study": "A paper's tables and figures, ours beside them.",
    "sweep": "Any of these answers for many settings, over processes or a cluster, as Parquet.",
    "compare": "Two results or measurements side by side: what changed by more than chance.",
}


class _Commands(click.Group):
    """Lists from the table above, so that ``--help`` imports no sub-command."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            from specsim.checks import did_you_mean

            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, COMMANDS)}")
        command: click.Command = import_module(f"specsim.commands.{name}").command
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: specsim demo, or: specsim optimize --alpha 0.8 --c 0.05",
)
@click.version_option(__version__, prog_name="specsim")
def specsim() -> None:
    """Will speculative decoding of your language model pay, with how many draft tokens?"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; errors of input end with one line and exit 2, never with a traceback."""
    from specsim.checks import SpecsimError

    try:
        status = specsim.main(arguments, prog_name="specsim", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except (SpecsimError, click.ClickException) as error:
        from specsim.report.terminal import say

        message = _message(error)
        say(f"specsim: error: {' '.join(message.split())}")
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("specsim: interrupted", err=True)
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


def _message(error: Exception) -> str:
    """What is wrong, with the nearest option where one is not known."""
    if not isinstance(error, click.ClickException):
        return str(error)
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from specsim.checks import did_you_mean

        parameters = error.ctx.command.get_params(error.ctx)
        options = [option for each in parameters for option in each.opts if option[:2] == "--"]
        return f"No such option {error.option_name}{did_you_mean(error.option_name, options)}"
    return error.format_message()


if __name__ == "__main__":
    main()
