"""The command ``specsim``.  A sub-command's module is imported only when it is called.

Result on stdout, progress and warnings on stderr.  Exit 0: done.  1: a check that the command
makes has failed.  2: bad input, or what the system refuses, with one line on stderr.  3: specsim is
to blame, with one line that says how to repeat it and where the traceback is.  130: interrupted.
141: nobody reads the answer.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
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
    "schema": "The JSON Schema of a kind of file that specsim reads.",
    "doctor": "Whether this machine and this installation are fit to measure, and what to do.",
    "completion": "The script that completes specsim's words in bash, zsh or fish.",
}


class _Commands(click.Group):
    """Lists from the table above, so that ``--help`` imports no sub-command."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            if context.resilient_parsing:  # while a shell completes what is typed
                return None
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
    """Run a command and exit; whatever goes wrong ends with one line, never with a traceback."""
    try:
        status = _status(arguments)
    except KeyboardInterrupt:  # while modules were loaded, or something was said
        _say("specsim: interrupted")
        status = 130
    sys.exit(status)


def _status(arguments: list[str] | None) -> int:
    """The exit status of a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name of a file need not be text, nor what a log says.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from specsim.api.answering import answering
        from specsim.checks import SpecsimError

        try:
            with answering():
                status = specsim.main(arguments, prog_name="specsim", standalone_mode=False)
                if sys.stdout is not None:
                    sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except click.exceptions.NoArgsIsHelpError as error:
            _say(error.format_message())
            return 2
        except (SpecsimError, click.ClickException) as error:
            _say(f"specsim: error: {_message(error)}", one_line=True)
            return 2
    except (click.Abort, KeyboardInterrupt):
        _say("specsim: interrupted")
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # Asked to end by a signal, while engines run, which then are ended first.
        if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128:
            return error.code
        if "_SPECSIM_COMPLETE" in os.environ:  # a shell asks how words go on, and click ends
            raise
        # Whoever read has enough: click ends then, too.  As shells tell of what a pipe has ended.
        _give_up_stdout()
        return 141
    except OSError as error:
        # What the system refuses, a full disk behind standard output among it, is no mistake here.
        _give_up_stdout()
        where = error.filename or "standard output"
        _say(f"specsim: error: {where}: {error.strerror or error}", one_line=True)
        return 2
    except Exception as error:
        return _crashed(error, sys.argv[1:] if arguments is None else arguments)


def _crashed(error: Exception, arguments: Sequence[str]) -> int:
    """Say in one line that specsim is to blame, how to repeat it and where its traceback is."""
    import platform
    import shlex
    import tempfile
    import traceback

    repeat = shlex.join(["specsim", *arguments])
    text = "".join(traceback.format_exception(error))
    about = f"{repeat}\nspecsim {__version__}, Python {platform.python_version()}\n\n{text}"
    try:
        descriptor, name = tempfile.mkstemp(prefix="specsim-", suffix=".traceback.txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(about)
        where = f"its traceback is in {name}"
    except OSError as problem:
        where = f"its traceback could not be written ({problem.strerror})"
    # torch's own is a RuntimeError, and not loaded here.
    full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    kind = "out of memory" if full else "internal error"
    said = ": ".join(filter(None, (type(error).__name__, str(error))))[:300]
    _say(f"specsim: {kind}: {said}; {where}; repeat it with: {repeat}", one_line=True)
    return 3


def _say(message: str, one_line: bool = False) -> None:
    """On stderr, where there is one."""
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        if one_line:
            from specsim.report.terminal import say

            # What a file says reaches no terminal as commands to it.
            words = " ".join(message.split())
            say("".join(each if each.isprintable() else ascii(each)[1:-1] for each in words))
        else:
            click.echo(message, err=True)


def _give_up_stdout() -> None:
    """What it does not take now is not tried again when Python ends."""
    with suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _message(error: Exception) -> str:
    """What is wrong, with the nearest option where one is not known, and with what one is that is
    missing.
    """
    if not isinstance(error, click.ClickException):
        return str(error)
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from specsim.checks import did_you_mean

        parameters = error.ctx.command.get_params(error.ctx)
        options = [option for each in parameters for option in each.opts if option[:2] == "--"]
        return f"No such option {error.option_name}{did_you_mean(error.option_name, options)}"
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        what = (error.param.help or "").split(" [default")[0].rstrip(".")
        return f"Missing option '{error.param.opts[0]}': {what}"
    return error.format_message()


if __name__ == "__main__":
    main()
