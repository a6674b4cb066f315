"""``vllm bench serve``, which asks nobody and repeats what it was told."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path


def add_cli_args(parser: ArgumentParser) -> None:
    for name in ("backend", "base-url", "endpoint", "model", "dataset-name", "dataset-path"):
        parser.add_argument(f"--{name}")
    for name in ("custom-output-len", "num-prompts", "seed"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("request-rate", "temperature"):
        parser.add_argument(f"--{name}", type=float)
    for name in ("percentile-metrics", "metric-percentiles", "result-dir", "result-filename"):
        parser.add_argument(f"--{name}")
    for name in ("skip-chat-template", "disable-shuffle", "ignore-eos", "disable-tqdm"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("save-result", "save-detailed"):
        parser.add_argument(f"--{name}", action="store_true")


def main(args: Namespace) -> None:
    print("what it prints must not come between the answers", flush=True)
    if not Path(args.dataset_path).is_file():
        raise FileNotFoundError(f"no dataset\n{args.dataset_path}")
    Path(args.result_dir, args.result_filename).write_text(
        json.dumps(vars(args) | {"completed": args.num_prompts})
    )
