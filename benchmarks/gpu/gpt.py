"""A model of the size that people train on one machine, for measuring what else goes on: 1.41 B parameters in fp32, with Adam."""

import time

import torch
from torch import nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, VOCABULARY, LENGTH, ROWS = 2048, 24, 16, 50_304, 1024, 24


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """One layer."""
        rows, length, width = hidden.shape
        query, key, value = (
            self.qkv(self.first(hidden)).view(rows, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        result: torch.Tensor = hidden + self.down(functional.gelu(self.up(self.second(hidden))))
        return result


class Gpt(nn.Module):
    """Like GPT-2, with a buffer that every forward writes to."""

    seen: torch.Tensor

    def __init__(self, width: int = WIDTH, layers: int = LAYERS) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of predicting every next token."""
        self.seen += tokens.numel()
        hidden = self.table(tokens[:, :-1])
        for block in self.blocks:
            hidden = block(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


class Training:
    """The model, its optimizer, and a loop that measures itself."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS, rows: int = ROWS) -> None:
        torch.manual_seed(1)
        with torch.device("cuda"):
            self.model = Gpt(width, layers)
            self.tokens = torch.randint(0, VOCABULARY, (rows, LENGTH + 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self) -> float:
        """One step; seconds until the device is done with it."""
        begun = time.perf_counter()
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.model(self.tokens)
        loss.backward()
        self.optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    def steps(self, count: int) -> list[float]:
        """Several steps."""
        return [self.step() for _ in range(count)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of the state, by a name."""
        names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in self.model.named_parameters()
        }
        tensors = dict(self.model.state_dict())
        for parameter, kept in self.optimizer.state.items():
            tensors |= {f"{names[parameter]}/{key}": value for key, value in kept.items()}
        return tensors

    def copy(self) -> dict[str, torch.Tensor]:
        """The state as it is now."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}

    def scribble(self) -> None:
        """Make the state useless, so that only a load can bring it back."""
        with torch.no_grad():
            for tensor in self.tensors().values():
                tensor.fill_(7)

    def equals(self, kept: dict[str, torch.Tensor]) -> bool:
        """Whether every bit is the same."""
        now = self.tensors()
        return now.keys() == kept.keys() and all(torch.equal(now[name], kept[name]) for name in kept)
