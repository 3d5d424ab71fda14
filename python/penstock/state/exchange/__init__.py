"""In and out: checkpoints from the files of others, and as the files of others. Streaming; never the whole state in memory."""

from penstock.state.exchange.choice import Choice
from penstock.state.exchange.copy import copy_checkpoint
from penstock.state.exchange.intake import Imported, import_state
from penstock.state.exchange.safetensors import export_safetensors
from penstock.state.exchange.sources import open_source
from penstock.state.exchange.through_torch import export_dcp, export_torch, need_torch

__all__ = [
    "Choice",
    "Imported",
    "copy_checkpoint",
    "export_dcp",
    "export_safetensors",
    "export_torch",
    "import_state",
    "need_torch",
    "open_source",
]
