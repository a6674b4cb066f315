"""Xia22's devices by roofline: Transformer-base, drafts of masks, and their verification.

The shape is assumed: Transformer-base, counted as a T5, since the paper names its sizes.  What is
not modelled: encoding the source, and host time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specsim import hardware
from specsim.schemes.specdec import SpecDec
from studies.common.study import reference

# The paper's block size, and the widest in its text.
BLOCK, WIDEST = 25, 30
BEAMS = 5  # its speed baseline is beam search
BATCHES = (1, 8, 32)
# Assumed: tokens of the source, and of the translation so far.
SOURCE, PREFIX = 30, 15
# Xia22 section 5.1 and footnote: 6 + 6 layers, 512 / 2048 / 8, a joint vocabulary of 32K.
BASE = hardware.shape_from_config(
    {
        "model_type": "t5",
        "d_model": 512,
        "d_kv": 64,
        "num_heads": 8,
        "d_ff": 2048,
        "num_layers": 6,
        "num_decoder_layers": 6,
        "vocab_size": 32_000,
    }
)
# Figure 5's three and the one its appendix E hopes for; the text does not say which form of each.
# float16 where there are tensor units.
DEVICES = (
    (hardware.accelerator("P100-PCIe-16GB"), "float32"),
    (hardware.accelerator("V100-SXM2-16GB"), "float16"),
    (hardware.accelerator("A100-40GB-SXM"), "float16"),
    (hardware.accelerator("H100-SXM"), "float16"),
)


def tokens_per_call(alpha: float, k: int, bonus: bool = True) -> float:
    """E[N] of k masks at one alpha for all positions."""
    return SpecDec(k, bonus=bonus).law(alpha).tokens_per_call


def _seconds(
    device: hardware.Accelerator, dtype: str, new_tokens: int, batch: int, context: int
) -> float:
    return hardware.roofline(
        BASE.at(hardware.Precision(dtype=dtype)),
        device,
        new_tokens,
        batch,
        context,
        encoder_context=SOURCE,
    ).seconds


def devices(alpha: float | None) -> Iterator[dict[str, Any]]:
    printed = [
        (row["setting"], float(row["speedup_over_beam5"]))
        for row in reference("xia22_text_figures")
        if row["speedup_over_beam5"]
    ]
    for device, dtype in DEVICES:
        for batch in BATCHES:
            plain = _seconds(device, dtype, 1, batch, PREFIX)
            # The drafter keeps no cache (Xia22 appendix D): it reads the prefix and all masks.
            c = _seconds(device, dtype, PREFIX + BLOCK, batch, 0) / plain
            v = _seconds(device, dtype, BLOCK + 1, batch, PREFIX) / plain
            beams = _seconds(device, dtype, 1, batch * BEAMS, PREFIX) / plain
            tokens = None if alpha is None else tokens_per_call(alpha, BLOCK)
            speedup = None if tokens is None else tokens / (c + v)
            yield {
                "source": "computed",
                "device": device.name,
                "dtype": dtype,
                "batch": batch,
                "plain_us": 1e6 * plain,
                "c": c,
                "v": v,
                "beams": beams,
                "cost_over_beams": (c + v) / beams,
                "tokens_per_call": tokens,
                "speedup_over_greedy": speedup,
                "speedup_over_beams": None if speedup is None else speedup * beams,
                **{f"needed, {name}": times * (c + v) / beams for name, times in printed},
            }


def verify() -> Iterator[dict[str, Any]]:
    columns = {
        f"{device.name}, batch {batch}": [
            _seconds(device, dtype, n, batch, PREFIX) for n in range(1, WIDEST + 1)
        ]
        for device, dtype in DEVICES
        for batch in (BATCHES[0], BATCHES[-1])
    }
    for n in range(1, WIDEST + 1):
        relative = {name: column[n - 1] / column[0] for name, column in columns.items()}
        yield {"source": "computed", "n": n, **relative}
