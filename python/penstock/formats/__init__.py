"""Formats: how rows are kept in raw files, one file per format. Nothing is converted; a sidecar index gives access.

``FORMATS`` lists them in the order in which content is asked "are you one of these?"; the surest signatures come first.
"""

from functools import cache
from importlib import import_module
from typing import cast

from penstock.formats.contract import Format
from penstock.formats.detecting import detect

#: Name -> ``module:class``; loaded when first needed, since some of them import large libraries.
FORMATS = {
    "npy": "penstock.formats.npy:Npy",
    "npz": "penstock.formats.npz:Npz",
    "arrayrecord": "penstock.formats.arrayrecord:ArrayRecord",
    "safetensors": "penstock.formats.safetensors:Safetensors",
    "tfrecord": "penstock.formats.tfrecord:TfRecord",
    "mds": "penstock.formats.mds:Mds",
    "megatron": "penstock.formats.megatron:Megatron",
    "flat": "penstock.formats.flat:Flat",
    "parquet": "penstock.formats.parquet:Parquet",
    "arrow": "penstock.formats.arrow:Arrow",
    "webdataset": "penstock.formats.webdataset:WebDataset",
    "files": "penstock.formats.files:Files",
    "jsonl": "penstock.formats.jsonl:Jsonl",
    "csv": "penstock.formats.delimited:Csv",
    "tsv": "penstock.formats.delimited:Tsv",
    "text": "penstock.formats.text:Text",
    "documents": "penstock.formats.documents:Documents",
    "tokens": "penstock.formats.tokens:Tokens",
}

__all__ = ["FORMATS", "detect", "format_named"]


@cache
def format_named(name: str) -> Format:
    """The format of a name that is known to exist."""
    module, _, attribute = FORMATS[name].partition(":")
    return cast(Format, getattr(import_module(module), attribute)())
