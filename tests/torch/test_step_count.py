"""Whether a gradient was computed since the last look, however the memory of gradients is used again."""

import torch

from penstock.torch.tree.step_count import progress_of


def test_a_gradient_is_another_one_although_it_has_the_place_of_the_last() -> None:
    """Goal: a loop that is left in the middle of a step is never taken for one that has not begun it. Method: gradients that are freed and made
    again, as `zero_grad` does, so that the interpreter gives new ones the numbers of old ones."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.ones(4, 8)
    for _ in range(200):
        model(rows).sum().backward()
        _, before = progress_of([optimizer])
        assert progress_of([optimizer])[1] == before
        optimizer.zero_grad()
        model(rows).sum().backward()
        assert progress_of([optimizer])[1] != before
        _, before = progress_of([optimizer])
        model(rows).sum().backward()
        assert progress_of([optimizer])[1] != before
        optimizer.zero_grad()
