"""A batch from an object, a function or a data file; nothing that a file carries is ever run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding

from gradkit.core.errors import GradkitError
from gradkit.load.batches import Row, describe, load_batch


class Trap:
    """Unpickling this makes a folder: the proof that code ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.folder,)


def refused(source: object, key: str, *named: str) -> None:
    """Loading raises that error, and its sentence names the offending things in both languages."""
    with pytest.raises(GradkitError) as caught:
        load_batch(source)
    assert caught.value.key == key
    for language in ("en", "zh"):
        sentence = caught.value.text(language)
        assert all(name in sentence for name in named), sentence


def write_json(folder: Path, value: object) -> Path:
    path = folder / "batch.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


# objects and functions


def test_an_object_is_the_batch_itself() -> None:
    batch = {"x": torch.zeros(2)}
    assert load_batch(batch) is batch


def test_a_batch_encoding_is_not_taken_for_a_function() -> None:
    batch = BatchEncoding({"input_ids": torch.zeros(1, 3, dtype=torch.long)})
    assert load_batch(batch) is batch


def test_a_function_is_called() -> None:
    assert load_batch(lambda: 7) == 7


def test_a_function_that_needs_arguments_is_named() -> None:
    def make_batch(size: int) -> torch.Tensor:
        return torch.zeros(size)

    refused(make_batch, "needs_arguments", "make_batch(size")


def test_a_data_loader_gives_its_first_batch() -> None:
    loader = DataLoader(TensorDataset(torch.arange(6.0).view(6, 1), torch.arange(6)), batch_size=2)
    assert [part.tolist() for part in load_batch(loader)] == [[[0.0], [1.0]], [0, 1]]


@pytest.mark.parametrize("name", ["make_batch", "batch"])
def test_a_spec_names_a_function_or_the_batch(tmp_path: Path, name: str) -> None:
    (tmp_path / "data.py").write_text("import torch\nbatch = torch.ones(3)\ndef make_batch(): return batch\n")
    assert load_batch(f"{tmp_path}/data.py:{name}").tolist() == [1, 1, 1]


# data files


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_torch_files_keep_their_structure(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"batch{suffix}"
    torch.save({"x": torch.ones(2), "pair": (torch.zeros(1), [1, "a"])}, path)
    assert load_batch(path)["pair"] == (torch.zeros(1), [1, "a"])


def test_safetensors_give_a_dict_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "batch.safetensors"
    save_file({"x": torch.ones(2, dtype=torch.float16)}, path)
    assert load_batch(str(path))["x"].dtype is torch.float16


def test_named_arrays_give_a_dict_and_unnamed_ones_a_tuple(tmp_path: Path) -> None:
    np.savez(tmp_path / "named.npz", x=np.ones((2, 3)), y=np.array([1, 2]))
    np.savez(tmp_path / "pair.npz", np.ones(2, dtype=np.float32), np.array([True]))
    assert describe(load_batch(tmp_path / "named.npz"))[0] == Row("x", (2, 3), "float64", "cpu")
    assert [row.dtype for row in describe(load_batch(tmp_path / "pair.npz"))] == ["float32", "bool"]


def test_a_single_array_is_a_single_tensor(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    assert load_batch(tmp_path / "x.npy").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        ([[1, 2], [3, 4]], torch.int64, (2, 2)),
        ([1, 2.5], torch.float32, (2,)),
        ([True, False], torch.bool, (2,)),
        ([], torch.float32, (0,)),
        ({"data": [1, 2], "dtype": "float16"}, torch.float16, (2,)),
        ({"data": 3}, torch.int64, ()),
    ],
)
def test_lists_in_json_become_tensors(
    tmp_path: Path, value: object, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = load_batch(write_json(tmp_path, value))
    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape)


def test_what_is_no_list_in_json_stays_as_it_is(tmp_path: Path) -> None:
    batch = load_batch(write_json(tmp_path, {"input_ids": [[1]], "use_cache": False, "mode": "sum", "mask": None}))
    assert (batch["use_cache"], batch["mode"], batch["mask"]) == (False, "sum", None)


def test_a_list_of_dicts_in_json_is_a_list_of_items(tmp_path: Path) -> None:
    x, y = load_batch(write_json(tmp_path, [{"data": [1.0]}, {"data": [2]}]))
    assert (x.tolist(), y.tolist()) == ([1.0], [2])


def test_tensors_of_a_file_go_to_the_device_that_is_asked_for(tmp_path: Path) -> None:
    torch.save((torch.ones(2), {"y": torch.ones(1)}), tmp_path / "b.pt")
    assert {row.device for row in describe(load_batch(tmp_path / "b.pt", device="meta"))} == {"meta"}


