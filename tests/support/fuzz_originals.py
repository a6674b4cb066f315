"""A whole file of every kind that specsim reads, small, each written into a folder of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import specsim
from specsim import Load, deploy
from specsim.predict.prediction_file import fixed
from tests.support.mutations import SAMPLES, without_header
from tests.support.positions import write_positions
from tests.support.profiles import write_grid
from tests.support.shapes import VARIANTS

MEASURED = Path(__file__).parents[2] / "studies" / "measured"
# The name on the Hub of what lies in a cache.
REPOSITORY = "somebody/model"
_SNAPSHOT = f"models--{REPOSITORY.replace('/', '--')}"


def write_json(folder: Path, name: str, document: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def write_text(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(map(json.dumps, rows))


# --- measurements ------------------------------------------------------------------------------


def old_profile(folder: Path) -> Path:
    """As version 2 had them, with medians alone."""
    path = write_grid(folder)
    content = json.loads(path.read_text())
    for name in ("run_times", "overhead"):
        for row in content[name]:
            (seconds,) = row.pop("seconds")
            row |= {"median_s": seconds, "low_s": seconds, "high_s": seconds}
            for other in ("plain", "batch", "mode"):
                row.pop(other, None)
    for row in content["overhead"]:
        row.pop("context")
    del content["grid"], content["batch_overhead"]
    path.write_text(json.dumps({**content, "version": 2}))
    return path


def trace(folder: Path) -> Path:
    path = write_grid(folder).with_name("p.trace.parquet")
    frame = pd.read_parquet(path).iloc[:400]
    even = frame.index % 2
    shutil.rmtree(folder)
    folder.mkdir()
    frame.assign(argmax_equal=even, draft_top=0.3 + 0.5 * even).to_parquet(path)
    return path


def csv_trace(folder: Path) -> Path:
    found = pd.read_parquet(trace(folder)).iloc[:200]
    (folder / "p.trace.parquet").unlink()
    found.to_csv(folder / "trace.csv", index=False)
    return folder / "trace.csv"


def csv_positions(folder: Path) -> Path:
    found = pd.read_parquet(write_positions(folder)).iloc[:200]
    (folder / "positions.parquet").unlink()
    found.to_csv(folder / "positions.csv", index=False)
    return folder / "positions.csv"


def acceptance(folder: Path) -> Path:
    specsim.read(SAMPLES / "vllm-bench-serve-mtp3.txt", out=folder / "acceptance.json")
    return folder / "acceptance.json"


def timed_engine(folder: Path) -> Path:
    """A real one, with the first repeats alone."""
    content = json.loads((MEASURED / "serving/profile.vllm-0.json").read_text())
    for name in ("steps", "prompts"):
        content[name] = [row for row in content[name] if row.get("repeat", 0) < 2]
    return write_json(folder, "timed.json", content)


def prediction(folder: Path) -> Path:
    return fixed(write_grid(folder), 8)[1]


# --- serving -----------------------------------------------------------------------------------


def azure(folder: Path) -> Path:
    rows = [f"2023-11-16 18:15:{40 + n}.6805900,{90 + 7 * n},{3 + n}" for n in range(12)]
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    return write_text(folder, "azure.csv", "\r\n".join([header, *rows]))


def burstgpt(folder: Path) -> Path:
    rows = [f"{5 * n},ChatGPT,{90 + n},{n % 4},{90 + n + n % 4},API log" for n in range(12)]
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    return write_text(folder, "burst.csv", "\n".join([header, *rows]))


def mooncake(folder: Path) -> Path:
    rows = [
        {"timestamp": 100 * n, "input_length": 600, "output_length": 9, "hash_ids": [0, n]}
        for n in range(12)
    ]
    return write_text(folder, "mooncake.jsonl", _lines(rows))


def llmservingsim(folder: Path) -> Path:
    rows = [
        {"input_toks": 20, "output_toks": 5, "arrival_time_ns": 10**8 * n, "input_tok_ids": ids}
        for n in range(6)
        for ids in [[*range(18), n, n]]
    ]
    return write_text(folder, "sharegpt.jsonl", _lines(rows))


def token_counts(folder: Path) -> Path:
    rows = [
        {"id": n, "prompt_token_ids": [1] * 16 + [n] * 4, "output_len": 4, "arrival_s": n / 9}
        for n in range(8)
    ]
    return write_text(folder, "tokens.jsonl", _lines(rows))


def token_counts_csv(folder: Path) -> Path:
    rows = [f"{12 + n},{3 + n}" for n in range(8)]
    return write_text(folder, "counts.csv", "\n".join(["prompt_tokens,completion_tokens", *rows]))


def bench(folder: Path) -> Path:
    document = {
        "input_lens": [60 + n for n in range(50)],
        "output_lens": [5] * 50,
        "start_times": [1000 + n / 10 for n in range(50)],
        "ttfts": [0.01] * 50,
        "itls": [[0.005] * 4] * 50,
    }
    return write_json(folder, "bench.json", document)


def request_log(folder: Path) -> Path:
    rows = [
        {
            "request_id": f"r{n}",
            "input_toks": 20 + n,
            "output_toks": 5,
            "arrival_time": 5e8 + n / 10,
            "queued_ts": 9 + n / 10,
            "scheduled_ts": 9.001 + n / 10,
            "first_token_ts": 9.02 + n / 10,
            "last_token_ts": 9.05 + n / 10,
        }
        for n in range(45)
    ]
    return write_text(folder, "requests.jsonl", _lines(rows))


def guidellm(folder: Path) -> Path:
    requests = [
        {
            "request_start_time": 8 + n / 10,
            "prompt_tokens": 30 + n,
            "output_tokens": 5,
            "request_latency": 0.03,
            "time_to_first_token_ms": 10.0,
            "inter_token_latency_ms": 5.0,
        }
        for n in range(45)
    ]
    groups = {"successful": requests, "errored": [{}], "incomplete": []}
    return write_json(folder, "benchmarks.json", {"benchmarks": [{"requests": groups}]})


def adaptive_steps(folder: Path) -> Path:
    slots = {"1": {"candidate_steps": [1, 3, 7]}, "8": {"candidate_steps": [0, 2]}}
    return write_json(folder, "steps.json", {"ema_alpha": 0.5, "update_interval": 5, **slots})


def kernel_tables(folder: Path) -> Path:
    dense = [
        f"{name},{tokens},{2 + tokens / 100}"
        for name in ("embedding", "layernorm", "mlp")
        for tokens in (1, 8, 64, 512)
    ]
    attention = [
        f"{chunk},{before},{decodes},{length},{8 + chunk / 50 + decodes * length / 900}"
        for chunk in (0, 64, 512)
        for before in (0, 256)
        for decodes in (0, 1, 8)
        for length in (16, 256)
    ]
    heads = [f"lm_head,{count},{700 + count}" for count in (1, 4, 16)]
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    write_text(folder, "attention.csv", "\n".join([header, *attention]))
    write_text(folder, "per_sequence.csv", "\n".join(["layer,sequences,time_us", *heads]))
    return write_text(folder, "dense.csv", "\n".join(["layer,tokens,time_us", *dense]))


def capacity_plan(folder: Path) -> Path:
    answer = {"plan": {"met": True, "schedule": [[1, 4, 3], [5, 64, 0]]}, "rows": []}
    return write_json(folder, "plan.json", {"schema": "specsim.serving", "answer": answer})


# --- shapes and cards --------------------------------------------------------------------------


def config(folder: Path) -> Path:
    return write_json(
        folder, "config.json", {**VARIANTS["qwen3, layer types"], "dtype": "bfloat16"}
    )


def latent_config(folder: Path) -> Path:
    return write_json(folder, "config.json", {**VARIANTS["deepseek_v3"], "dtype": "bfloat16"})


def quantised(folder: Path) -> Path:
    scheme = {"num_bits": 8, "type": "float", "group_size": None}
    said = {
        "quant_method": "compressed-tensors",
        "config_groups": {"all": {"weights": scheme, "input_activations": scheme}},
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        "ignore": ["lm_head"],
    }
    shape = {**VARIANTS["llama"], "dtype": "bfloat16", "quantization_config": said}
    return write_json(folder, "config.json", shape)


def head_shape(folder: Path) -> Path:
    """The configuration of an EAGLE head, whose fields speculators keep inside."""
    shape = {**VARIANTS["llama"], "num_hidden_layers": 1, "draft_vocab_size": 64}
    inner = {"transformer_layer_config": shape, "draft_vocab_size": 64}
    write_json(folder, "target.json", {**VARIANTS["llama"], "dtype": "bfloat16"})
    head = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", **inner}
    return write_json(folder, "head.json", {**head, "dtype": "bfloat16"})


def hub_cache(folder: Path) -> Path:
    """The local cache of the Hub with one model."""
    model = folder / _SNAPSHOT
    for name in ("refs", "snapshots/abc"):
        (model / name).mkdir(parents=True)
    write_json(model / "snapshots/abc", "config.json", VARIANTS["llama"])
    return write_text(model / "refs", "main", "abc")


def accelerator(folder: Path) -> Path:
    link = {"name": "l", "bandwidth_gb_s": 450, "latency_us": 5, "peer_bandwidth_gb_s": 100}
    own = {"name": "a", "memory_gb": 80, "bandwidth_gb_s": 3000.0, "tflops": {"bfloat16": 900}}
    return write_json(folder, "card.json", {**own, "interconnect": link, "source": "here"})


def interconnect(folder: Path) -> Path:
    link = {"name": "l", "bandwidth_gb_s": 450, "latency_us": 5, "source": "here"}
    return write_json(folder, "link.json", link)


# --- engines -----------------------------------------------------------------------------------


def engine_outputs() -> list[str]:
    """Files of which counts can be read; one is an excerpt of which none can."""
    return sorted({each.name for each in SAMPLES.iterdir()} - {"vllm-prometheus-dp.txt"})


def sample_name(name: str) -> str:
    """How a file of an engine's output is called by its engine."""
    return name.removesuffix(".txt") if name.removesuffix(".txt").count(".") else name


