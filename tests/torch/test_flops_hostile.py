"""Operators and models that nobody here chose: counted exactly, or unknown, and never wrong."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex

from penstock.observe.flops import BatchLayout, Mask, Product, Site
from penstock.observe.flops.dimension import Shape
from penstock.observe.mfu import MfuRefused, mfu_of
from penstock.torch import Flops, flops
from tests.torch.models import Decoder, Sizes, on_meta, tokens

ROWS, LENGTH = 2, 256


def step_total(counted: Flops) -> int | None:
    return counted.count(BatchLayout(counted.first.shape)).useful_total


@pytest.fixture(scope="module", autouse=True)
def foreign_operators() -> Iterator[None]:
    """Operators of other packages, as those declare them; flash-attn's have its own schemas."""
    library = torch.library.Library("flash_attn", "DEF")
    library.define(
        "_flash_attn_varlen_forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, "
        "SymInt max_seqlen_k, float dropout_p, float softmax_scale, bool causal, SymInt window_size_left=-1, "
        "SymInt window_size_right=-1, float softcap=0., Tensor? alibi_slopes=None, bool return_softmax=False, "
        "Tensor? block_table=None, Tensor? leftpad_k=None, Tensor? seqused_k=None, bool zero_tensors=False) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    )
    library.define(
        "_flash_attn_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, Tensor(a!)? dq, "
        "Tensor(b!)? dk, Tensor(c!)? dv, float dropout_p, float softmax_scale, bool causal, SymInt window_size_left, "
        "SymInt window_size_right, float softcap, Tensor? alibi_slopes, bool deterministic, Tensor? rng_state=None) -> Tensor"
    )
    library.impl(
        "_flash_attn_varlen_forward",
        lambda q, *rest, **more: (q.clone(), q.new_empty(1), q.new_empty(1), q.new_empty(1)),
        "Meta",
    )
    library.impl("_flash_attn_backward", lambda dout, *rest, **more: dout.new_empty(1), "Meta")
    strange = torch.library.Library("strange", "DEF")
    strange.define("mix(Tensor left, Tensor right) -> Tensor")
    strange.impl("mix", lambda left, right: left @ right, "Meta")
    strange.impl("mix", lambda left, right: left @ right, "CPU")
    yield
    library._destroy()
    strange._destroy()


def test_flash_attention_of_its_own_package_is_read_by_its_arguments() -> None:
    class Flash(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(16, dtype=torch.bfloat16))

        def forward(self, tokens: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
            query = tokens.flatten().view(-1, 1, 1) * self.weight.expand(8, 16)
            key = query[:, :2]
            result = torch.ops.flash_attn._flash_attn_varlen_forward(
                query, key, key, cu_seqlens, cu_seqlens, LENGTH, LENGTH, 0.0, 1.0, True, window_size_left=31
            )
            torch.ops.flash_attn._flash_attn_backward(
                query[None],
                query[None],
                key[None],
                key[None],
                query,
                query,
                None,
                None,
                None,
                0.0,
                1.0,
                False,
                -1,
                -1,
                0.0,
                None,
                False,
            )
            return result[0]

    ends = torch.tensor([0, 100, 256, 512], dtype=torch.int32)
    counted = flops(on_meta(Flash), {"tokens": tokens(ROWS, LENGTH), "cu_seqlens": ends}, backward=False)

    forward, backward = (entry for entry in counted.first.seen if isinstance(entry, Site))
    assert forward.mask == Mask(left=31, right=0, documents="cu_seqlens", end_aligned=True)
    assert (forward.heads, forward.kv_heads, forward.d_qk) == (8, 2, 16)
    assert backward.mask == Mask(end_aligned=True)


def document_mask(lengths: list[int]) -> flex.BlockMask:
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))

    def rule(row: Any, head: Any, query: Any, key: Any) -> Any:
        return (owner[query] == owner[key]) & (query >= key)

    return flex.create_block_mask(rule, None, None, LENGTH, LENGTH, device="cpu")


