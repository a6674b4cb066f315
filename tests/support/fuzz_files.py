"""Files of every kind that specsim reads, whole and damaged, and who reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd

import specsim
from specsim.files import file_digest
from tests.support.mutations import SAMPLES, mutations
from tests.support.positions import write_positions
from tests.support.profiles import write_grid
from tests.support.shapes import VARIANTS

_DEEP: Any = 0
for _ in range(150):
    _DEEP = [_DEEP]
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 0.5, -0.5, 1e300, 1e-300, 2**63, -(2**70), 10**400, 10**9),
    *("", "x", "nan", "1e400", "\ud800", "../../x", "/dev/zero", "y" * 10_000, "\x00", "0" * 64),
    *([], {}, [1], [[]], {"a": 1}, _DEEP),
)
MEASURED = Path(__file__).parents[2] / "studies" / "measured"
SHAPES = "--draft llama-3.2-1b --accelerator H100-SXM --batch 1 --context 512"
STEPS = "--step-cost step_ms=5 --engine vllm:num_gpu_blocks=600"


@dataclass(frozen=True)
class FileKind:
    """One kind of file.

    write : into a folder, whole
    commands : that read it, with FILE in its place
    change : how its content is damaged beside its bytes and its text
    """

    name: str
    write: Callable[[Path], Path]
    commands: tuple[str, ...]
    change: Callable[[Path, Random], None] | None = None


def damaged(kind: FileKind, original: Path, folder: Path, random: Random) -> Path:
    """A damaged copy, with what lies beside it, in a folder that is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original.parent, folder)
    path = folder / original.name
    if kind.change is not None and random.random() < 0.7:
        kind.change(path, random)
    elif random.random() < 0.5:
        path.write_bytes(_changed_bytes(path.read_bytes(), random))
    else:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        (changed,) = mutations(text, 1, random.randrange(2**32))
        errors = "surrogateescape" if _plain(changed) else "replace"
        path.write_bytes(changed.encode("utf-8", errors))
    return path


