"""Flat token files, as nanoGPT, llm.c and modded-nanogpt write them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import FileUnusable, UsageError
from penstock.formats.contract import Policy
from penstock.registry import Registry
from tests.formats.damage import assert_cuts_are_found, assert_flips_are_found, assert_rows

EOT = 50256
DOCUMENTS = [list(range(5, 5 + length)) for length in (7, 1, 300, 40_000)]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def nanogpt(path: Path) -> "np.ndarray[Any, Any]":
    """As data/openwebtext/prepare.py does: every document ends with the token, and nothing else is written."""
    tokens = np.array([token for document in DOCUMENTS for token in [*document, EOT]], dtype=np.uint16)
    written = np.memmap(path, dtype=np.uint16, mode="w+", shape=tokens.shape)
    written[:] = tokens
    written.flush()
    return tokens


def llm_c(path: Path, magic: int, version: int, dtype: str) -> "np.ndarray[Any, Any]":
    """As dev/data/data_common.py does: 256 numbers, then documents that begin with the token."""
    tokens = np.array([token for document in DOCUMENTS for token in [EOT, *document]], dtype=dtype)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, version, len(tokens)
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(tokens.tobytes())
    return tokens


def rows(arrays: list[list[int]], dtype: str) -> list[dict[str, Any]]:
    return [{"tokens": np.array(array, dtype=dtype)} for array in arrays]


def test_a_file_without_a_header_is_one_document_of_the_type_that_is_said(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "train.bin"
    tokens = nanogpt(path)
    version = registry.register("a", path, policy=Policy(dtype="uint16"))
    assert version.manifest.format == "flat"
    assert_rows(version, [{"tokens": tokens}])
    with pytest.raises(FileUnusable, match="does not say what type") as caught:
        registry.register("b", path, format="flat")
    assert "--dtype" in str(caught.value.hint)
    assert_flips_are_found(registry, version, path, [{"tokens": tokens}])
    assert_cuts_are_found(registry, version, path)


@pytest.mark.parametrize(("magic", "version", "dtype"), [(20240520, 1, "<u2"), (20240801, 7, "<u4")])
def test_the_header_of_llm_c_says_the_type(
    tmp_path: Path, registry: Registry, magic: int, version: int, dtype: str
) -> None:
    path = tmp_path / "fineweb_train_000001.bin"
    tokens = llm_c(path, magic, version, dtype)
    assert_rows(registry.register("a", path), [{"tokens": tokens}])
    cut = registry.register("documents", path, policy=Policy(eot=EOT))
    assert_rows(cut, rows([[EOT, *document] for document in DOCUMENTS], dtype))
    with pytest.raises(FileUnusable, match="its header says"):
        registry.register("b", path, policy=Policy(dtype="int64"))
    with path.open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(FileUnusable, match=r"its header says 40,312 tokens"):
        registry.register("b", path)


def test_documents_that_end_with_the_token_are_cut_after_it(tmp_path: Path, registry: Registry) -> None:
    nanogpt(tmp_path / "train.bin")
    version = registry.register("a", tmp_path / "train.bin", policy=Policy(dtype="uint16", eot=EOT))
    assert_rows(version, rows([[*document, EOT] for document in DOCUMENTS], "<u2"))


def test_a_token_that_does_not_occur_is_said(tmp_path: Path, registry: Registry) -> None:
    nanogpt(tmp_path / "train.bin")
    version = registry.register("a", tmp_path / "train.bin", policy=Policy(dtype="uint16", eot=4))
    assert version.account.notes == ("train.bin (one document: token 4 does not stand between others)",)
    with pytest.raises(UsageError, match="eot must be a token of uint16, got 65536"):
        registry.register("b", tmp_path / "train.bin", policy=Policy(dtype="uint16", eot=65_536))


def test_the_feed_reads_them(tmp_path: Path, registry: Registry) -> None:
    """Every token of the file is delivered once in an epoch."""
    path = tmp_path / "train.bin"
    tokens = nanogpt(path)
    registry.register("a", path, policy=Policy(dtype="uint16", eot=EOT))
    source = ps.Source("a@1", epochs=1)
    recipe = ps.Recipe(sources=[source], stages=[ps.Pack(64)], batch=4, seed=1, exhaustion="pad")
    with ps.open(recipe, registry=registry) as feed:
        delivered = np.concatenate([batch["tokens"][batch["segments"] > 0].ravel() for batch in feed])
    assert sorted(delivered.tolist()) == sorted(tokens.tolist())


def test_a_type_that_does_not_fit_is_refused(tmp_path: Path, registry: Registry) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"\1" * 7)
    with pytest.raises(FileUnusable, match="not whole tokens of 2 bytes"):
        registry.register("a", path, policy=Policy(dtype="uint16"))
    for wrong in ("float32", ">u2", "tokens"):
        with pytest.raises(UsageError):
            registry.register("a", path, policy=Policy(dtype=wrong))
    with pytest.raises(UsageError, match="about flat, not about jsonl"):
        registry.register("a", path, format="jsonl", policy=Policy(dtype="uint16"))


def test_crops_begin_anywhere_in_a_file(tmp_path: Path, registry: Registry) -> None:
    """As nanoGPT reads its train.bin: rows are stretches of the file, wherever they begin."""
    path = tmp_path / "train.bin"
    tokens = nanogpt(path).tolist()
    registry.register("a", path, policy=Policy(dtype="uint16"))
    recipe = ps.Recipe(sources=[ps.Source("a@1")], stages=[ps.Pack(64, "crop")], batch=8, seed=1)
    with ps.open(recipe, registry=registry) as feed:
        batch = next(feed)
        starts = [batch.origin(row)[0].token_span[0] for row in range(8)]
    assert len(set(starts)) == 8
    assert [row.tolist() for row in batch["tokens"]] == [tokens[start : start + 64] for start in starts]
