"""Every kind of file that specsim reads: how it is damaged, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.support import fuzz_originals as originals
from tests.support.fuzz_damage import (
    Change,
    Damage,
    WholeFile,
    changed_json,
    changed_table,
    changed_trace_of_profile,
    damaged,
    in_file,
)

_JSON, _TABLE = in_file(changed_json), in_file(changed_table)


@dataclass(frozen=True)
class FileKind:
    """One kind of file.

    write : a whole one into a folder
    commands : words of those that read it, or of a call (``fuzz_readers``).  In them FILE stands
        for the damaged file, WHOLE for one that is not, INSIDE and AROUND for their folders and
        PROFILE for a profile
    change : how its content is damaged beside its bytes and its text
    victims : files that are damaged in place of the one that is named, by pattern
    share : how often it is damaged, against 1
    """

    name: str
    write: Callable[[Path], Path]
    commands: tuple[str, ...]
    change: Change | None = None
    victims: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class Original:
    """A whole file of a kind, where it lies and what is in it."""

    kind: FileKind
    path: Path
    whole: WholeFile

    @staticmethod
    def written(kind: FileKind, folder: Path) -> Original:
        """Written into a folder, which is read whole."""
        folder.mkdir(parents=True, exist_ok=True)
        path = kind.write(folder)
        files = [each for each in sorted(folder.rglob("*")) if each.is_file()]
        contents = {str(each.relative_to(folder)): each.read_bytes() for each in files}
        victims = tuple(name for name in contents if kind.victims and re.search(kind.victims, name))
        return Original(kind, path, WholeFile(str(path.relative_to(folder)), contents, victims))

    def damaged(self, random: Random) -> Damage:
        """Files that are others than in the folder."""
        return damaged(self.whole, self.kind.change, random)

    def laid_out(self, damage: Damage, folder: Path) -> Path:
        """The file in a folder of its own, with what lies beside it."""
        for name, content in {**self.whole.contents, **damage}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.whole.name

    def words(self, command: str, path: Path, profile: Path) -> list[str]:
        """What is typed to have the file at a path read."""
        named: Mapping[str, Path] = {
            "FILE": path,
            "WHOLE": self.path,
            "INSIDE": path.parent,
            "AROUND": self.path.parent,
            "PROFILE": profile,
        }
        pattern = re.compile(rf"\b({'|'.join(named)})\b")
        return [pattern.sub(lambda found: str(named[found[1]]), word) for word in command.split()]


_SHAPES = "--draft llama-3.2-1b --accelerator H100-SXM --batch 1 --context 512"
_STEPS = "--step-cost step_ms=5 --engine vllm:num_gpu_blocks=600"
_OF_PROFILE = (
    "optimize --profile FILE --format json",
    "evaluate --profile FILE --gamma 2 --format json",
    "evaluate --profile FILE --gamma 2 --acceptance-law greedy-drafts --format json",
    "optimize --profile FILE --batch 1,9 --context 64 --format json",
    "optimize --profile FILE --alpha 0.7 --batch 4 --format json",
    "export vllm --profile FILE --most 4",
    "compare FILE WHOLE --format json",
)
_OF_CONFIG = (
    f"optimize --target FILE {_SHAPES} --alpha 0.8 --format json",
    f"explain --target FILE {_SHAPES} --alpha 0.8 --gamma 3 --format json",
)
_OF_WORKLOAD = (
    "workload --workload FILE --format json",
    f"serve --workload FILE {_STEPS} --format json",
    f"serve --prompt file:FILE --output 5 --rate 9 --requests 9 {_STEPS} --format json",
)
_OF_LOG = (f"validate --serving FILE {_STEPS} --format json",)
_COMPARED = ("compare FILE WHOLE --format json",)
_SWEPT = ("compare INSIDE AROUND --format json",)

_MEASURED = (
    FileKind("profile", originals.write_grid, _OF_PROFILE, _JSON, share=2),
    FileKind("profile of version 2", originals.old_profile, _OF_PROFILE[:3], _JSON),
    FileKind("profile's trace", originals.write_grid, _OF_PROFILE[:4], changed_trace_of_profile),
    FileKind(
        "trace",
        originals.trace,
        (
            "replay FILE --gamma 0:4 --format json",
            "replay FILE --gamma 1,9 --c 0.1 --policy grow-shrink --format json",
            "replay FILE --gamma 2 --greedy --format json",
            "replay FILE --gamma 2 --acceptance-law exact-match --p-min 0.4 --format json",
        ),
        _TABLE,
        share=2,
    ),
    FileKind(
        "trace in CSV",
        originals.csv_trace,
        ("replay FILE --gamma 0:4 --c 0.1 --format json",),
        _TABLE,
    ),
    FileKind(
        "positions",
        originals.write_positions,
        (
            "defer FILE --format json",
            "defer FILE --quality target --c 0.1 --format json",
            "defer FILE --speedup 1.5 --c 0.1 --loss log --format json",
        ),
        _TABLE,
    ),
    FileKind(
        "positions in CSV", originals.csv_positions, ("defer FILE --c 0.1 --format json",), _TABLE
    ),
    FileKind("prediction", originals.prediction, ("read-prediction FILE",), _JSON),
)
_COUNTED = (
    FileKind(
        "acceptance",
        originals.acceptance,
        (
            "optimize --profile FILE --c 0.05 --format json",
            "evaluate --profile FILE --c 0.05 --gamma 9 --format json",
            f"optimize --profile FILE --target llama-3.1-8b {_SHAPES} --format json",
            *_COMPARED,
        ),
        _JSON,
        share=2,
    ),
    FileKind(
        "timed engine",
        originals.timed_engine,
        (
            "optimize --profile FILE --batch 1,4 --format json",
            "serve --profile FILE --gamma 2 --rate 2 --prompt 64 --output 20 --requests 30 "
            "--engine vllm:num_gpu_blocks=600 --format json",
            f"optimize --target llama-3.1-8b {_SHAPES} --alpha 0.8 --fit FILE --format json",
            "validate FILE --format json",
            *_COMPARED,
        ),
        _JSON,
        share=2,
    ),
    *(
        FileKind(
            originals.sample_name(name),
            partial(originals.engine_output, name),
            ("read FILE --format json",),
            _JSON if originals.sample_name(name).endswith((".json", ".jsonl")) else None,
            share=0.5,
        )
        for name in originals.engine_outputs()
    ),
)
_SERVED = (
    FileKind("workload of Azure", originals.azure, _OF_WORKLOAD, _TABLE),
    FileKind("workload of BurstGPT", originals.burstgpt, _OF_WORKLOAD, _TABLE),
    FileKind("workload of Mooncake", originals.mooncake, _OF_WORKLOAD, _JSON),
    FileKind("workload of LLMServingSim", originals.llmservingsim, _OF_WORKLOAD, _JSON),
    FileKind("workload of vllm bench", originals.bench, _OF_WORKLOAD, _JSON),
    FileKind("token counts", originals.token_counts, _OF_WORKLOAD, _JSON),
    FileKind("token counts in CSV", originals.token_counts_csv, _OF_WORKLOAD[2:], _TABLE),
    FileKind("log of vllm bench", originals.bench, _OF_LOG, _JSON),
    FileKind("log of LLMServingSim", originals.request_log, _OF_LOG, _JSON),
    FileKind("log of GuideLLM", originals.guidellm, _OF_LOG, _JSON),
    FileKind(
        "adaptive steps",
        originals.adaptive_steps,
        (
            "serve --rate 20 --prompt 20 --output 60 --requests 30 --alpha 0.8 --step-cost "
            "step_ms=5,draft_run_ms=0.5 --engine "
            "sglang:max_total_num_tokens=100000,disable_decode_cuda_graph=yes "
            "--gamma adaptive:FILE --format json",
        ),
        _JSON,
    ),
    FileKind(
        "kernel tables",
        originals.kernel_tables,
        (
            "serve --rate 20 --prompt 90 --output 20 --requests 20 --engine "
            "vllm:num_gpu_blocks=600 --step-cost kernels:INSIDE,layers=2 --format json",
        ),
        _TABLE,
        victims=".",
    ),
    FileKind(
        "plan",
        originals.capacity_plan,
        (
            "export vllm --capacity-plan FILE --target llama-3.1-8b --draft llama-3.2-1b "
            "--accelerator H100-SXM --alpha 0.8 --model small",
        ),
        _JSON,
    ),
)
_SHAPED = (
    FileKind("config", originals.config, _OF_CONFIG, _JSON, share=2),
    FileKind("config of latent attention", originals.latent_config, _OF_CONFIG, _JSON),
    FileKind("quantised config", originals.quantised, _OF_CONFIG, _JSON),
    FileKind(
        "config of a head",
        originals.head_shape,
        (
            "optimize --target INSIDE/target.json --drafter eagle3:FILE --accelerator H100-SXM "
            "--alpha 0.8 --batch 1 --context 512 --format json",
        ),
        _JSON,
    ),
    FileKind("cache of the Hub", originals.hub_cache, ("read-cached FILE",), victims="."),
    FileKind(
        "accelerator",
        originals.accelerator,
        (
            "optimize --target llama-3.1-8b --draft llama-3.2-1b --alpha 0.8 --batch 1 "
            "--context 512 --accelerator FILE --tensor-parallel 2 --format json",
        ),
        _JSON,
    ),
    FileKind(
        "interconnect",
        originals.interconnect,
        (
            "optimize --target llama-3.1-8b --draft llama-3.2-1b --alpha 0.8 --batch 1 --context "
            "512 --accelerator H100-SXM --tensor-parallel 2 --interconnect FILE --format json",
        ),
        _JSON,
    ),
)
_ASKED = (
    FileKind("sweep in TOML", originals.toml_sweep, ("answer-sweep FILE",)),
    FileKind("sweep in YAML", originals.yaml_sweep, ("answer-sweep FILE",), _JSON),
    FileKind("sweep's record", originals.swept, _SWEPT, _JSON),
    FileKind("sweep's part", originals.swept_part, _SWEPT, _TABLE),
    *(
        FileKind(f"result of {name}", partial(originals.result, name), _COMPARED, _JSON)
        for name in ("evaluate", "optimize", "by load", "explain", "serve")
    ),
)
_MODELS = (
    FileKind("prompts", originals.prompts, ("read-prompts FILE",), _JSON),
    FileKind("prompts in text", originals.plain_prompts, ("read-prompts FILE",)),
    FileKind("config of a model", originals.model_shape, ("build-model FILE",), _JSON, share=0.5),
    FileKind(
        "model's folder",
        originals.model,
        ("load-model FILE",),
        in_file(changed_json),
        victims=r"^(config|tokenizer|tokenizer_config|generation_config)\.json$",
        share=0.5,
    ),
    FileKind(
        "model's weights", originals.model, ("load-model FILE",), victims="safetensors$", share=0.25
    ),
    FileKind("head's config", originals.head, ("load-head FILE",), _JSON, share=0.5),
    FileKind(
        "head's weights", originals.head, ("load-head FILE",), victims="safetensors$", share=0.5
    ),
)
KINDS = (*_MEASURED, *_COUNTED, *_SERVED, *_SHAPED, *_ASKED, *_MODELS)
assert len({kind.name for kind in KINDS}) == len(KINDS)
