"""An inference engine, started and always stopped again, however this program ends.

vLLM 0.32.0 on a CPU: ``vllm serve`` starts an API server and an engine process, answers
``/health`` after half a minute or so, and ends with all its processes when its group is ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib.request import getproxies

from calibrate.engine import guard
from calibrate.engine.answering import worker_command
from calibrate.engine.client import Client, EngineClient, EngineError
from calibrate.engine.generate import GenerateClient

# The environment of ``make engine``, at the root of a checkout: where .venv is, since a package
# that ``pip install .`` copied lies elsewhere, or the one that this file is of.  Never where
# somebody happens to stand: what lies there may be a stranger's.
_OWN = ".engine"
_CHECKOUTS = Path(sys.prefix).parent, Path(__file__).parents[2]
_STOPPING_S = 15.0
_ENDING_S = 2.0
_POLL_S = 0.2
# vLLM's processes talk through sockets in the folder of temporary files, whose names have 37
# characters there; macOS, the narrowest of all, takes 103 in all.
_LONGEST_FOLDER = 66
_GIVEN_PORTS: set[int] = set()


@dataclass(frozen=True)
class Launch:
    """How vLLM is started: a server, or an ``LLM`` that only this program asks.

    program : the ``vllm`` command
    target : folder or name of the model
    speculative : what ``--speculative-config`` takes, or None for plain decoding
    dtype : of the weights, in vLLM's words
    context : the longest text, in tokens
    requests : most requests that are decoded together
    api : ``vllm serve`` over HTTP, or ``LLM.generate``
    seed : of its random numbers
    more : further words of ``vllm serve``
    """

    program: Path
    target: str
    speculative: Mapping[str, Any] | None
    dtype: str
    context: int
    requests: int = 16
    api: Literal["serve", "generate"] = "serve"
    seed: int = 0
    more: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """What it is called in messages."""
        length = self.speculative and self.speculative.get("num_speculative_tokens")
        drafts = f"draft length {length}" if length else "no drafts"
        return f"{'the server' if self.api == 'serve' else 'LLM.generate'} with {drafts}"

    def command(self, port: int) -> list[str]:
        """The words of the command.

        Prefix caching is off: a prompt whose last token alone is new counts a round more.
        """
        words = [
            *(str(self.program), "serve", self.target, "--dtype", self.dtype),
            *("--max-model-len", str(self.context), "--max-num-seqs", str(self.requests)),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--enforce-eager", "--no-enable-prefix-caching", "--seed", str(self.seed)),
            # Penalties and filters that a model's generation config asks for are not the profile's.
            *("--generation-config", "vllm"),
            *self.more,
        ]
        if self.speculative is not None:
            words += ["--speculative-config", json.dumps(dict(self.speculative))]
        return words

    def worker_command(self) -> list[str]:
        """The words of a ``worker`` with the same settings, run by the engine's own Python."""
        options: dict[str, Any] = {
            "model": self.target,
            "dtype": self.dtype,
            "max_model_len": self.context,
            "max_num_seqs": self.requests,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "seed": self.seed,
        }
        if self.speculative is not None:
            options["speculative_config"] = dict(self.speculative)
        return worker_command(self.program, "generate", json.dumps(options))


def find_program(given: Path | None) -> Path:
    """The ``vllm`` command: the one given, or of $ENGINE_VENV, ``make engine``, or the PATH."""
    if given is not None:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise EngineError(f"engine_bin {given}: no such program; it is .engine/bin/vllm or so")
        return given.absolute()  # a name without a folder is looked for on the PATH
    named = os.environ.get("ENGINE_VENV")
    folders = [Path(named)] if named else [each / _OWN for each in _CHECKOUTS]
    own = [folder.absolute() / "bin/vllm" for folder in folders]
    found = next(filter(Path.is_file, own), None) or shutil.which("vllm")
    if found is None:
        raise EngineError(
            f"no vllm to start: neither {own[0]} nor on the PATH; run make engine, name the "
            "program with engine_bin, or a running server with url"
        )
    return Path(found)


def engine_told_apart_by(program: Path) -> list[str]:
    """What timings of two engines may differ by: machine, program, its packages, environment."""
    import torch  # which looking for the program does not need

    from calibrate.models.machine import hardware, told_apart_by

    packages = program.parent.parent.glob("lib/python*/site-packages/vllm*.dist-info")
    set_here = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
    kept = {**set_here, **_environment(Path())}
    return [
        *map(str, told_apart_by(hardware(torch.device("cpu")))),
        str(program),
        *sorted(each.name for each in packages),
        *(f"{name}={kept[name]}" for name in sorted(kept.keys() - {"TMPDIR"})),
    ]


@contextmanager
def started(launch: Launch, seconds: float = 300.0) -> Iterator[Client]:
    """A client of a fresh engine, which is stopped in any case; its log goes to a temporary file.

    Raises EngineError with the end of the log where the server ends by itself, or does not answer
    within so many seconds.
    """
    with all_started([launch], seconds) as (client,):
        yield client


