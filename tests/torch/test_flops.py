"""``penstock.torch.flops``: traced counts are the closed forms, and what cannot be counted is unknown."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import penstock.torch
from penstock.errors import BatchUnreadable, ModelUntraceable, UsageError
from penstock.observe.flops import CAUSAL, FULL, BatchLayout, Mask, Site
from penstock.observe.flops.dimension import Shape
from penstock.observe.flops.site_pairs import LEAK
from penstock.torch import Flops, flops
from tests.torch.models import Decoder, Sizes, on_meta, tokens

ROWS, LENGTH = 3, 64
TOKENS = ROWS * LENGTH
TRIANGLE = ROWS * LENGTH * (LENGTH + 1) // 2


def useful(counted: Flops, shape: Shape | None = None) -> int | None:
    return counted.count(BatchLayout(shape or counted.first.shape)).useful_total


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(),
        Sizes(kv_heads=1),
        Sizes(kv_heads=2, layers=3),
        Sizes(d_qk=24, d_v=8),
        Sizes(d_qk=8, d_v=24, hidden=100),
    ],
    ids=["plain", "multi-query", "grouped", "MLA, wide keys", "wide values"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_counts_equal_the_closed_form_at_any_shape(sizes: Sizes, dtype: torch.dtype) -> None:
    counted = flops(on_meta(lambda: Decoder(sizes).to(dtype)), tokens(ROWS, LENGTH))

    assert counted.unknown == ()
    assert useful(counted) == sizes.closed_form(TOKENS, TRIANGLE)
    # A shape that was never traced.
    assert useful(counted, Shape(7, 1000)) == sizes.closed_form(7000, 7 * 1000 * 1001 // 2)


def test_tied_embeddings_are_multiplied_once_and_looked_up_for_free() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes(), tied=True)), tokens(ROWS, LENGTH))

    assert useful(counted) == Sizes().closed_form(TOKENS, TRIANGLE)


def test_frozen_parameters_have_no_weight_gradient() -> None:
    """Method: freeze all but the head; nothing below it needs a gradient at all."""
    model = on_meta(lambda: Decoder(Sizes()))
    model.requires_grad_(False)
    model.head.weight.requires_grad_(True)

    forward = Sizes().closed_form(TOKENS, TRIANGLE) // 3
    assert useful(flops(model, tokens(ROWS, LENGTH))) == forward + 2 * TOKENS * 32 * 97


def test_adapters_pass_gradients_through_frozen_weights() -> None:
    """Goal: LoRA costs 4 per frozen weight and token, 6 per weight of its own. Method: one frozen layer between adapters."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.frozen = nn.Linear(16, 32, bias=False), nn.Linear(32, 32, bias=False)
            self.down, self.up = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)
            self.frozen.weight.requires_grad_(False)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            hidden = self.first(rows)
            return self.frozen(hidden) + self.up(self.down(hidden))

    counted = flops(on_meta(Adapted), torch.empty(5, 16, device="meta"))

    # The input needs no gradient, so the first layer has none for it.
    assert useful(counted) == 5 * (4 * 16 * 32 + 4 * 32 * 32 + 6 * 2 * 32 * 4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_runs_again_is_executed_and_not_useful(reentrant: bool) -> None:
    class Again(Decoder):
        def forward(self, tokens: torch.Tensor, **batch: torch.Tensor) -> torch.Tensor:
            stream = self.table(tokens)
            for layer in self.layers:
                stream = checkpoint(layer, stream, batch, use_reentrant=reentrant)
            return self.head(stream)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, again = (
            flops(on_meta(lambda kind=kind: kind(Sizes())), tokens(ROWS, LENGTH)).count(
                BatchLayout(Shape(ROWS, LENGTH))
            )
            for kind in (Decoder, Again)
        )

    assert again.useful == plain.useful
    assert plain.executed_total is not None
    assert again.executed_total is not None
    forward = Sizes().closed_form(TOKENS, TRIANGLE) // 3
    head = 2 * TOKENS * 32 * 97
    # The last product of a layer is not run again: nobody needs its result.
    last = 0 if reentrant else 2 * 2 * TOKENS * 32 * 64
    assert again.executed_total - plain.executed_total == forward - head - last


def test_recomputed_functions_without_modules_are_told_apart() -> None:
    """Method: a custom autograd function inside a checkpointed one, whose forward runs without gradients."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, left: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(left)
            return left @ left

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            (left,) = ctx.saved_tensors
            return gradients[0] @ left.t() + left.t() @ gradients[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.empty(8, 8))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows @ checkpoint(
                lambda matrix: Square.apply(matrix).sin(), self.matrix, use_reentrant=False
            )

    counted = flops(on_meta(Model), torch.empty(4, 8, device="meta"))

    phases = [entry.phase for entry in counted.first.seen]
    assert sorted(phases) == ["backward"] * 3 + ["forward"] * 2 + ["recompute"]


def test_modules_own_their_gradients() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), tokens(ROWS, LENGTH))

    per_module: dict[str, list[str]] = {}
    for entry in counted.first.seen:
        per_module.setdefault(entry.module, []).append(entry.phase)
    assert per_module["layers.1.up"] == ["forward", "backward", "backward"]
    assert per_module["layers.0"] == ["forward", "backward"]
    assert "" not in per_module


def test_autocast_decides_the_type_of_products() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), tokens(ROWS, LENGTH), autocast=torch.bfloat16)

    assert {entry.dtype for entry in counted.first.seen} == {"bfloat16"}


def varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any, left: int = -1
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    ends = batch["cu_seqlens"].to(torch.int32)
    flat = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]
    mixed = varlen_attn(*flat, ends, ends, LENGTH, LENGTH, window_size=(left, 0))
    assert isinstance(mixed, torch.Tensor)
    return mixed.unflatten(0, (query.shape[0], -1)).transpose(1, 2)


def packed(lengths: list[int]) -> dict[str, torch.Tensor]:
    ends = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)
    return {"tokens": tokens(ROWS, LENGTH), "cu_seqlens": ends}


@pytest.mark.parametrize("left", [-1, 9])
def test_boundaries_sum_over_documents(left: int) -> None:
    """Goal: varlen attention costs what its documents cost, whatever the first batch held (FlopCounterMode counts 0)."""
    model = on_meta(lambda: Decoder(Sizes(), lambda *parts: varlen(*parts, left=left)).to(torch.bfloat16))
    counted = flops(model, packed([LENGTH] * ROWS))
    lengths = [40, 24, 64, 1, 63]
    pairs = sum(min(place + 1, left + 1) if left >= 0 else place + 1 for n in lengths for place in range(n))

    step = counted.step(packed(lengths))

    assert step.useful_total == Sizes().closed_form(TOKENS, pairs)
    assert step.warnings == ()
    assert step.palm is not None
    assert sum(step.palm.values()) == Sizes().closed_form(TOKENS, ROWS * LENGTH**2)


def test_rows_of_documents_without_boundaries_are_counted_as_they_run_and_said_to_leak() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), packed([LENGTH] * ROWS))

    step = counted.step(packed([40, 24, 64, 1, 63]))

    assert step.useful_total == Sizes().closed_form(TOKENS, TRIANGLE)
    assert step.warnings == (LEAK,)


def test_boundaries_of_nobody_knows_where_are_unknown() -> None:
    def elsewhere(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
        return varlen(query, key, value, {"cu_seqlens": batch["cu_seqlens"] * 2})

    counted = flops(on_meta(lambda: Decoder(Sizes(), elsewhere).to(torch.bfloat16)), packed([LENGTH] * ROWS))

    assert counted.step(packed([LENGTH] * ROWS)).useful is None
    assert "not known what its mask hides" in str(counted.unknown[0])


def masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=batch["mask"])


def test_a_mask_of_the_batch_is_unknown_until_it_is_declared() -> None:
    batch = {"tokens": tokens(ROWS, LENGTH), "mask": torch.empty(ROWS, 1, LENGTH, LENGTH, device="meta")}
    batch["cu_seqlens"] = packed([40, 24, 64, 1, 63])["cu_seqlens"]
    model = on_meta(lambda: Decoder(Sizes(), masked))

    assert flops(model, batch).step(batch).useful is None
    declared = {"layers.*": Mask(right=0, documents="cu_seqlens")}
    pairs = sum(n * (n + 1) // 2 for n in [40, 24, 64, 1, 63])
    assert flops(model, batch, masks=declared).step(batch).useful_total == Sizes().closed_form(TOKENS, pairs)
    assert flops(model, batch, masks={"*": FULL}).step(batch).useful_total == Sizes().closed_form(
        TOKENS, ROWS * LENGTH**2
    )


@pytest.mark.parametrize("window", [1, 7, LENGTH])
def test_masks_that_follow_from_shapes_are_read(window: int) -> None:
    def banded(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
        place = torch.arange(query.shape[2], device=query.device)
        distance = place[:, None] - place[None, :]
        seen = torch.ones_like(distance, dtype=torch.bool).tril_().logical_and_(distance < window)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)

    counted = flops(on_meta(lambda: Decoder(Sizes(), banded)), tokens(ROWS, LENGTH))

    pairs = ROWS * sum(min(place + 1, window) for place in range(LENGTH))
    assert useful(counted) == Sizes().closed_form(TOKENS, pairs)
    longer = counted.count(BatchLayout(Shape(1, 1000)))
    assert longer.useful is None
    assert "seen at 64 tokens" in str(longer.unknown[0])


def test_a_mask_that_was_written_to_in_parts_is_unknown() -> None:
    """O3: a stale value would be a wrong number. Method: a view of a mask of ones is filled, with the batch and with zeros."""

    def written(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, batch: Any) -> torch.Tensor:
        seen = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device)
        seen[1:] = False
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)

    counted = flops(on_meta(lambda: Decoder(Sizes(), written)), tokens(ROWS, LENGTH))

    assert useful(counted) is None


def test_padding_is_executed_and_not_useful() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), tokens(ROWS, LENGTH))
    real = [64, 10, 1]

    step = counted.step(tokens(ROWS, LENGTH), real=real)

    assert step.useful_total == Sizes().closed_form(sum(real), sum(n * (n + 1) // 2 for n in real))
    assert step.real_tokens == sum(real)
    full = counted.step(tokens(ROWS, LENGTH))
    assert step.executed == full.executed


def test_attention_masks_of_hugging_face_say_what_is_padding() -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), tokens(ROWS, LENGTH))
    mask = (torch.arange(LENGTH)[None, :] < torch.tensor([[64], [10], [1]])).long()

    step = counted.step({"tokens": tokens(ROWS, LENGTH), "attention_mask": mask})

    assert step.real_tokens == 75


@pytest.mark.parametrize("real", [[1, 2], [65, 1, 1], [-1, 1, 1]])
def test_padding_that_cannot_be_is_refused(real: list[int]) -> None:
    counted = flops(on_meta(lambda: Decoder(Sizes())), tokens(ROWS, LENGTH))

    with pytest.raises(BatchUnreadable):
        counted.step(tokens(ROWS, LENGTH), real=real)


def test_reading_a_batch_never_waits_for_a_device() -> None:
    """O6. Method: boundaries on a device that has no values to give."""
    model = on_meta(lambda: Decoder(Sizes(), varlen).to(torch.bfloat16))
    counted = flops(model, packed([LENGTH] * ROWS))

    with pytest.raises(BatchUnreadable, match="would wait for the device"):
        counted.step({"tokens": tokens(ROWS, LENGTH), "cu_seqlens": torch.empty(4, device="meta")})


def test_experts_cost_their_tokens_times_k() -> None:
    """Goal: routing does not change the count. Method: a mixture by grouped products, forward and backward."""
    experts, k, width, hidden = 8, 2, 32, 48

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(width, experts, bias=False)
            self.up = nn.Parameter(torch.empty(experts, width, hidden, dtype=torch.bfloat16))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            flat = rows.flatten(0, 1)
            chosen = self.router(flat.float()).topk(k).indices.flatten()
            order = chosen.argsort()
            counts = torch.bincount(chosen, minlength=experts)[:experts].cumsum(0).to(torch.int32)
            return torch._grouped_mm(flat.repeat_interleave(k, 0)[order], self.up, offs=counts)

    batch = torch.empty(ROWS, LENGTH, width, dtype=torch.bfloat16, device="meta")
    counted = flops(on_meta(Mixture), batch)
    step = counted.count(BatchLayout(Shape(ROWS, LENGTH)))

    assert counted.unknown == ()
    assert step.useful is not None
    # The input needs no gradient: forward, and the gradient of the weights.
    assert step.useful["bfloat16"] == 4 * TOKENS * k * width * hidden
    grouped = [entry for entry in counted.first.seen if "grouped" in entry.operator]
    assert {entry.experts for entry in grouped if not isinstance(entry, Site)} == {experts}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_cost_three_times_their_forward(dims: int, groups: int, transposed: bool) -> None:
    """Method: two in a row, so that the second has both gradients; brute force: taps that meet outputs."""
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")

    def build() -> nn.Module:
        return nn.Sequential(kind(8, 8, 1), kind(8, 16, 3, stride=2, groups=groups))

    size = (2, 8, *([9] * dims))
    counted = flops(on_meta(build), torch.empty(size, device="meta"))
    places = 9**dims if transposed else 4**dims

    second = 2 * 2 * places * (16 * 8 // groups) * 3**dims
    assert useful(counted) == 2 * 2 * 2 * 9**dims * 8 * 8 + 3 * second


def test_a_vision_transformer_adds_its_class_token() -> None:
    class Vision(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 8, 8)
            self.token = nn.Parameter(torch.empty(1, 1, 32))
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            patches = self.patch(images).flatten(2).transpose(1, 2)
            return self.layer(torch.cat([self.token.expand(len(images), -1, -1), patches], 1))

    counted = flops(on_meta(Vision), torch.empty(2, 3, 32, 32, device="meta"))

    patch = 4 * 2 * 16 * 3 * 64 * 32
    layer = 6 * 2 * 17 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 6 * 32 * 2 * 17 * 17
    assert useful(counted) == patch + layer
    assert useful(counted, Shape(10, None)) == 5 * (patch + layer)


@pytest.mark.parametrize("kind", ["resnet", "dense"])
def test_torch_counts_the_same_where_it_is_right(kind: str) -> None:
    """Method: FlopCounterMode on real tensors, for products without attention and convolutions without groups."""
    model: nn.Module
    if kind == "dense":
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        batch = torch.randn(4, 16)
    else:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2))
        batch = torch.randn(2, 3, 16, 16)
    with FlopCounterMode(display=False) as peer:
        model(batch).sum().backward()

    assert useful(flops(model, batch)) == peer.get_total_flops()


def test_products_of_eight_bits_have_their_own_peak() -> None:
    class Eight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(32, 16))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            left, right = rows.to(torch.float8_e4m3fn), self.weight.to(torch.float8_e5m2).t()
            one = torch.ones((), device=rows.device)
            return torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16) + rows @ self.weight.t()

    counted = flops(on_meta(Eight), torch.empty(32, 16, device="meta"), backward=False)

    assert counted.count(BatchLayout(Shape(32, None))).useful == {
        "float8": 2 * 32 * 16 * 32,
        "float32": 2 * 32 * 16 * 32,
    }


def test_the_model_is_as_before(tmp_path: Any) -> None:
    """O8: counting changes no bit and no gradient."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()

    flops(model, torch.randn(3, 4))

    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    torch.set_rng_state(random)


def test_the_public_names_are_there() -> None:
    assert penstock.torch.flops is flops
    with pytest.raises(UsageError, match="namespace::name"):
        flops.register("nonsense", None)
    assert CAUSAL.right == 0
    with pytest.raises(ModelUntraceable):
        flops(on_meta(lambda: Decoder(Sizes())), {"wrong": tokens(1, 2)})
