"""Small models whose FLOPs have closed forms; parts of them as people build them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY = 97

Attend = Callable[..., torch.Tensor]


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
    """Attention of rows, without boundaries."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


@dataclass(frozen=True)
class Sizes:
    """What decides the closed form."""

    width: int = 32
    heads: int = 4
    kv_heads: int = 4
    d_qk: int = 8
    d_v: int = 8
    hidden: int = 64
    layers: int = 2

    @property
    def weights(self) -> int:
        """Weights of one layer that every token meets."""
        attention = self.heads * self.d_qk + self.kv_heads * (self.d_qk + self.d_v) + self.heads * self.d_v
        return self.width * (attention + 2 * self.hidden)

    def closed_form(self, tokens: int, pairs: int) -> int:
        """Forward and backward: 6 per weight and token, 6 (d_qk + d_v) per head and pair."""
        products = 6 * tokens * (self.layers * self.weights + self.width * VOCABULARY)
        return products + 6 * self.layers * self.heads * (self.d_qk + self.d_v) * pairs


class Layer(nn.Module):
    """Attention with fewer heads for keys, of two widths, and a perceptron."""

    def __init__(self, sizes: Sizes, attend: Attend) -> None:
        super().__init__()
        self.sizes, self.attend = sizes, attend
        self.query = nn.Linear(sizes.width, sizes.heads * sizes.d_qk, bias=False)
        self.key = nn.Linear(sizes.width, sizes.kv_heads * sizes.d_qk, bias=False)
        self.value = nn.Linear(sizes.width, sizes.kv_heads * sizes.d_v, bias=False)
        self.out = nn.Linear(sizes.heads * sizes.d_v, sizes.width, bias=False)
        self.up, self.down = nn.Linear(sizes.width, sizes.hidden), nn.Linear(sizes.hidden, sizes.width)

    def forward(self, stream: torch.Tensor, batch: Any) -> torch.Tensor:
        """One layer."""
        rows, length, _ = stream.shape
        query, key, value = (
            part.view(rows, length, -1, width).transpose(1, 2)
            for part, width in (
                (self.query(stream), self.sizes.d_qk),
                (self.key(stream), self.sizes.d_qk),
                (self.value(stream), self.sizes.d_v),
            )
        )
        mixed = self.attend(query, key, value, batch)
        stream = stream + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        return stream + self.down(functional.gelu(self.up(stream)))


class Decoder(nn.Module):
    """Layers between a table of tokens and a head, which may be the table."""

    def __init__(
        self, sizes: Sizes, attend: Attend = causal, *, again: bool = False, tied: bool = False
    ) -> None:
        super().__init__()
        self.again = again
        self.table = nn.Embedding(VOCABULARY, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes, attend) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor, **batch: torch.Tensor) -> torch.Tensor:
        """Logits."""
        stream = self.table(tokens)
        for layer in self.layers:
            if self.again:
                stream = checkpoint(layer, stream, batch, use_reentrant=False)
            else:
                stream = layer(stream, batch)
        return self.head(stream)


def tokens(rows: int, length: int) -> torch.Tensor:
    """A batch without values."""
    return torch.empty(rows, length, dtype=torch.long, device="meta")


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """A model without memory."""
    with torch.device("meta"):
        return build()
