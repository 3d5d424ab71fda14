"""What a mask of booleans or biases hides, read from its values."""

import torch

from penstock.observe.flops import Mask

#: Biases at least this negative hide a pair.
_HIDDEN = -1e4

#: Rows of a mask that are compared at once, which bounds memory.
_QUERIES_AT_ONCE = 1024


def recognise(values: torch.Tensor, *, rows: int) -> Mask | None:
    """The mask as a rule, or as the number of its pairs; None when heads differ, or rows that are not all there.

    ``values`` is what attention gets: true where a pair is seen, or a number that is added.
    """
    while values.dim() < 4:
        values = values.unsqueeze(0)
    for side in (0, 1):
        if values.stride(side) == 0:
            values = values.narrow(side, 0, 1)
    seen = values if values.dtype == torch.bool else values > _HIDDEN
    if seen.shape[1] > 1:
        if not bool((seen == seen[:, :1]).all()):
            return None
        seen = seen[:, :1]
    first = seen[0, 0]
    alike = seen.shape[0] == 1 or bool((seen == seen[:1]).all())
    if alike and first.shape[0] == first.shape[1]:
        rule = _band(first)
        if rule is not None:
            return rule
    if seen.shape[0] not in (1, rows):
        return None
    pairs = int(seen.sum()) * (rows if seen.shape[0] == 1 else 1)
    return Mask(blocks=(pairs, pairs))


def _band(seen: torch.Tensor) -> Mask | None:
    """A square in which every query sees as far to the left and to the right as any other."""
    size = seen.shape[0]
    left, right = int(seen[-1].flip(0).long().cumprod(0).sum()) - 1, int(seen[0].long().cumprod(0).sum()) - 1
    if left < 0 or right < 0:
        return None
    place = torch.arange(size, dtype=torch.int32)
    for start in range(0, size, _QUERIES_AT_ONCE):
        distance = place.unsqueeze(0) - place[start : start + _QUERIES_AT_ONCE].unsqueeze(1)
        expected = (distance <= right) & (distance >= -left)
        if not torch.equal(seen[start : start + _QUERIES_AT_ONCE], expected):
            return None
    return Mask(
        left=None if left == size - 1 else left,
        right=None if right == size - 1 else right,
        length_max=size,
    )