def engine_output(name: str, folder: Path) -> Path:
    """What an engine printed, as JSON without the lines on its source."""
    if sample_name(name).endswith((".json", ".jsonl")):
        return write_text(folder, sample_name(name), without_header(name).strip())
    return write_text(folder, name, (SAMPLES / name).read_text())


# --- sweeps and results ------------------------------------------------------------------------

SWEEP = {
    "command": "evaluate",
    "inputs": {
        "alpha": [0.6, "0.8,0.7"],
        "c": {"first": 0.05, "last": 0.15, "step": 0.05},
        "overhead": {"first": 0.01, "last": 1, "count": 2, "spacing": "log"},
        "verify-cost": [[1, 1.1, 1.3, 1.4, 1.5]],
    },
    "cases": [{"gamma": 2}, {"gamma": 4, "acceptance-law": "ratio-test"}],
}
_TOML = """command = "evaluate"

[inputs]
alpha = [0.6, 0.7, "0.8,0.7"]
c = { first = 0.05, last = 0.15, step = 0.05 }
gamma = 3

[[cases]]
overhead = 0.1

[[cases]]
overhead = 0.2
heads = true
"""


def toml_sweep(folder: Path) -> Path:
    return write_text(folder, "settings.toml", _TOML)


def yaml_sweep(folder: Path) -> Path:
    """JSON is YAML, too."""
    return write_json(folder, "settings.yaml", SWEEP)


