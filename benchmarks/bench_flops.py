"""What counting FLOPs takes: the trace of an 8 B Llama at two shapes, and the exact count of one step of 2,000 packed documents.

The reference is the limit of the issue: 15 s for the trace, 50 µs for the step, each as a row of its own; ratios say how many times
faster a contender is. The trace runs in a process of its own, so that its memory is its own.
"""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np

from benchmarks.table import Table, best_of
from penstock.observe.flops import BatchLayout, Mask, ModelFlops, Product, Site
from penstock.observe.flops.dimension import Shape
from penstock.observe.flops.model_flops import ShapeTrace

DOCUMENTS, ROWS, LENGTH, LAYERS = 2_000, 64, 8_192, 32
_TRACE = """
import json, resource, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from penstock.observe.flops import BatchLayout
from penstock.torch import flops
config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                     num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192)
with torch.device("meta"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
tokens = torch.empty(1, 8192, dtype=torch.long, device="meta")
begun, used = time.perf_counter(), time.process_time()
counted = flops(model, {"input_ids": tokens, "labels": tokens, "use_cache": False})
took, used = time.perf_counter() - begun, time.process_time() - used
weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256
exact = 6 * weights * 8192 + 32 * 6 * 32 * 256 * (8192 * 8193 // 2)
total = counted.count(BatchLayout(counted.first.shape)).useful_total
assert total == exact, (total, exact)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps({"s": took, "processor_s": used, "GB": memory}))
"""


def run() -> Table:
    """Measure both."""
    table = Table("an 8 B model is counted within 15 s, and a step of 2,000 documents within 50 µs", "s")
    table.add("limit of the trace", 15.0)
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TRACE],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    facts = json.loads(answer.stdout.splitlines()[-1])
    note = f"{facts['processor_s']:.1f} s of processor time, {facts['GB']:.2f} GB; equal to the closed form"
    table.add("8 B Llama, 8,192 tokens, two shapes", facts["s"], note)
    table.add("limit of a step", 50e-6)
    model, layout = _packed()
    table.add(
        "a step of 2,000 documents, windows too",
        best_of(lambda: model.count(replace(layout, _sums={})), rounds=2000),
    )
    return table


def _packed() -> tuple[ModelFlops, BatchLayout]:
    """A model of many layers, with and without a window, and a packed batch with padding."""
    ends = np.sort(np.random.default_rng(1).choice(ROWS * LENGTH - 1, DOCUMENTS - 1, replace=False)) + 1
    boundaries = np.concatenate([[0], ends, [ROWS * LENGTH]]).astype(np.int64)
    padding = np.zeros(DOCUMENTS, bool)
    padding[-1] = True
    real = np.full(ROWS, LENGTH, np.int64)
    real[-1] -= min(int(boundaries[-1] - boundaries[-2]), LENGTH)
    shape, other = Shape(ROWS, LENGTH), Shape(ROWS + 1, LENGTH // 2)
    traces = tuple(ShapeTrace(at, tuple(_seen(at))) for at in (shape, other))
    layout = BatchLayout(shape, {"cu_seqlens": boundaries}, {"cu_seqlens": padding}, real)
    return ModelFlops(traces), layout


def _seen(shape: Shape) -> list[Product | Site]:
    tokens = shape.rows * (shape.length or 0)
    seen: list[Product | Site] = []
    for layer in range(LAYERS):
        seen.append(Product(f"layers.{layer}", "aten::mm", "forward", "bfloat16", 2, (tokens, 4096, 4096)))
        mask = Mask(left=4095 if layer % 2 else None, right=0, documents="cu_seqlens", end_aligned=True)
        name = "torch_attn::_varlen_attn"
        seen.append(
            Site(f"layers.{layer}", name, "forward", "bfloat16", 32, 8, 128, 128, 1, tokens, tokens, mask)
        )
    return seen
