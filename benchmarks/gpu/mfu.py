"""MFU of a 1.4 B GPT on packed rows, by three conventions, beside the measured peaks of the device; and what counting costs.

Run: `python -m benchmarks.gpu.mfu OUT.json`. Rows of documents of many lengths, attention by `varlen_attn` (documents apart) and by
plain causal attention over the row (documents see each other), each with and without activation checkpointing. A step is what lies
between two marks on the device's stream. Prints a table in Markdown and writes JSON.
"""

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import penstock.torch
from benchmarks.gpu.gpt import HEADS, LAYERS, VOCABULARY, WIDTH
from penstock.observe.mfu import Mfu, mfu_of
from penstock.observe.peaks.device import read_limits
from penstock.torch.arithmetic.matmul_peak import measure_peaks

LENGTH, ROWS, WARM, STEPS = 4096, 4, 5, 20


class Block(nn.Module):
    """Attention within documents or over the row, and a perceptron."""

    def __init__(self, width: int, *, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor, cu_seqlens: torch.Tensor, longest: int) -> torch.Tensor:
        """One layer."""
        rows, length, width = hidden.shape
        parts = self.qkv(self.first(hidden)).view(rows, length, 3, HEADS, width // HEADS)
        if self.packed:
            mixed = _varlen(parts, cu_seqlens, longest).view(rows, length, width)
        else:
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(rows, length, width)
        hidden = hidden + self.out(mixed)
        result: torch.Tensor = hidden + self.down(functional.gelu(self.up(self.second(hidden))))
        return result


def _varlen(parts: torch.Tensor, cu_seqlens: torch.Tensor, longest: int) -> torch.Tensor:
    import inspect

    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (part.contiguous() for part in parts.flatten(0, 1).unbind(1))
    # Releases differ in how causality is asked for.
    causal = (
        {"is_causal": True}
        if "is_causal" in inspect.signature(varlen_attn).parameters
        else {"window_size": (-1, 0)}
    )
    mixed: Any = varlen_attn(query, key, value, cu_seqlens, cu_seqlens, longest, longest, **causal)
    result: torch.Tensor = mixed
    return result


class Gpt(nn.Module):
    """1.4 B parameters."""

    def __init__(self, *, packed: bool, again: bool) -> None:
        super().__init__()
        self.again = again
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, packed=packed) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, cu_seqlens: torch.Tensor, longest: int) -> torch.Tensor:
        """The loss of predicting every token from those before it."""
        hidden = self.table(tokens)
        for block in self.blocks:
            if self.again:
                hidden = checkpoint(block, hidden, cu_seqlens, longest, use_reentrant=False)
            else:
                hidden = block(hidden, cu_seqlens, longest)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens.flatten())


def packed_batch(seed: int) -> dict[str, Any]:
    """Rows that documents of many lengths fill to the last token; on the host."""
    draw = np.random.default_rng(seed)
    lengths: list[int] = []
    for _ in range(ROWS):
        left = LENGTH
        while left:
            lengths.append(min(left, int(draw.lognormal(6.2, 1.1)) + 8))
            left -= lengths[-1]
    ends = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int32)
    tokens = torch.from_numpy(draw.integers(0, VOCABULARY, (ROWS, LENGTH)))
    return {"tokens": tokens, "cu_seqlens": ends, "longest": LENGTH}


def measure(*, packed: bool, again: bool, measured: dict[str, float], notes: list[str]) -> dict[str, Any]:
    """Train some steps, and count them."""
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Gpt(packed=packed, again=again)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = [packed_batch(seed) for seed in range(WARM + STEPS)]
    begun = time.perf_counter()
    counted = penstock.torch.flops(model, batches[0], autocast=torch.bfloat16)
    traced_s = time.perf_counter() - begun
    marks = []
    for batch in batches:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        marks.append(mark)
        moved = {name: v.cuda() if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**moved)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    times = [before.elapsed_time(after) for before, after in itertools.pairwise(marks)][WARM:]
    answers = [
        mfu_of(
            counted.step(batch), int(ms * 1e6), torch.cuda.get_device_name(), measured=measured, notes=notes
        )
        for batch, ms in zip(batches[WARM:], times, strict=False)
    ]
    numbers = [answer for answer in answers if isinstance(answer, Mfu)]
    row: dict[str, Any] = {
        "attention": "documents (varlen)" if packed else "whole row (causal)",
        "checkpointed": again,
        "step ms": round(statistics.median(times), 2),
        "traced s": round(traced_s, 2),
        "refused": [str(answer) for answer in answers if not isinstance(answer, Mfu)][:1],
    }
    for name in ("mfu", "mfu_palm", "hfu", "of_measured"):
        values = [value for number in numbers if (value := getattr(number, name)) is not None]
        row[name] = round(statistics.median(values), 4) if values else None
    row["notes"] = sorted({note for number in numbers for note in number.notes})
    return row


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    place = parser.parse_args().out
    limits = [limit.to_json() for limit in read_limits()]
    notes = [note for limit in read_limits() for note in limit.notes]
    peaks = [peak.to_json() for peak in measure_peaks()]
    print("| type | burst TFLOP/s | sustained | maker's figure |\n|---|---|---|---|")
    for peak in peaks:
        figure = "unknown" if peak["peak"] is None else f"{peak['peak'] / 1e12:.4g}"
        print(f"| {peak['dtype']} | {peak['burst'] / 1e12:.4g} | {peak['sustained'] / 1e12:.4g} | {figure} |")
    sustained = {peak["dtype"]: peak["sustained"] for peak in peaks}
    rows = []
    print(
        "\n| attention | checkpointed | step ms | mfu | mfu_palm | hfu | of measured |\n|---|---|---|---|---|---|---|"
    )
    for packed, again in itertools.product((True, False), (False, True)):
        row = measure(packed=packed, again=again, measured=sustained, notes=notes)
        rows.append(row)
        shown = (
            row[name]
            for name in ("attention", "checkpointed", "step ms", "mfu", "mfu_palm", "hfu", "of_measured")
        )
        print(f"| {' | '.join(map(str, shown))} |", *row["refused"], flush=True)
        torch.cuda.empty_cache()
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "limits": limits}
    place.write_text(json.dumps({**facts, "peaks": peaks, "mfu": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
