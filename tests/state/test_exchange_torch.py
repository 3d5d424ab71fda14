"""In and out of torch's own forms, with torch itself on the other side."""

import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

import penstock.torch
from penstock.errors import ForeignUnusable, UsageError
from penstock.state import Checkpoint, Checkpoints
from penstock.state.exchange import Choice, export_dcp, export_torch, import_state, open_source
from penstock.state.exchange.intake import Name
from penstock.state.inspect.verify import Verifier
from penstock.store import open_store
from penstock.torch.exchange import dcp as exchange_dcp
from tests.state.trees import any_bits, columns, contents, every_type, in_memory, laid, saved


def imported(origin: Path, place: Path, *, prefix: str = "") -> Checkpoint:
    done = import_state(open_source(origin, prefix), open_store(place), Name(3))
    assert done.left_out == []
    return done.checkpoint


def dcp_save(state: dict[str, Any], path: Path, **more: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.save(state, checkpoint_id=path, no_dist=True, **more)


def dcp_load(state: dict[str, Any], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, checkpoint_id=path, no_dist=True)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_files_of_torch_come_back_with_the_same_bits(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "place", every_type())
    (path,) = export_torch(checkpoint, tmp_path / "out/state.pt", Choice())
    back = imported(path, tmp_path / "back")
    assert contents(back) == contents(checkpoint)
    assert back.manifest.values == checkpoint.manifest.values
    assert Verifier().verify(back).ok


def test_torch_loads_what_is_exported_and_every_zip_reader_agrees(tmp_path: Path) -> None:
    tree = every_type()
    checkpoint = saved(tmp_path / "place", tree)
    (path,) = export_torch(checkpoint, tmp_path / "state.pt", Choice())
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    for mmap in (False, True):
        read = torch.load(path, weights_only=True, mmap=mmap)
        assert (read["lr"], read["big"], read["name"], read["nothing"]) == (0.1, 2**60, "a run", None)
        for name, array in tree["model"].items():
            assert bits(read["model"][name]) == array.tobytes()
            assert tuple(read["model"][name].shape) == array.shape


def test_a_model_loads_the_state_dict_that_is_exported(tmp_path: Path) -> None:
    """Goal: weights leave for people without Penstock. Method: save a training state, export the model, load it strictly."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    scheduler.step()
    with Checkpoints(tmp_path / "place") as checkpoints:
        checkpoint = checkpoints.save(1, penstock.torch.state(model, optimizer, scheduler=scheduler)).wait()
    (path,) = export_torch(checkpoint, tmp_path / "model.pt", Choice(prefix="model/"))
    fresh = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    fresh.load_state_dict(torch.load(path, weights_only=True))
    assert all(
        bits(a) == bits(b)
        for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True)
    )
    (path,) = export_torch(checkpoint, tmp_path / "all.pt", Choice())
    everything = torch.load(path, weights_only=True)
    assert bits(everything["optimizer"]["0.weight"]["exp_avg"]) == bits(
        optimizer.state[model[0].weight]["exp_avg"]
    )
    assert everything["scheduler"]["last_epoch"] == 1


def test_tensors_inside_of_documents_stay_inside(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    extra = {"history": {"losses": [torch.arange(3.0), torch.ones(2)]}}
    with Checkpoints(tmp_path / "place") as checkpoints:
        checkpoint = checkpoints.save(1, penstock.torch.state(model, extra=extra)).wait()
    (path,) = export_torch(checkpoint, tmp_path / "all.pt", Choice())
    losses = torch.load(path, weights_only=True)["extra"]["history"]["losses"]
    assert [tensor.tolist() for tensor in losses] == [[0, 1, 2], [1, 1]]


def test_casting_on_the_way_out(tmp_path: Path) -> None:
    wide = torch.linspace(-2, 2, 50, dtype=torch.float64)
    checkpoint = saved(tmp_path / "place", {"w": wide, "n": torch.arange(3)})
    choice = Choice(dtype="BF16")
    (path,) = export_torch(checkpoint, tmp_path / "x.pt", choice)
    read = torch.load(path, weights_only=True)
    assert bits(read["w"]) == bits(wide.bfloat16())
    assert read["n"].dtype == torch.int64
    export_dcp(checkpoint, tmp_path / "dcp", choice)
    into = {"w": torch.zeros(50, dtype=torch.bfloat16), "n": torch.zeros(3, dtype=torch.int64)}
    dcp_load(into, tmp_path / "dcp")
    assert bits(into["w"]) == bits(wide.bfloat16())


def test_strides_and_shared_memory_are_understood(tmp_path: Path) -> None:
    """Goal: elements come in C order whatever the file has. Method: transposed, sliced and tied tensors, against torch's own."""
    base = torch.randn(40, 30)
    state = {
        "t": base.t(),
        "part": base[3:7, 2:9],
        "tied": base,
        "end": base[39],
        "deep": [{"x": base.t()[1:3]}],
    }
    torch.save(state, tmp_path / "a.pt")
    tensors = contents(imported(tmp_path / "a.pt", tmp_path / "a"))
    expected = {**state, "deep/0/x": base.t()[1:3]}
    del expected["deep"]
    assert tensors == {n: ("F32", tuple(t.shape), bits(t)) for n, t in expected.items()}
    dcp_save({"t": base.t(), "part": base[3:7, 2:9]}, tmp_path / "dcp")
    tensors = contents(imported(tmp_path / "dcp", tmp_path / "b"))
    assert tensors == {n: ("F32", tuple(state[n].shape), bits(state[n])) for n in ("t", "part")}


def test_several_files_with_an_index_are_one_state(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.zeros(2)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    shards = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    text = str({"weight_map": shards}).replace("'", '"')
    (tmp_path / "pytorch_model.bin.index.json").write_text(text)
    assert list(imported(tmp_path, tmp_path / "place", prefix="model/").manifest.tensors) == [
        "model/a",
        "model/b",
    ]


def test_dcp_directories_come_back_with_the_same_bits(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "place", every_type())
    written = export_dcp(checkpoint, tmp_path / "dcp", Choice())
    assert [path.name for path in written] == [".metadata", "__0_0.distcp"]
    back = imported(tmp_path / "dcp", tmp_path / "back")
    assert contents(back) == contents(checkpoint)
    assert back.manifest.values == checkpoint.manifest.values


def test_dcp_loads_what_is_exported_from_any_layout_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: bounded chunks make whole tensors for DCP. Method: chunks of a few rows of a tensor saved in columns."""
    monkeypatch.setattr(exchange_dcp, "CHUNK_BYTES", 1000)
    array = any_bits("I32", (64, 40))
    checkpoint = laid(in_memory(), [("model/w", array, box) for box in columns(array, [7])])
    export_dcp(checkpoint, tmp_path / "dcp", Choice())
    into = {"model": {"w": torch.zeros(64, 40, dtype=torch.int32)}}
    dcp_load(into, tmp_path / "dcp")
    assert bits(into["model"]["w"]) == array.tobytes()
    back = imported(tmp_path / "dcp", tmp_path / "back")
    assert len(back.manifest.tensors["model/w"].pieces) == 11
    assert contents(back) == contents(checkpoint)


def test_what_dcp_wrote_is_imported_by_the_paths_of_its_tree(tmp_path: Path) -> None:
    state = {
        "model": {"a.weight": torch.randn(3, 2)},
        "optim": {"state": {"0": {"exp_avg": torch.ones(2)}}},
        "lr": [0.1, 0.2],
    }
    dcp_save(state, tmp_path / "dcp")
    back = imported(tmp_path / "dcp", tmp_path / "place")
    assert list(back.manifest.tensors) == ["model/a.weight", "optim/state/0/exp_avg"]
    assert back.manifest.values == {"lr/0": 0.1, "lr/1": 0.2}


class Code:
    """Something that runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["PENSTOCK_TEST_TRAP"],)


def test_no_code_of_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: importing a file from anywhere is safe. Method: files that would make a folder if they were unpickled."""
    trap = tmp_path / "trap"
    monkeypatch.setenv("PENSTOCK_TEST_TRAP", str(trap))
    torch.save({"a": Code()}, tmp_path / "bad.pt")
    with pytest.raises(ForeignUnusable, match="Weights only"):
        open_source(tmp_path / "bad.pt")
    folder = tmp_path / "dcp"
    dcp_save({"a": torch.ones(2), "x": Code()}, folder)
    done = import_state(open_source(folder), open_store(tmp_path / "place"), Name(1))
    assert [reason.partition(":")[0] for reason in done.left_out] == ["x"]
    assert list(done.checkpoint.manifest.tensors) == ["a"]
    (folder / ".metadata").write_bytes(pickle.dumps(Code()))
    with pytest.raises(ForeignUnusable, match=r"asks for posix\.mkdir"):
        open_source(folder)
    assert not trap.exists()


def test_damaged_and_unknown_things_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2, dtype=torch.complex128)}, tmp_path / "wide.pt")
    with pytest.raises(ForeignUnusable, match="complex128"):
        open_source(tmp_path / "wide.pt")
    torch.save({"a": torch.eye(3).to_sparse()}, tmp_path / "sparse.pt")
    with pytest.raises(ForeignUnusable, match="sparse"):
        open_source(tmp_path / "sparse.pt")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("readme", "no tensors here")
    with pytest.raises(ForeignUnusable, match=r"not a file of torch\.save"):
        open_source(tmp_path / "other.pt")
    folder = tmp_path / "dcp"
    dcp_save({"a": torch.ones(500)}, folder)
    (folder / "__0_0.distcp").write_bytes(b"short")
    with pytest.raises(ForeignUnusable, match="ends before a does"):
        open_source(folder)
    (folder / "__0_0.distcp").unlink()
    with pytest.raises(ForeignUnusable, match="not there"):
        open_source(folder)
    (folder / ".metadata").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ForeignUnusable, match="got dict"):
        open_source(folder)


def test_nothing_of_torch_is_overwritten_unless_it_is_asked_for(tmp_path: Path) -> None:
    one, two = (saved(tmp_path / name, {"a": torch.full((4,), at)}) for at, name in enumerate("ab"))
    export_torch(one, tmp_path / "x.pt", Choice())
    export_dcp(one, tmp_path / "dcp", Choice())
    with pytest.raises(UsageError, match="exists already"):
        export_torch(two, tmp_path / "x.pt", Choice())
    with pytest.raises(UsageError, match="exists already"):
        export_dcp(two, tmp_path / "dcp", Choice())
    with pytest.raises(UsageError, match="exists already"):
        export_dcp(two, tmp_path / "x.pt", Choice(), force=True)
    export_torch(two, tmp_path / "x.pt", Choice(), force=True)
    export_dcp(two, tmp_path / "dcp", Choice(), force=True)
    assert contents(imported(tmp_path / "x.pt", tmp_path / "c")) == contents(two)
    assert contents(imported(tmp_path / "dcp", tmp_path / "d")) == contents(two)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d", "dcp", "x.pt"]