def _plain(text: str) -> bool:
    """Whether a text can be put back into the bytes that it was made of."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _changed_bytes(content: bytes, random: Random) -> bytes:
    """Bytes that are cut, doubled, exchanged or put in somewhere."""
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(content) or 1)
        to = min(at + random.choice((1, 1, 8, 100)), len(content))
        some = bytes(random.randrange(256) for _ in range(random.choice((0, 1, 4))))
        content = random.choice(
            (
                content[:at] + content[to:],
                content[:at] + some + content[to:],
                content[:at] + content[at:to] * 2 + content[to:],
                content[:at],
            )
        )
    return content


# --- JSON --------------------------------------------------------------------------------------


def change_json(path: Path, random: Random) -> None:
    """One to three values of a document are others, gone, or there twice."""
    text = path.read_text()
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    at = random.randrange(len(lines))
    document = [json.loads(lines[at])]
    for _ in range(random.choice((1, 1, 2, 3))):
        _change_value(document, random)
    lines[at] = json.dumps(document[0]) if document else ""
    path.write_text("\n".join(lines))


def _change_value(document: Any, random: Random) -> None:
    """Walks down to a random place of a list or an object and changes what is there."""
    place = document
    while True:
        keys = list(range(len(place))) if isinstance(place, list) else list(place)
        if not keys:
            return
        key = random.choice(keys)
        inner = place[key]
        if isinstance(inner, (list, dict)) and inner and random.random() < 0.85:
            place = inner
            continue
        break
    what = random.randrange(6)
    if what == 0 and place is not document:
        del place[key]
    elif what == 1 and isinstance(place, list):
        place.insert(random.randrange(len(place) + 1), place[key])
    elif what == 2 and isinstance(inner, (int, float)):
        place[key] = inner * random.choice((-1, 0, 0.5, 2, 10, 1e6, 1e-6))
    elif what == 3:
        place[key] = place[random.choice(keys)]
    elif what == 4 and isinstance(place, dict):
        place[random.choice((*keys, "surprise"))] = deepcopy(random.choice(_VALUES))
    else:
        place[key] = deepcopy(random.choice(_VALUES))


# --- tables ------------------------------------------------------------------------------------


def change_table(path: Path, random: Random) -> None:
    """A column or a cell is another, rows are gone, doubled or out of order."""
    is_csv = path.suffix == ".csv"
    frame = pd.read_csv(path) if is_csv else pd.read_parquet(path)
    for _ in range(random.choice((1, 1, 2))):
        frame = _changed_frame(frame, random)
    frame.attrs = {"temperature": random.choice((0, 1.0, "hot", None, -1, [1]))}
    try:
        frame.to_csv(path, index=False) if is_csv else frame.to_parquet(path, index=False)
    except Exception:  # not every mixture of values is a column
        frame.astype(str).to_csv(path.with_suffix(".csv"), index=False)
        shutil.move(path.with_suffix(".csv"), path)


def _changed_frame(frame: pd.DataFrame, random: Random) -> pd.DataFrame:
    name = random.choice(list(frame.columns)) if len(frame.columns) else "x"
    row = random.randrange(len(frame) or 1)
    values = (np.nan, np.inf, -np.inf, -1, 0, 0.5, 2, 1e300, 2**62, "x", "", None, [1], True)
    match random.randrange(8):
        case 0:
            return frame.drop(columns=name, errors="ignore")
        case 1:
            return frame.rename(columns={name: random.choice(("x", "request", "matched", "beta"))})
        case 2:
            return pd.concat([frame, frame.iloc[row : row + random.choice((1, 5, 500))]])
        case 3:
            return frame.drop(index=frame.index[row : row + 1])
        case 4:
            return frame.sample(frac=1.0, random_state=random.randrange(2**32))
        case 5:
            value = random.choice(values)
            return frame.assign(**{name: [value] * len(frame)})
        case 6:
            column = frame[name].astype(object).to_list()
            if column:
                column[row % len(column)] = random.choice(values)
            return frame.assign(**{name: column})
        case _:
            kind = random.choice((str, "float32", "int8", "bool", "category", "datetime64[ns]"))
            try:
                return frame.assign(**{name: frame[name].astype(kind)})
            except (TypeError, ValueError, OverflowError):
                return frame.iloc[:0]


def change_trace_of_profile(path: Path, random: Random) -> None:
    """The trace beside a profile, whose hash is that of the changed one."""
    content = json.loads(path.read_text())
    reference = content["acceptance"][0]["trace"]
    trace = path.parent / reference["file"]
    change_table(trace, random)
    reference["sha256"] = file_digest(trace)
    path.write_text(json.dumps(content))


# --- the kinds ---------------------------------------------------------------------------------


def _json(folder: Path, name: str, document: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def _trace(folder: Path) -> Path:
    path = write_grid(folder).with_name("p.trace.parquet")
    frame = pd.read_parquet(path)
    even = frame.index % 2
    frame.assign(argmax_equal=even, draft_top=0.3 + 0.5 * even).to_parquet(path)
    return path


def _csv_trace(folder: Path) -> Path:
    trace = _trace(folder)
    path = folder / "trace.csv"
    pd.read_parquet(trace).iloc[:200].to_csv(path, index=False)
    return path


def _acceptance(folder: Path) -> Path:
    specsim.read(SAMPLES / "vllm-bench-serve-mtp3.txt", out=folder / "acceptance.json")
    return folder / "acceptance.json"


def _workload(folder: Path) -> Path:
    path = folder / "workload.jsonl"
    rows = [
        {"timestamp": 100 * n, "input_length": 600, "output_length": 9, "hash_ids": [0, n]}
        for n in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def _log(folder: Path) -> Path:
    document = {
        "input_lens": [60 + n for n in range(50)],
        "output_lens": [5] * 50,
        "start_times": [1000 + n / 10 for n in range(50)],
        "ttfts": [0.01] * 50,
        "itls": [[0.005] * 4] * 50,
    }
    return _json(folder, "bench.json", document)


def _plan(folder: Path) -> Path:
    answer = {"plan": {"met": True, "schedule": [[1, 4, 3], [5, 64, 0]]}, "rows": []}
    return _json(folder, "plan.json", {"schema": "specsim.serving", "answer": answer})


def _config(folder: Path) -> Path:
    return _json(folder, "config.json", {**VARIANTS["qwen3, layer types"], "dtype": "bfloat16"})


def _quantised(folder: Path) -> Path:
    scheme = {"num_bits": 8, "type": "float", "group_size": None}
    quantised = {
        "quant_method": "compressed-tensors",
        "config_groups": {"all": {"weights": scheme, "input_activations": scheme}},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        "ignore": ["lm_head"],
    }
    shape = {**VARIANTS["llama"], "dtype": "bfloat16", "quantization_config": quantised}
    return _json(folder, "config.json", shape)


def _accelerator(folder: Path) -> Path:
    link = {"name": "l", "bandwidth_gb_s": 450, "latency_us": 5, "peer_bandwidth_gb_s": 100}
    own = {"name": "a", "memory_gb": 80, "bandwidth_gb_s": 3000.0, "tflops": {"bfloat16": 900}}
    return _json(folder, "card.json", {**own, "interconnect": link, "source": "here"})


def _engine_text(folder: Path) -> Path:
    path = folder / "log.txt"
    path.write_text((SAMPLES / "vllm-log-current.txt").read_text())
    return path


def _engine_json(folder: Path) -> Path:
    path = folder / "log.json"
    text = (SAMPLES / "vllm-bench-serve-result.json.txt").read_text()
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return path


def _timed_engine(folder: Path) -> Path:
    path = folder / "timed.json"
    path.write_text((MEASURED / "serving/profile.vllm.json").read_text())
    return path


def _adaptive_steps(folder: Path) -> Path:
    slots = {"1": {"candidate_steps": [1, 3, 7]}, "8": {"candidate_steps": [0, 2]}}
    return _json(folder, "steps.json", {"ema_alpha": 0.5, "update_interval": 5, **slots})


_OF_PROFILE = (
    "optimize --profile FILE --format json",
    "evaluate --profile FILE --gamma 2 --format json",
    "evaluate --profile FILE --gamma 2 --acceptance-law greedy-drafts --format json",
    "optimize --profile FILE --batch 1,9 --context 64 --format json",
    "optimize --profile FILE --alpha 0.7 --batch 4 --format json",
    "export vllm --profile FILE --most 4",
)
_OF_CONFIG = (
    f"optimize --target FILE {SHAPES} --alpha 0.8 --format json",
    f"explain --target FILE {SHAPES} --alpha 0.8 --gamma 3 --format json",
)
KINDS = (
    FileKind("profile", write_grid, _OF_PROFILE, change_json),
    FileKind("profile's trace", write_grid, _OF_PROFILE[:4], change_trace_of_profile),
    FileKind(
        "trace",
        _trace,
        (
            "replay FILE --gamma 0:4 --format json",
            "replay FILE --gamma 1,9 --c 0.1 --policy grow-shrink --format json",
            "replay FILE --gamma 2 --greedy --format json",
            "replay FILE --gamma 2 --acceptance-law exact-match --p-min 0.4 --format json",
        ),
        change_table,
    ),
    FileKind(
        "trace in CSV", _csv_trace, ("replay FILE --gamma 0:4 --c 0.1 --format json",), change_table
    ),
    FileKind(
        "positions",
        write_positions,
        (
            "defer FILE --format json",
            "defer FILE --quality target --c 0.1 --format json",
            "defer FILE --speedup 1.5 --c 0.1 --loss log --format json",
        ),
        change_table,
    ),
    FileKind(
        "acceptance",
        _acceptance,
        (
            "optimize --profile FILE --c 0.05 --format json",
            "evaluate --profile FILE --c 0.05 --gamma 9 --format json",
            f"optimize --profile FILE --target llama-3.1-8b {SHAPES} --format json",
        ),
        change_json,
    ),
    FileKind(
        "timed engine",
        _timed_engine,
        (
            "optimize --profile FILE --batch 1,4 --format json",
            "serve --profile FILE --gamma 2 --rate 2 --prompt 64 --output 20 --requests 30 "
            "--engine vllm:num_gpu_blocks=600 --format json",
        ),
        change_json,
    ),
    FileKind(
        "adaptive steps",
        _adaptive_steps,
        (
            "serve --rate 20 --prompt 20 --output 60 --requests 30 --alpha 0.8 --step-cost "
            "step_ms=5,draft_run_ms=0.5 --engine "
            "sglang:max_total_num_tokens=100000,disable_cuda_graph=yes --gamma adaptive:FILE "
            "--format json",
        ),
        change_json,
    ),
    FileKind("engine's log", _engine_text, ("read FILE --format json",)),
    FileKind("engine's benchmark", _engine_json, ("read FILE --format json",), change_json),
    FileKind(
        "workload",
        _workload,
        ("workload --workload FILE --format json", f"serve --workload FILE {STEPS} --format json"),
        change_json,
    ),
    FileKind("request log", _log, (f"validate --serving FILE {STEPS} --format json",), change_json),
    FileKind("plan", _plan, ("export vllm --capacity-plan FILE --profile PROFILE",), change_json),
    FileKind("config", _config, _OF_CONFIG, change_json),
    FileKind("quantised config", _quantised, _OF_CONFIG, change_json),
    FileKind(
        "accelerator",
        _accelerator,
        (
            "optimize --target llama-3.1-8b --draft llama-3.2-1b --alpha 0.8 --batch 1 "
            "--context 512 --accelerator FILE --format json",
        ),
        change_json,
    ),
)
