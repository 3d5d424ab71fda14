"""Formats: how rows are kept in raw files, one file per format. Nothing is converted; a sidecar index gives access.

``FORMATS`` lists them in the order in which content is asked "are you one of these?"; the surest signatures come first.
"""

from functools import cache
from importlib import import_module
from typing import cast

from penstock.formats.contract import Format
from penstock.formats.detection import detect

#: Name -> ``module:class``; loaded when first needed, since some of them import large libraries.
FORMATS = {
    "npy": "penstock.formats.arrays.npy:Npy",
    "npz": "penstock.formats.arrays.npz:Npz",
    "arrayrecord": "penstock.formats.samples.arrayrecord:ArrayRecord",
    "safetensors": "penstock.formats.arrays.safetensors:Safetensors",
    "tfrecord": "penstock.formats.samples.tfrecord:TfRecord",
    "mds": "penstock.formats.samples.mds:Mds",
    "megatron": "penstock.formats.tokens.megatron:Megatron",
    "flat": "penstock.formats.tokens.flat:Flat",
    "parquet": "penstock.formats.columnar.parquet:Parquet",
    "arrow": "penstock.formats.columnar.arrow:Arrow",
    "webdataset": "penstock.formats.samples.webdataset:WebDataset",
    "files": "penstock.formats.media.files:Files",
    "jsonl": "penstock.formats.lines.jsonl:Jsonl",
    "csv": "penstock.formats.lines.delimited:Csv",
    "tsv": "penstock.formats.lines.delimited:Tsv",
    "text": "penstock.formats.lines.text:Text",
    "documents": "penstock.formats.lines.documents:Documents",
    "tokens": "penstock.formats.tokens.registry_tokens:Tokens",
}

__all__ = ["FORMATS", "detect", "format_named"]


@cache
def format_named(name: str) -> Format:
    """The format of a name that is known to exist."""
    module, _, attribute = FORMATS[name].partition(":")
    return cast(Format, getattr(import_module(module), attribute)())
