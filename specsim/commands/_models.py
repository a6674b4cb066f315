"""What the commands that run models share: options, loading, progress."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.commands._options import Integer, IntegerRange, Number, Numbers, stack
from specsim.files import file_digest, temporary_folder

if TYPE_CHECKING:
    from rich.progress import Progress

    from calibrate.measure.calibration import Settings
    from calibrate.models.load import Pair
    from specsim.profiles import MeasuredModel, Profile


@dataclass(frozen=True)
class Prepared:
    """Models loaded and settings checked."""

    pair: Pair
    settings: Settings


# Which models, and where they run.
pair_options = stack(
    click.option(
        "--target",
        default="embedded/target",
        show_default=True,
        help="Target model: a folder, a Hub name, or a member of the embedded family.",
    ),
    click.option("--draft", default="embedded/small", show_default=True, help="Draft model."),
    click.option("--device", default=None, help="cpu, cuda, ... [default: a GPU if there is one]"),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        default=None,
        help="Number type of the weights. [default: float32 on a CPU, bfloat16 elsewhere]",
    ),
    click.option(
        "--threads",
        type=Integer(1),
        default=None,
        help="CPU threads. [default: 1 for the embedded family, torch's choice otherwise]",
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run the code that comes with the models. Only for models you trust.",
    ),
)


# Which models, and what is measured.
measuring_options = stack(
    pair_options,
    click.option(
        "--prompts",
        type=click.Path(path_type=Path),
        help="One a line, or .jsonl with the key prompt. [default: held-out modules]",
    ),
    click.option(
        "--temperature",
        type=Numbers(0),
        default="0,1",
        show_default=True,
        help="Temperatures.",
    ),
    click.option("--top-k", type=Integer(1), help="Keep the k most probable tokens."),
    click.option("--top-p", type=Number(0, 1), help="Keep the most probable tokens up to p."),
    click.option(
        "--requests",
        type=IntegerRange(1),
        default="32",
        show_default=True,
        help="Requests; one number, or one for each temperature.",
    ),
    click.option(
        "--prompt-tokens",
        type=Integer(1),
        default=64,
        show_default=True,
        help="Tokens of a prompt, at most.",
    ),
    click.option(
        "--max-new-tokens",
        type=Integer(1),
        default=128,
        show_default=True,
        help="Tokens to decode.",
    ),
    click.option(
        "--gamma-max", type=Integer(1), default=8, show_default=True, help="Longest draft."
    ),
    click.option(
        "--repeats",
        type=Integer(1),
        default=15,
        show_default=True,
        help="Turns of the run times.",
    ),
    click.option("--seed", type=Integer(), default=0, show_default=True, help="Random seed."),
)


def load_models(given: dict[str, Any]) -> Pair:
    """The pair that the options name, on its device."""
    device, dtype = _place(given)
    from calibrate.models.load import load_pair

    return load_pair(
        given["target"],
        given["draft"],
        device,
        dtype,
        trust_remote_code=given["trust_remote_code"],
    )


def load_or_build(given: dict[str, Any]) -> list[tuple[Any, MeasuredModel]]:
    """Target and draft, each a model or a shape, and what a profile says of them."""
    device, dtype = _place(given)
    from calibrate.models.load import build, load
    from specsim.hardware import known_shapes

    found = []
    for name in (given["target"], given["draft"]):
        if name in known_shapes() or name.endswith(".json"):
            found.append(build(name, device, dtype))
        else:
            loaded = load(name, device, dtype, given["trust_remote_code"])
            found.append((loaded.model, loaded.description))
    return found


def load_measured(profile: Profile, given: dict[str, Any]) -> tuple[Any, Any]:
    """The target and the draft that a profile was measured on, as its hardware and dtype say."""
    device, dtype = _place(
        {
            "target": profile.target.name,
            "dtype": profile.software.dtype,
            "device": given["device"] or profile.hardware.device,
            "threads": given["threads"] or profile.hardware.threads,
        }
    )
    from calibrate.models.load import load
    from calibrate.models.shapes import random_model

    models = []
    for measured in (profile.target, profile.draft):
        if measured.config is not None:
            models.append(random_model(measured.config, device, dtype))
            continue
        loaded = load(measured.name, device, dtype, given["trust_remote_code"])
        if loaded.description.sha256 != measured.sha256:
            raise InvalidArgumentError(f"the model {measured.name} is not the one in the profile")
        models.append(loaded.model)
    target, draft = models
    return target, draft


def need_torch() -> None:
    """Say what to install where models cannot be run."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise SpecsimError(
            f"measuring needs {error.name}, which is not installed: "
            "pip install 'specsim[calibrate]'"
        ) from None


def _place(given: dict[str, Any]) -> tuple[Any, Any]:
    """The device and the number type that the options say; sets the number of threads."""
    need_torch()
    import torch

    device = _device(given["device"])
    embedded = given["target"].startswith("embedded/")
    if given["threads"] or embedded:
        torch.set_num_threads(given["threads"] or 1)
    dtype = given["dtype"] or ("float32" if device.type == "cpu" else "bfloat16")
    return device, getattr(torch, dtype)


def _device(name: str | None) -> Any:
    import torch

    if name is None:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        raise InvalidArgumentError(f"--device {name} is not to be had on this machine") from None
    return device


def prepare(given: dict[str, Any]) -> Prepared:
    """Load the pair, read the prompts, check that all fits."""
    pair = load_models(given)
    from calibrate.measure.calibration import Settings
    from calibrate.models.prompts import find_prompts
    from calibrate.models.sampling import Sampling

    temperatures = given["temperature"]
    requests = given["requests"]
    if len(requests) == 1:
        requests = requests * len(temperatures)
    if len(requests) != len(temperatures):
        raise InvalidArgumentError(
            f"--requests must be one number or one for each of the {len(temperatures)} "
            f"temperatures, got {len(requests)}"
        )
    prompts = find_prompts(
        given["prompts"], pair.target.tokenizer, given["prompt_tokens"], max(requests)
    )
    if len(prompts) < max(requests):
        click.echo(f"only {len(prompts)} prompts for {max(requests)} requests", err=True)
    settings = Settings(
        prompts=tuple(tuple(prompt) for prompt in prompts),
        samplings=tuple(Sampling(t, given["top_k"], given["top_p"]) for t in temperatures),
        requests=tuple(min(count, len(prompts)) for count in requests),
        prompt_tokens=given["prompt_tokens"],
        max_new_tokens=given["max_new_tokens"],
        gamma_max=given["gamma_max"],
        repeats=given["repeats"],
        seed=given["seed"],
    )
    settings.check_fits(pair.context)
    return Prepared(pair, settings)


# Packages that decide what is measured, beside the profile and what was asked for.
_DECISIVE = ("specsim", "torch", "transformers")


@contextmanager
def resumable(profile: Path, *asked: object) -> Iterator[Path]:
    """A folder for what was decoded so far; it is gone once all is done.

    A run that was killed finds its folder again if the profile, what was ``asked`` for (as JSON)
    and the packages are the same.
    """
    folder = temporary_folder([file_digest(profile), *asked, *map(version, _DECISIVE)])
    if any(folder.iterdir()):
        click.echo(f"going on with what was decoded before, in {folder}", err=True)
    try:
        yield folder
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    # The result is worth more than a clean folder.
    shutil.rmtree(folder, ignore_errors=True)


def progress_bar() -> Progress:
    """A progress bar on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def typed() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["specsim", *sys.argv[1:]])