def swept(folder: Path) -> Path:
    """The record of a sweep, beside its parts."""
    asked = {
        "command": "evaluate",
        "inputs": {"alpha": [0.6, 0.8, 1.2], "c": 0.05, "gamma": [1, 4]},
    }
    specsim.sweep(asked, folder / "out", workers=1, chunk=3)
    for each in list((folder / "out").iterdir()):
        each.rename(folder / each.name)
    (folder / "out").rmdir()
    return folder / "_sweep.json"


def swept_part(folder: Path) -> Path:
    return swept(folder).with_name("part-00000.parquet")


def result(name: str, folder: Path) -> Path:
    """The JSON of an answer."""
    shapes = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")
    work = specsim.workload(rate=10, prompt="uniform:50,400", output="uniform:1,60", requests=30)
    found = {
        "evaluate": lambda: specsim.evaluate(0.8, 0.05, 5),
        "optimize": lambda: specsim.optimize(np.array([0.5, 0.8]), [[0.1], [0.2]]),
        "by load": lambda: specsim.optimize(0.8, deployment=shapes, load=Load([1, 8], [512])),
        "explain": lambda: specsim.explain(0.7, gamma=5, deployment=shapes),
        "serve": lambda: specsim.serve(
            work, step_model="step_ms=5", engine="vllm:num_gpu_blocks=600", slo="ttft_p99=1"
        ),
    }[name]()
    return write_text(folder, "result.json", found.to_json())


# --- what models read --------------------------------------------------------------------------


def prompts(folder: Path) -> Path:
    rows = [{"prompt": f"w{n} w2 w{n + 3}"} for n in range(6)]
    return write_text(folder, "prompts.jsonl", _lines(rows))


def plain_prompts(folder: Path) -> Path:
    return write_text(folder, "prompts.txt", "w1 w2\nw3 w4 w5\n")


def model(folder: Path) -> Path:
    """A model's folder, with weights and tokenizer; the file is its config.json."""
    from tests.support.models import build_model

    return build_model(folder, layers=2, width=16, seed=1) / "config.json"


def head(folder: Path) -> Path:
    """The folder of a head over that model; the file is its config.json."""
    from calibrate.models.eagle import EagleModel, save_head
    from tests.support.fuzz_readers import TARGET_SHA256, tiny

    target = tiny().model
    save_head(EagleModel(target), target, folder, TARGET_SHA256)
    return folder / "config.json"


def model_shape(folder: Path) -> Path:
    """A configuration that a model with random weights is built from."""
    return write_json(folder, "config.json", VARIANTS["qwen3, layer types"])