# what is refused


@pytest.mark.parametrize("name", ["batch.pt", "batch.pkl", "batch.bin", "BATCH.PICKLE"])
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, name: str) -> None:
    path, proof = tmp_path / name, tmp_path / "code_ran"
    path.write_bytes(pickle.dumps({"x": Trap(proof)}))
    refused(path, "pickle_refused", name, "torch.save", "safetensors")
    assert not proof.exists()
    pickle.loads(path.read_bytes())
    assert proof.exists(), "the trap itself must work, or this test proves nothing"


def test_a_torch_file_that_would_run_code_is_refused_and_its_wish_named(tmp_path: Path) -> None:
    path, proof = tmp_path / "batch.pt", tmp_path / "code_ran"
    torch.save({"x": Trap(proof)}, path)
    refused(path, "pickle_refused", "batch.pt", f"{os.mkdir.__module__}.mkdir")
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists(), "the trap itself must work, or this test proves nothing"


def test_no_environment_variable_opens_the_unsafe_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(Trap(tmp_path / "code_ran"), tmp_path / "batch.pt")
    refused(tmp_path / "batch.pt", "pickle_refused", "batch.pt")
    assert not (tmp_path / "code_ran").exists()


def test_an_array_of_objects_is_refused_without_unpickling(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=np.array([Trap(tmp_path / "code_ran")], dtype=object))
    refused(tmp_path / "b.npz", "pickle_refused", "b.npz")
    assert not (tmp_path / "code_ran").exists()


def test_a_whole_module_in_a_torch_file_is_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(1, 1), tmp_path / "model.pt")
    refused(tmp_path / "model.pt", "pickle_refused", "model.pt", "torch.nn.modules.linear.Linear")


@pytest.mark.parametrize("name", ["b.pt", "b.safetensors", "b.npz", "b.npy", "b.json"])
@pytest.mark.parametrize("content", [b"", b"hello"])
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GradkitError) as caught:
        load_batch(tmp_path / name)
    assert caught.value.key in ("unreadable_file", "pickle_refused")
    assert name in caught.value.text("en")
    assert name in caught.value.text("zh")


@pytest.mark.parametrize("name", ["gone.pt", "gone.pkl", "gone.json", "gone.py:make_batch"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    refused(f"{tmp_path}/{name}", "no_such_file", name.split(":", maxsplit=1)[0])


@pytest.mark.parametrize("name", ["batch.csv", "batch.txt", "batch"])
def test_another_kind_of_file_is_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1,2")
    refused(tmp_path / name, "data_format", name, ".safetensors", ".json")


def test_ragged_lists_are_pointed_at(tmp_path: Path) -> None:
    path = write_json(tmp_path, {"input_ids": [[1, 2, 3], [4, 5]]})
    refused(path, "json_ragged", "$.input_ids[1]", "[2]", "$.input_ids[0]", "[3]")


def test_numbers_beside_lists_are_ragged_too(tmp_path: Path) -> None:
    refused(write_json(tmp_path, [[1], 2]), "json_ragged", "$[1]")


@pytest.mark.parametrize("value", ["cat", None, 2**70])
def test_what_is_no_number_of_a_tensor_is_pointed_at(tmp_path: Path, value: object) -> None:
    refused(write_json(tmp_path, {"y": [0, value]}), "json_number", "$.y")


def test_an_unknown_dtype_in_json_is_named(tmp_path: Path) -> None:
    refused(write_json(tmp_path, {"x": {"data": [1], "dtype": "float31"}}), "json_dtype", "$.x", "float31")


def test_an_array_of_text_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", words=np.array(["a", "b"]))
    refused(tmp_path / "b.npz", "array_dtype", "words", "<U1")


# descriptions


def test_a_batch_is_described_entry_by_entry() -> None:
    rows = describe({"x": torch.zeros(2, 3), "more": (torch.tensor(1), "text")})
    assert [(row.name, row.shape, row.dtype) for row in rows] == [
        ("x", (2, 3), "float32"), ("more[0]", (), "int64"), ("more[1]", (), "str"),
    ]  # fmt: skip


def test_a_batch_that_is_one_tensor_has_one_row() -> None:
    assert describe(torch.zeros(4, dtype=torch.bfloat16)) == (Row("", (4,), "bfloat16", "cpu"),)


def test_a_batch_that_holds_itself_is_described_all_the_same() -> None:
    batch: dict[str, object] = {"x": torch.zeros(1)}
    batch["self"] = batch
    assert describe(batch)[-1].dtype == "dict"
