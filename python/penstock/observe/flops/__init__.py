"""FLOPs: what a step's products and attention cost, exactly, as integers. Pure arithmetic: tracing is done by the frameworks' floors."""

from penstock.observe.flops.layout import BatchLayout
from penstock.observe.flops.mask import CAUSAL, FULL, Mask
from penstock.observe.flops.model_flops import ModelFlops, StepFlops
from penstock.observe.flops.product import Product, Site, Unknown

__all__ = [
    "CAUSAL",
    "FULL",
    "BatchLayout",
    "Mask",
    "ModelFlops",
    "Product",
    "Site",
    "StepFlops",
    "Unknown",
]