def test_flex_attention_costs_its_block_mask() -> None:
    """Goal: useful pairs are those of the rule, executed ones those of its blocks. Method: documents in 128-blocks."""
    lengths = [100, 28, 128]
    mask = document_mask(lengths)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
        result = flex.flex_attention(query, key, value, block_mask=mask)
        assert isinstance(result, torch.Tensor)
        return result

    sizes = Sizes(d_qk=16, d_v=16)
    counted = flops(on_meta(lambda: Decoder(sizes, attend)), tokens(ROWS, LENGTH))
    pairs = ROWS * sum(n * (n + 1) // 2 for n in lengths)
    (site, *_) = (entry for entry in counted.first.seen if isinstance(entry, Site))

    assert step_total(counted) == sizes.closed_form(ROWS * LENGTH, pairs)
    assert site.mask == Mask(blocks=(pairs, ROWS * 2 * 128 * 128))
    # A mask of one length says nothing about another.
    assert counted.count(BatchLayout(Shape(1, 512))).useful is None


def test_flex_attention_without_a_mask_is_full() -> None:
    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
        result = flex.flex_attention(query, key, value)
        assert isinstance(result, torch.Tensor)
        return result

    sizes = Sizes(d_qk=16, d_v=16)
    counted = flops(on_meta(lambda: Decoder(sizes, attend)), tokens(ROWS, LENGTH))

    assert step_total(counted) == sizes.closed_form(ROWS * LENGTH, ROWS * LENGTH**2)


class Strange(nn.Module):
    """A product that no formula knows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 8))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.ops.strange.mix(rows, self.weight)


def test_an_operator_of_nobody_is_unknown_and_its_mfu_refused() -> None:
    """O7: never 0. Then registered: counted."""
    batch = torch.empty(4, 8, device="meta")
    step = flops(on_meta(Strange), batch, backward=False).step(batch)

    assert step.useful is None
    assert "strange::mix" in str(step.unknown[0])
    answer = mfu_of(step, 10**9, "NVIDIA H200")
    assert isinstance(answer, MfuRefused)
    assert answer.reason == "unknown operator"

    flops.register("strange::mix", lambda left, right: 2 * left.shape[0] * right.numel())
    assert flops(on_meta(Strange), batch, backward=False).step(batch).useful_total == 2 * 4 * 64


@pytest.mark.parametrize(
    "build", [lambda: nn.LSTM(8, 8, batch_first=True), lambda: nn.GRU(8, 8)], ids=["LSTM", "GRU"]
)
def test_recurrent_networks_are_exact_or_unknown(build: Any) -> None:
    counted = flops(on_meta(build), torch.empty(3, 5, 8, device="meta"))

    total = step_total(counted)
    gates = 4 if "LSTM" in str(build()) else 3
    # Two matrices per gate; the first step's state and the input need no gradient.
    assert total is None or total >= 2 * 15 * gates * 2 * 64 * 2


def test_linear_algebra_is_unknown() -> None:
    class Whitened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(8, 8))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows @ torch.linalg.cholesky(self.weight)

    counted = flops(on_meta(Whitened), torch.empty(4, 8, device="meta"), backward=False)

    assert step_total(counted) is None
    assert "cholesky" in str(counted.unknown[0])


class Chosen(nn.Module):
    """Multiplies those rows that values choose."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.weight = nn.Parameter(torch.empty(8, 8))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiply some."""
        if self.how == "rows":
            return rows[rows.sum(-1) > 0] @ self.weight
        if self.how == "branch":
            return rows @ self.weight if rows.sum() > 0 else rows * self.weight[0]
        turns = int(rows.abs().max())
        return sum((rows @ self.weight for _ in range(turns)), start=rows)


@pytest.mark.parametrize("how", ["rows", "branch", "turns"])
def test_what_values_decide_is_unknown(how: str) -> None:
    counted = flops(on_meta(lambda: Chosen(how)), torch.empty(4, 8, device="meta"), backward=False)

    assert step_total(counted) is None
    assert "data" in str(counted.unknown[0])


def test_compiled_modules_are_counted_as_they_were_written() -> None:
    model = on_meta(lambda: Decoder(Sizes()))
    plain = step_total(flops(model, tokens(ROWS, LENGTH)))
    model.layers[0].compile()

    assert step_total(flops(torch.compile(model), tokens(ROWS, LENGTH))) == plain


@pytest.mark.parametrize(("chance", "known"), [(0.0, True), (0.1, False)])
def test_layers_that_chance_drops_are_unknown_unless_the_chance_is_none(chance: float, known: bool) -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if torch.rand([]) < chance:
                return rows * self.layer.weight[0]
            return self.layer(rows)

    counted = flops(on_meta(Dropped), torch.empty(4, 8, device="meta"))

    assert (step_total(counted) is not None) is known


def test_what_is_not_linear_is_known_for_traced_shapes_alone() -> None:
    """Method: a stride that rounds down, traced at a length and at one more that was given."""

    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = nn.Embedding(10, 8), nn.Linear(8, 8, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.layer(self.table(tokens)[:, : tokens.shape[1] // 3])

    counted = flops(on_meta(Halved), tokens(2, 100), shapes=[tokens(2, 50)])

    # Forward, and both gradients.
    assert counted.step(tokens(2, 100)).useful_total == 3 * 2 * 2 * 33 * 64
    assert counted.step(tokens(2, 50)).useful_total == 3 * 2 * 2 * 16 * 64
    refused = counted.step(tokens(2, 99))
    assert refused.useful is None
    assert "were not traced" in str(refused.unknown[0])


def test_einsum_and_batched_products_are_products() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4, 8, 16))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            heads = torch.einsum("bld,hde->bhle", rows, self.weight)
            return torch.baddbmm(heads[:, 0, :5, :5], heads[:, 0, :5], heads[:, 1, :5].transpose(1, 2))

    counted = flops(on_meta(Mixed), torch.empty(3, 5, 8, device="meta"), backward=False)

    assert step_total(counted) == 2 * 3 * 5 * 4 * 8 * 16 + 2 * 3 * 5 * 16 * 5


def test_complex_products_are_four_real_ones() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(8, 8, dtype=torch.complex64))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(rows.to(torch.complex64) @ self.weight)

    counted = flops(on_meta(Turned), torch.empty(4, 8, device="meta"), backward=False)

    assert step_total(counted) == 8 * 4 * 64
    assert {entry.dtype for entry in counted.first.seen if isinstance(entry, Product)} == {"float32"}
