"""Starting a server, and stopping it whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.engine import server
from calibrate.engine.client import EngineError
from calibrate.engine.server import Launch, engine_folder, find_program, guarded, started
from specsim.profiles import SamplingSetting

ROOT = Path(__file__).parents[3]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """``vllm`` as a server that starts at once, and leaves its process number behind."""
    path = tmp_path / "vllm"
    path.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid\n"
        f'PYTHONPATH={ROOT} exec {sys.executable} -m tests.support.engine_server "$@"\n'
    )
    path.chmod(0o755)
    return path


def launch(program: Path, target: str = "model") -> Launch:
    return Launch(program, target, None, "float32", 64)


def is_running(program: Path, of: str = "pid") -> bool:
    try:
        os.kill(int((program.parent / of).read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_runs_meanwhile(program: Path) -> None:
    with started(launch(program)) as client:
        assert client.is_up()
        assert is_running(program)
    assert not is_running(program)


def test_a_server_is_stopped_after_an_error_too(program: Path) -> None:
    with pytest.raises(ZeroDivisionError), started(launch(program)):
        raise ZeroDivisionError
    assert not is_running(program)


def test_a_server_is_stopped_when_this_program_is_told_to_end(program: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def told_to_end() -> None:
        with started(launch(program)):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit) as ended:
        told_to_end()
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert not is_running(program)


def test_a_server_is_stopped_when_this_program_is_killed(program: Path) -> None:
    """The program that starts it as ``vllm``, with a process of its own that makes its folder again
    and again, dies by SIGKILL.
    """
    helper, temporary = program.parent / "helper", program.parent / "temporary"
    temporary.mkdir()
    where = program.parent / "where"
    making = program.parent / "making.py"
    making.write_text(
        "import os, sys; from contextlib import suppress\n"
        "while not os.path.exists(sys.argv[1]): pass\n"
        "folder = open(sys.argv[1]).read()\n"
        "while True:\n"
        "    with suppress(OSError): os.makedirs(folder + '/own', exist_ok=True)\n"
    )
    loop = f"{sys.executable} {making} {where} & echo $! > {helper}"
    text = program.read_text().replace("echo", f"{loop}\necho", 1)
    program.write_text(text)
    starts = (
        "import sys, time; from pathlib import Path; from calibrate.engine.server import *\n"
        "with started(Launch(Path(sys.argv[1]), 'model', None, 'float32', 64)):\n"
        "    print('up', flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", starts, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"up\n"
    assert is_running(program)
    assert is_running(program, "helper")
    (log,) = temporary.glob("specsim-engine-*/log")
    told = where.with_suffix(".new")
    told.write_text(str(log.parent))
    told.replace(where)
    killed.kill()
    killed.wait()
    deadline = time.monotonic() + 30
    while is_running(program) or is_running(program, "helper"):
        assert time.monotonic() < deadline, "it outlives who started it"
        time.sleep(0.02)
    while list(temporary.iterdir()):  # goes once nobody is left who makes it
        assert time.monotonic() < deadline, "its folder outlives it"
        time.sleep(0.02)


def test_temporary_files_of_a_server_are_in_the_folder_that_goes_with_it() -> None:
    with engine_folder() as folder:
        words = [sys.executable, "-c", "import tempfile; tempfile.mkdtemp()"]
        with guarded(words, folder) as process:
            assert process.wait() == 0
        assert len(list(folder.iterdir())) == 1
    assert not folder.exists()


def test_a_server_that_does_not_start_says_why(program: Path) -> None:
    with (
        pytest.raises(EngineError, match="exit code 1; its log says: ValueError: no such model"),
        started(launch(program, "unknown")),
    ):
        pass


def test_a_server_that_lost_its_port_is_not_taken_for_the_one_that_answers(tmp_path: Path) -> None:
    """Another server on the port says that it is up."""
    gone: Any = SimpleNamespace(poll=lambda: 1, returncode=1)
    answering: Any = SimpleNamespace(is_up=lambda: True)
    with (tmp_path / "log").open("w+") as log:
        log.write("OSError: address already in use\n")
        running = server._Running(Path("vllm"), gone, log, answering)
        with pytest.raises(EngineError, match="exit code 1; its log says: OSError: address"):
            running.wait_until_up(1.0)


def test_no_two_servers_are_given_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe:
        offered = iter((4001, 4001, 4002))

        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def bind(self, address: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", next(self.offered)

    monkeypatch.setattr(server, "_GIVEN_PORTS", set())
    monkeypatch.setattr(server.socket, "socket", Probe)
    assert [server._free_port(), server._free_port()] == [4001, 4002]


def test_clients_of_the_engine_ask_servers_here_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert "no_proxy" not in server._environment(Path())
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    found = server._environment(Path())
    assert (found["no_proxy"], found["NO_PROXY"]) == ("localhost,127.0.0.1", "127.0.0.1")


def test_a_server_that_never_answers_is_given_up(program: Path) -> None:
    with (
        pytest.raises(EngineError, match=r"no answer after 2 s; its log ends: starting"),
        started(launch(program, "mute"), seconds=2),
    ):
        pass
    assert not is_running(program)


def test_a_server_that_crashes_meanwhile_is_named(program: Path) -> None:
    def ask_until_it_ends() -> None:
        with started(launch(program, "crashing")) as client:
            while True:
                client.complete([], [], SamplingSetting(0.0), 1)

    with pytest.raises(EngineError, match="ended with exit code 0; its log says: starting"):
        ask_until_it_ends()


def test_the_command_is_that_of_vllm() -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 2}
    words = Launch(Path("/e/vllm"), "m", speculative, "float32", 512).command(8000)
    assert words[:3] == ["/e/vllm", "serve", "m"]
    assert json.loads(words[words.index("--speculative-config") + 1]) == speculative
    assert "--no-enable-prefix-caching" in words
    # A model's own filters and penalties would be taken where a request says nothing.
    assert words[words.index("--generation-config") + 1] == "vllm"
    assert "--speculative-config" not in launch(Path("vllm")).command(8000)


def test_a_server_and_a_worker_are_told_all_that_a_launch_says(tmp_path: Path) -> None:
    (tmp_path / "python").touch()
    speculative = {"method": "draft_model", "model": "d", "num_speculative_tokens": 2}
    further = ("--block-size", "32")
    full = Launch(tmp_path / "vllm", "m", speculative, "bfloat16", 512, 32, "serve", 7, further)
    words = full.command(8000)
    for name, value in {
        "--dtype": "bfloat16",
        "--max-model-len": "512",
        "--max-num-seqs": "32",
        "--seed": "7",
        "--host": "127.0.0.1",
        "--port": "8000",
        "--block-size": "32",
    }.items():
        assert words[words.index(name) + 1] == value
    python, worker, what, options = full.worker_command()
    assert (python, Path(worker).name) == (str(tmp_path / "python"), "worker.py")
    assert what == "generate"
    assert json.loads(options) == {
        "model": "m",
        "dtype": "bfloat16",
        "max_model_len": 512,
        "max_num_seqs": 32,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "seed": 7,
        "speculative_config": speculative,
    }
    assert "speculative_config" not in json.loads(launch(full.program).worker_command()[-1])


def test_which_program_is_started(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_VENV", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert find_program(program) == program
    with pytest.raises(EngineError, match=r"no vllm to start: neither .*/bin/vllm nor on the PATH"):
        find_program(None)
    with pytest.raises(EngineError, match="no such program"):
        find_program(tmp_path)
    (tmp_path / "bin").mkdir()
    program.rename(tmp_path / "bin/vllm")
    assert find_program(None) == tmp_path / "bin/vllm"


def test_the_engine_of_a_checkout_is_found_from_a_copied_package(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README installs with ``pip install .`` and then runs ``make engine``."""
    checkout, copied = tmp_path / "checkout", tmp_path / "site-packages"
    own = checkout / ".engine/bin/vllm"
    own.parent.mkdir(parents=True)
    program.rename(own)
    monkeypatch.delenv("ENGINE_VENV", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("calibrate.engine.server._CHECKOUTS", (checkout, copied))
    assert find_program(None) == own
    monkeypatch.setattr("calibrate.engine.server._CHECKOUTS", (copied, checkout))
    assert find_program(None) == own
    # Nothing is run because somebody stands beside it.
    monkeypatch.setattr("calibrate.engine.server._CHECKOUTS", (copied,))
    monkeypatch.chdir(checkout)
    with pytest.raises(EngineError, match="no vllm to start"):
        find_program(None)
