"""The MFU of a model on packed rows: counted before training, exact for the documents of every step, refused where it cannot be known."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import penstock as ps
import penstock.torch
from penstock.observe.flops import Mask
from penstock.observe.mfu import Mfu, mfu_of

VOCABULARY, WIDTH, HEADS, LENGTH, ROWS, STEPS = 512, 64, 4, 256, 4, 3


class Model(torch.nn.Module):
    """One layer of attention within documents, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.head = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Logits; a token sees its own document and what is before it."""
        rows, length = tokens.shape
        hidden = self.table(tokens.long())
        query, key, value = self.qkv(hidden).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = (segments[:, :, None] == segments[:, None, :]).tril()[:, None]
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return self.head(functional.gelu(self.up(hidden)))


def forward(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """How the loop calls the model."""
    logits: torch.Tensor = model(batch["tokens"], batch["segments"])
    return functional.cross_entropy(logits.flatten(0, 1), batch["tokens"].long().flatten())


def main() -> None:
    """Register documents, count the model, train some steps, and say how well the device was used."""
    folder = Path(tempfile.mkdtemp())
    draw = np.random.default_rng(1)
    documents = [draw.integers(0, VOCABULARY, draw.integers(5, 200), dtype=np.uint16) for _ in range(400)]
    np.save(folder / "tokens.npy", np.concatenate(documents)[: 40 * LENGTH].reshape(-1, LENGTH // 4))
    registry = ps.Registry(folder / "registry")
    registry.register("documents", folder / "tokens.npy")
    recipe = ps.Recipe(sources=[ps.Source("documents@1")], stages=[ps.Pack(LENGTH)], batch=ROWS, seed=1)

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    fields = ("tokens", "cu_seqlens", "segments")
    # The mask is made from the boundaries of documents, which a trace cannot see: it is declared.
    masks = {"*": Mask(right=0, documents="cu_seqlens")}
    with penstock.torch.loader(recipe, registry=registry, fields=fields) as batches:
        flops = None
        begun = time.perf_counter_ns()
        for step, batch in zip(range(STEPS), batches, strict=False):
            if flops is None:
                flops = penstock.torch.flops(model, batch, forward=forward, masks=masks)
            forward(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            now = time.perf_counter_ns()
            counts = flops.step(batch)
            print(f"step {step}: {counts.useful_total} useful FLOPs of {counts.executed_total}")
            # A processor is no device with a maker's figure, so there is no number here, and the reason is said.
            name = torch.cuda.get_device_name() if torch.cuda.is_available() else "this processor"
            answer = mfu_of(counts, now - begun, name)
            print(f"MFU {answer.mfu:.1%}" if isinstance(answer, Mfu) else answer)
            begun = now
            assert counts.useful_total is not None


if __name__ == "__main__":
    main()