@contextmanager
def all_started(launches: Sequence[Launch], seconds: float = 300.0) -> Iterator[tuple[Client, ...]]:
    """The same of several, which start side by side; each is given so many seconds for each of
    them, since they share the cores.
    """
    with ExitStack() as stack:
        servers = [stack.enter_context(_begun(launch)) for launch in launches]
        for server in servers:
            server.wait_until_up(seconds * len(servers))
        try:
            yield tuple(server.client for server in servers)
        except EngineError as error:
            # A server that crashes stops answering a little before it ends.
            deadline = time.monotonic() + _ENDING_S
            while time.monotonic() < deadline:
                for server in servers:
                    if server.process.poll() is not None:
                        raise server.gone(f"{error}; ") from None
                time.sleep(_POLL_S)
            raise


@contextmanager
def _begun(launch: Launch) -> Iterator[_Running]:
    """An engine that starts, and is stopped in any case."""
    with engine_folder() as folder, _log(folder) as log:
        client: Client
        if launch.api == "generate":
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            with guarded(launch.worker_command(), folder, **pipes) as process:
                client = GenerateClient(process, launch.where)
                yield _Running(launch.program, process, log, client)
            return
        port = _free_port()
        quiet = {"stdin": subprocess.DEVNULL, "stdout": log}
        with guarded(launch.command(port), folder, **quiet) as process:
            client = EngineClient(f"http://127.0.0.1:{port}")
            yield _Running(launch.program, process, log, client)


def _log(folder: Path) -> IO[str]:
    """Of all processes of an engine, whose lines, and letters, may lie in each other."""
    return (folder / "log").open("w+", encoding="utf-8", errors="replace")


@dataclass(frozen=True)
class _Running:
    """The process of an engine, its log, open for reading, and a client of it."""

    program: Path
    process: subprocess.Popen[bytes]
    log: IO[str]
    client: Client

    def wait_until_up(self, seconds: float) -> None:
        """Until the engine answers."""
        deadline = time.monotonic() + seconds
        while not self.client.is_up():
            if self.process.poll() is not None:
                raise self.gone()
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.program}: no answer after {seconds:g} s; its log ends: {self._tail()}"
                )
            time.sleep(_POLL_S)
        # Where it lost its port to another program, that one answers.
        if self.process.poll() is not None:
            raise self.gone()

    def gone(self, before: str = "") -> EngineError:
        """The error that says why it ended."""
        return EngineError(
            f"{before}{self.program} ended with exit code {self.process.returncode}; "
            f"its log says: {self._tail()}"
        )

    def _tail(self) -> str:
        """The line of the log that says why: the last one of an error, or the last one."""
        self.log.seek(0)
        lines = [line.strip() for line in self.log if line.strip()]
        errors = [line for line in lines if "Error" in line or "error:" in line]
        # The last one may only point to those before.
        errors = [line for line in errors if "See root cause above" not in line] or errors
        return (errors or lines or ["nothing"])[-1]


def _environment(folder: Path) -> dict[str, str]:
    """One thread by default: two on a core that is shared are many times slower than one.  And
    all that oneDNN prepares is kept: of what steps of every width need, the 1,024 pieces that it
    keeps by itself are not enough, and then a step takes longer the rarer its width is.

    folder : where temporary files go, unless the names of sockets there would be too long
    """
    usual = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "65536",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    found = {name: os.environ.get(name, value) for name, value in usual.items()}
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        found["TMPDIR"] = str(folder)
    if "http" in getproxies():
        # The engine's own clients ask its servers here.
        for name in ("no_proxy", "NO_PROXY"):
            found[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
    # What calls this may import other packages than the engine's.
    return found | {"PYTHONPATH": ""}


def _free_port() -> int:
    """One that this program gave to no other server: those bind theirs only seconds later."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _GIVEN_PORTS:
            _GIVEN_PORTS.add(port)
            return port


@contextmanager
def engine_folder() -> Iterator[Path]:
    """For what a command of the engine keeps while it runs."""
    with tempfile.TemporaryDirectory(prefix="specsim-engine-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def guarded(
    command: Sequence[str], folder: Path, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A command of the engine in a group of its own, which ends with this program, even where that
    is killed (``guard``); what it complains of goes where its output goes, unless said otherwise.

    folder : of ``engine_folder``, where its temporary files go, too; removed where this program is
        killed
    """
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, str(read), str(folder), *command],
            **{"stderr": subprocess.STDOUT, **streams},
            env={**os.environ, **_environment(folder)},
            start_new_session=True,
            pass_fds=(read,),
        )
        os.close(read)
        with _ended(process):
            yield process
    finally:
        os.close(write)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the process with all of its group, also where this program itself is asked to end."""
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _exit) if main_thread else None
    try:
        yield
    finally:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOPPING_S)
        # What the server started may outlive it.
        _signal(process, signal.SIGKILL)
        process.wait()
        if main_thread:
            signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
