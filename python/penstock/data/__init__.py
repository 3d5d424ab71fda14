"""Data: recipes and the streams of batches that follow from them."""

from penstock.data.lane import Lane
from penstock.data.recipe import Recipe, Source
from penstock.data.stages import Filter, Pack, Tokenize

__all__ = ["Filter", "Lane", "Pack", "Recipe", "Source", "Tokenize"]
