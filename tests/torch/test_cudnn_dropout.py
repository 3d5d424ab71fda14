"""Dropout that cuDNN draws is named, because no checkpoint has its random numbers (seen on an H200: another one after each resume)."""

import torch
from torch import nn

from penstock.torch import randomness, state

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def test_only_dropout_between_layers_on_a_device_is_cudnns() -> None:
    dropping = nn.LSTM(4, 4, num_layers=2, dropout=0.1)
    assert randomness.draws_from_cudnn(dropping, CUDA)
    assert randomness.draws_from_cudnn(nn.GRU(4, 4, num_layers=3, dropout=0.5), CUDA)
    assert not randomness.draws_from_cudnn(dropping, CPU)
    assert not randomness.draws_from_cudnn(dropping.eval(), CUDA)
    assert not randomness.draws_from_cudnn(nn.LSTM(4, 4, num_layers=2), CUDA)


def test_on_the_processor_nothing_is_named() -> None:
    model = nn.Sequential(nn.LSTM(4, 4, num_layers=2, dropout=0.1))
    assert randomness.kept_by_cudnn(model) == ()
    named = state(model, torch.optim.SGD(model.parameters(), lr=0.1)).unpinned()
    assert not [words for words in named if "dropout" in words]
