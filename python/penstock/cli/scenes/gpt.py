"""The program that the demo's ranks run: a small GPT, trained by a run. ``gpt.py PLACE NAME STOP_AT``."""

import sys
from pathlib import Path

import torch
from torch import nn

import penstock as ps
import penstock.torch
from penstock.run import Policy

WIDTH, HEADS, LAYERS, CONTEXT, VOCABULARY = 96, 4, 2, 128, 2048


class Block(nn.Module):
    """Attention and a feed-forward part, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of every position, from those before it."""
        rows, length, _ = hidden.shape
        parts = self.mix(self.before(hidden)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.join(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        thought: torch.Tensor = self.think(self.between(hidden))
        return hidden + thought


class Gpt(nn.Module):
    """Next-token logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.out = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Of every token."""
        logits: torch.Tensor = self.out(self.blocks(self.words(tokens) + self.places(positions)))
        return logits


def main(place: Path, name: str, stop_at: int) -> None:
    """Train until a step; another life goes on where the last one was."""
    penstock.torch.join("gloo")
    run = ps.Run(
        place / "runs" / name,
        recipe=ps.Recipe.load(place / "recipe.toml"),
        registry=ps.Registry(place / "registry"),
        policy=Policy(save_every=5, stop_at=stop_at, digest_every=5),
        seed=17,
        deterministic=True,
    )
    model = penstock.torch.ddp(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, batch in run.steps(penstock.torch.state(model, optimizer), fields=["tokens", "positions"]):
        tokens, positions = batch["tokens"].long(), batch["positions"].long()
        with run.span("forward"):
            logits = model(tokens[:, :-1], positions[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        with run.span("backward"):
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        if run.accept(loss, tokens=tokens.numel()):
            optimizer.step()
        if run.rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
