"""Files that are no files, that lie, or that are far too large: one sentence names the file, and nothing hangs."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradkit.core import i18n, regular_files, settings
from gradkit.core.errors import GradkitError
from gradkit.core.introspection import one_line
from gradkit.core.records import Picture
from gradkit.load import memory, reading, step
from gradkit.load.batches import load_batch
from gradkit.notebook import lab, request
from gradkit.report.report import Report
from gradkit.source import files
from gradkit.teaching import book, exercises

POSIX = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
KINDS = (".pt", ".pth", ".bin", ".safetensors", ".npz", ".npy", ".json", ".pkl")


def _refused(call: Callable[[], object]) -> GradkitError:
    with pytest.raises(GradkitError) as caught:
        call()
    assert len(str(caught.value)) < 2000
    return caught.value


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


pytestmark = pytest.mark.usefixtures("_here")


# -- no files ---------------------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("ending", KINDS)
def test_a_pipe_is_never_waited_for(ending: str) -> None:
    os.mkfifo(f"batch{ending}")
    error = _refused(lambda: load_batch(f"batch{ending}"))
    assert (error.key, error.facts["path"]) == ("no_regular_file", f"batch{ending}")


@POSIX
@pytest.mark.parametrize("ending", KINDS)
def test_a_device_is_never_read(ending: str) -> None:
    Path(f"batch{ending}").symlink_to("/dev/zero")
    assert _refused(lambda: load_batch(f"batch{ending}")).key == "no_regular_file"


@pytest.mark.parametrize("ending", KINDS)
def test_a_folder_is_no_batch(ending: str) -> None:
    Path(f"batch{ending}").mkdir()
    assert _refused(lambda: load_batch(f"batch{ending}")).key == "no_regular_file"


@POSIX
def test_a_pipe_called_train_py_is_never_waited_for() -> None:
    os.mkfifo("train.py")
    assert _refused(lambda: step.from_spec("train.py:step")).key == "no_regular_file"


@POSIX
@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
def test_a_scan_leaves_a_pipe_out(name: str) -> None:
    os.mkfifo(name)
    [skipped] = [one for file in files.source_files(["."]) for one in files.read_sources(file)]
    assert isinstance(skipped, files.Skipped)
    assert (skipped.file, skipped.reason) == (name, "unreadable")


@POSIX
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.bin", "adapter_model.safetensors"])
def test_a_pipe_in_an_adapters_folder_is_never_waited_for(name: str) -> None:
    Path("adapter_config.json").write_text('{"r": 2}')
    Path(name).unlink(missing_ok=True)
    os.mkfifo(name)
    if name == "adapter_config.json":
        save_file({"x": torch.ones(2, 2)}, "adapter_model.safetensors")
    assert _refused(lambda: step.from_spec(model=nn.Linear(2, 2), adapter=".")).key == "no_regular_file"


@POSIX
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"]
)
def test_a_pipe_in_a_models_folder_is_never_waited_for(name: str) -> None:
    Path("model").mkdir()
    Path("model", "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    Path("model", name).unlink(missing_ok=True)
    os.mkfifo(Path("model", name))
    assert _refused(lambda: step.from_spec(model="model")).key == "no_regular_file"


@POSIX
def test_gradkit_is_imported_beside_a_pipe_called_like_its_marker() -> None:
    os.mkfifo(i18n.MARKER)
    command = [sys.executable, "-c", "from gradkit.core import i18n; print(i18n.language())"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "en\n"


@POSIX
@pytest.mark.parametrize("name", ["settings.json", "workshop.json"])
def test_a_pipe_in_the_place_of_the_settings_counts_as_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    os.mkfifo(name)
    settings.remember("language", "zh")
    exercises.note_try("first", solved=True)
    assert settings.remembered("language") == ("" if name == "settings.json" else "zh")
    assert list(exercises.logbook_entries()) == ([] if name == "workshop.json" else ["first"])


@POSIX
def test_a_notebook_is_not_written_into_a_pipe_even_by_force() -> None:
    Path("en").mkdir()
    os.mkfifo(Path("en", "start.ipynb"))
    hand_out = lambda force: book.hand_out(Path(), ["start"], languages=["en"], force=force)  # noqa: E731
    assert _refused(lambda: hand_out(False)).key == "notebook_there"
    assert _refused(lambda: hand_out(True)).key == "notebook_not_writable"


@POSIX
def test_the_start_notebook_is_not_written_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo("gradkit-start.ipynb")
    assert _refused(lambda: lab.start_notebook(tmp_path, "en")).key == "folder_not_writable"


@POSIX
def test_a_report_is_not_written_into_a_pipe() -> None:
    os.mkfifo("report.txt")
    with pytest.raises(OSError, match="regular file"):
        Report((), (), Picture((), (), (), ())).save("report.txt")


@POSIX
def test_the_panel_proposes_nothing_from_a_pipe(tmp_path: Path) -> None:
    os.mkfifo("train.py")
    os.mkfifo("batch.pt")
    assert (request.suggested_specs(tmp_path), request.suggested_data_files(tmp_path)) == ((), ())


# -- names and rights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [*KINDS, ".py:step"])
def test_a_name_that_is_too_long_is_told_in_a_short_sentence(ending: str) -> None:
    call = step.from_spec if ending == ".py:step" else load_batch
    assert _refused(lambda: call("a" * 5000 + ending)).key == "cannot_open"


@pytest.mark.parametrize("name", ["a\0b.pt", "a\0b.json"])
def test_a_name_that_no_file_can_have_is_told(name: str) -> None:
    assert _refused(lambda: load_batch(name)).key in ("cannot_open", "no_such_file")


@pytest.mark.parametrize("what", ["adapter", "model"])
def test_a_folder_whose_name_is_too_long_is_told_in_a_short_sentence(what: str) -> None:
    folder = "a/" * 3000
    model = {} if what == "model" else {"model": nn.Linear(1, 1)}
    assert _refused(lambda: step.from_spec(**{what: folder}, **model)).key == "cannot_open"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read anything")
def test_a_folder_that_may_not_be_read_is_not_called_an_empty_one() -> None:
    Path("closed").mkdir(mode=0o000)
    assert _refused(lambda: step.from_spec(model=nn.Linear(1, 1), adapter="closed")).key == "cannot_open"
    assert _refused(lambda: list(files.source_files(["closed"]))).key == "cannot_open"


@POSIX
def test_a_link_to_itself_is_told() -> None:
    Path("loop.pt").symlink_to("loop.pt")
    assert _refused(lambda: load_batch("loop.pt")).key == "cannot_open"


@POSIX
@pytest.mark.parametrize("name", ["gone.pt", "gone.py:step", "~/gone.pt", "gone.json"])
def test_a_link_to_nowhere_is_no_file(name: str) -> None:
    Path(name.removesuffix(":step").removeprefix("~/")).symlink_to("nowhere")
    call = step.from_spec if name.endswith(":step") else load_batch
    assert _refused(lambda: call(name)).key == "no_such_file"


def test_a_file_below_a_file_is_no_file() -> None:
    Path("file").touch()
    assert _refused(lambda: load_batch("file/batch.pt")).key == "no_such_file"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read anything")
@pytest.mark.parametrize("name", ["batch.pt", "batch.json", "train.py"])
def test_a_file_that_may_not_be_read_is_told(name: str) -> None:
    Path(name).touch(mode=0o000)
    error = _refused(lambda: step.from_spec("train.py:step") if name == "train.py" else load_batch(name))
    assert error.key == "cannot_open"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_a_file_with_a_line_break_in_its_name_is_found() -> None:
    Path("a\nb.py").write_text("import torch\nx = torch.ones(2)\n")
    assert load_batch("a\nb.py:x").shape == (2,)


# -- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin", ".safetensors", ".npz", ".npy", ".json"])
@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"PK\x03\x04", os.urandom(200), b"{" * 10, b"\xff\xfe"])
def test_a_file_that_is_not_what_its_name_says_is_told(ending: str, content: bytes) -> None:
    Path(f"batch{ending}").write_bytes(content)
    assert _refused(lambda: load_batch(f"batch{ending}")).key in ("unreadable_file", "pickle_refused")


@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".npz", ".npy"])
def test_a_file_that_ends_early_is_told(ending: str) -> None:
    tensor = torch.ones(1000)
    {
        ".pt": lambda: torch.save(tensor, "batch.pt"),
        ".safetensors": lambda: save_file({"x": tensor}, "batch.safetensors"),
        ".npz": lambda: np.savez("batch.npz", x=tensor.numpy()),
        ".npy": lambda: np.save("batch.npy", tensor.numpy()),
    }[ending]()
    whole = Path(f"batch{ending}").read_bytes()
    Path(f"batch{ending}").write_bytes(whole[: len(whole) // 2])
    assert _refused(lambda: load_batch(f"batch{ending}")).key == "unreadable_file"


@pytest.mark.parametrize("text", ["[" * 10**5, "[" * 900 + "1" + "]" * 900, '{"a":' * 10**4 + "1" + "}" * 10**4])
def test_json_that_is_nested_too_deep_is_told(text: str) -> None:
    Path("batch.json").write_text(text)
    assert _refused(lambda: load_batch("batch.json")).key == "unreadable_file"


@pytest.mark.parametrize("dtype", ["qint8", "bits8", "__class__", "Tensor", 5, "", ["float32"], {"a": 1}])
def test_a_dtype_that_no_list_of_numbers_can_have_is_told(dtype: object) -> None:
    Path("batch.json").write_text(json.dumps({"data": [1.0], "dtype": dtype}))
    assert _refused(lambda: load_batch("batch.json")).key == "json_dtype"


def test_json_with_a_byte_order_mark_is_read() -> None:
    Path("batch.json").write_bytes(b"\xef\xbb\xbf[1.0, 2.0]")
    assert load_batch("batch.json").tolist() == [1.0, 2.0]


def test_a_long_text_where_numbers_belong_is_told_in_short() -> None:
    Path("batch.json").write_text(json.dumps(["a" * 10**6]))
    assert _refused(lambda: load_batch("batch.json")).key == "json_number"


def test_a_text_file_that_is_far_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("batch.json").open("wb") as stream:
        stream.truncate(regular_files.MOST + 1)
    assert _refused(lambda: load_batch("batch.json")).key == "file_too_large"


def test_a_python_file_that_is_far_too_large_is_not_parsed() -> None:
    with Path("train.py").open("wb") as stream:
        stream.truncate(regular_files.SOURCE + 1)
    assert _refused(lambda: step.from_spec("train.py:step")).key == "file_too_large"
    assert isinstance(files.read_sources("train.py")[0], files.Skipped)


def _bomb() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**26,)})
    with zipfile.ZipFile("batch.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as entry:
        entry.write(header.getvalue())
        for _ in range(256):
            entry.write(bytes(2**20))


def test_an_archive_that_unpacks_to_more_than_the_memory_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    _bomb()
    monkeypatch.setattr(memory, "free_memory", lambda: 2**27)
    error = _refused(lambda: load_batch("batch.npz"))
    assert (error.key, error.facts["size"]) == ("does_not_fit", "256.0 MB")


def test_a_file_larger_than_the_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("batch.npy", np.zeros(1000))
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    assert _refused(lambda: load_batch("batch.npy")).key == "does_not_fit"


def test_a_header_that_claims_terabytes_is_told() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    Path("batch.npy").write_bytes(header.getvalue())
    assert _refused(lambda: load_batch("batch.npy")).key == "unreadable_file"


@pytest.mark.parametrize("length", [2**63, 10**11, 0, 5])
def test_a_safetensors_header_of_any_length_is_told(length: int) -> None:
    Path("batch.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    assert _refused(lambda: load_batch("batch.safetensors")).key == "unreadable_file"


@pytest.mark.parametrize("ending", [".npz", ".npy"])
def test_arrays_of_objects_are_refused_like_any_pickle(ending: str) -> None:
    things = np.array([print], dtype=object)
    np.savez("batch.npz", x=things) if ending == ".npz" else np.save("batch.npy", things)
    assert _refused(lambda: load_batch(f"batch{ending}")).key == "pickle_refused"


def test_a_pickle_that_holds_itself_is_told() -> None:
    endless: list[Any] = []
    endless.append(endless)
    torch.save(endless, "batch.pt")
    assert _refused(lambda: load_batch("batch.pt")).key == "unreadable_file"
    assert one_line({"x": endless, "y": {"z": endless}})


def test_weights_without_data_are_told() -> None:
    torch.save(nn.Linear(3, 1, device="meta").state_dict(), "weights.pt")
    assert _refused(lambda: step.from_spec(model=nn.Linear(3, 1), weights="weights.pt")).key == "unreadable_file"


def test_weights_whose_names_are_numbers_are_told() -> None:
    torch.save({1: torch.ones(1)}, "weights.pt")
    assert _refused(lambda: step.from_spec(model=nn.Linear(3, 1), weights="weights.pt")).key == "weights_keys"


# -- a batch in one line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["float32[10**12]", "float32[-1]", f"x=float32[{2**63}]", f"float32[{'9' * 5000}]", "int64[2.5]"]
)
def test_sizes_that_are_none_are_told(line: str) -> None:
    assert _refused(lambda: load_batch(line)).key == "bad_batch_line"


@pytest.mark.parametrize(
    "line", ["float32[1000000000000]", "x=bool[4]; y=int64[99999, 99999, 99999]", f"int8[{2**62}]"]
)
def test_a_batch_beyond_the_memory_is_told_before_it_is_asked_for(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in ("ones", "randn", "randint"):
        monkeypatch.delattr(torch, maker)
    error = _refused(lambda: load_batch(line))
    assert error.key == "batch_too_large"
    assert "GB" in error.facts["size"]


@pytest.mark.parametrize("line", [f"int64[2]<{2**64}", "int8[2]<1000", "uint8[2]<257"])
def test_numbers_beyond_the_dtype_are_told(line: str) -> None:
    assert _refused(lambda: load_batch(line)).key == "batch_below"


@pytest.mark.parametrize("line", [f"int64[2]<{2**63 - 1}", "int8[2]<128", "uint8[2]<256"])
def test_the_largest_numbers_of_a_dtype_can_be_drawn(line: str) -> None:
    assert load_batch(line).shape == (2,)


# -- adapters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    ["[]", "5", "null", '"x"', "[1, 2]", "[[1, 2]]", "{", "", "[" * 10**5, '{"a":' * 10**5, "\xff"],
)
@pytest.mark.parametrize("name", ["adapter_config.json", "config.json"])
def test_a_config_of_another_shape_is_told(name: str, config: str) -> None:
    Path(name).write_text(config, encoding="latin-1")
    what: dict[str, Any] = {"model": "."} if name == "config.json" else {"adapter": ".", "model": nn.Linear(2, 2)}
    error = _refused(lambda: step.from_spec(**what))
    assert error.key in ("config_no_object", "unreadable_file")
    assert name in error.facts["path"]


@pytest.mark.parametrize(
    "changes",
    [
        {"peft_type": None}, {"peft_type": 5}, {"peft_type": []}, {"r": "x"}, {"r": -1}, {"r": 0}, {"r": None},
        {"r": [2]}, {"r": 10**12}, {"r": 1e300}, {"rank_pattern": {"x": 10**9}}, {"target_modules": 5},
        {"target_modules": "(("},
        {"target_modules": None}, {"target_modules": {"a": 1}}, {"lora_alpha": "x"}, {"lora_dropout": []},
        {"modules_to_save": 5}, {"rank_pattern": [1]}, {"bias": {}}, {"layer_replication": [[0, 1]] * 10**5},
        {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 10**12},
    ],
    ids=lambda changes: str(changes)[:60],
)  # fmt: skip
def test_an_adapters_config_with_wrong_values_is_told(changes: dict[str, object]) -> None:
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["0"], "base_model_name_or_path": ""}
    Path("adapter_config.json").write_text(json.dumps({**config, **changes}))
    weights = {
        "base_model.model.0.lora_A.weight": torch.ones(2, 4),
        "base_model.model.0.lora_B.weight": torch.ones(4, 2),
    }
    save_file(weights, "adapter_model.safetensors")
    model = nn.Sequential(nn.Linear(4, 4))
    assert _refused(lambda: step.from_spec(model=model, adapter=".")).key in ("adapter_failed", "config_value")


def test_an_adapter_larger_than_its_weights_is_not_built() -> None:
    Path("adapter_config.json").write_text('{"peft_type": "LORA", "r": 1000000000, "target_modules": ["0"]}')
    save_file({"x": torch.ones(2, 4)}, "adapter_model.safetensors")
    error = _refused(lambda: step.from_spec(model=nn.Sequential(nn.Linear(4, 4)), adapter="."))
    assert (error.key, error.facts["name"], error.facts["value"]) == ("config_value", "r", "1000000000")


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_hidden_layers", 10**7), ("num_labels", 10**12), ("hidden_size", 10**12), ("max_position_embeddings", 1e300)],
)
def test_a_model_of_an_impossible_size_is_not_built(name: str, value: float) -> None:
    Path("config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "text_config": {name: value}}))
    assert _refused(lambda: step.from_spec(model=".")).key == "config_value"


@pytest.mark.parametrize("names", [None, {}, {"a": 1}, 5, [5], [], "x", [None], ["pipeline"], ["PreTrainedModel"]])
def test_an_architecture_that_is_none_is_told(names: object) -> None:
    Path("config.json").write_text(json.dumps({"architectures": names}))
    assert _refused(lambda: step.from_spec(model=".")).key in ("no_architecture", "pretrained_failed")


# -- Python and notebooks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "key"),
    [
        (b"x = 1\0\n", "unreadable_file"),
        (b"x = " + b"-" * 10**5 + b"1\n", "unreadable_file"),
        (b"x = " + b"(" * 10**4 + b")" * 10**4 + b"\n", "import_failed"),
        (b"# coding: nope\n", "import_failed"),
        (b"x = '\xff'\n", "import_failed"),
        ("x = 1\n".encode("utf-16"), "unreadable_file"),
    ],
    ids=["null byte", "minus signs", "brackets", "no encoding", "not UTF-8", "UTF-16"],
)
def test_python_that_cannot_be_compiled_is_told_by_its_file(source: bytes, key: str) -> None:
    Path("train.py").write_bytes(source)
    with pytest.raises(GradkitError) as caught:
        step.from_spec("train.py:step")
    assert caught.value.key == key
    assert "userfiles.py" not in str(caught.value)
    assert "train.py" in str(caught.value)


def test_python_with_a_byte_order_mark_is_imported() -> None:
    Path("data.py").write_bytes(b"\xef\xbb\xbfimport torch\nx = torch.ones(2)\n")
    assert load_batch("data.py:x").shape == (2,)


@pytest.mark.parametrize(
    "text",
    [
        "", "5", "[]", "null", "[" * 10**5, '{"metadata": []}', '{"metadata": {}, "cells": 5}', '{"cells": []}',
        '{"metadata": {}, "cells": [5]}', '{"metadata": {}, "cells": {"a": 1}}',
        '{"metadata": {"kernelspec": 5}, "cells": []}',
        '{"metadata": {}, "cells": [{"cell_type": "code", "source": [1]}]}',
        '{"metadata": {}, "cells": [{"cell_type": "code", "source": 5}]}',
        '{"metadata": {}, "cells": [{"source": "x"}]}',
    ],
)  # fmt: skip
def test_a_notebook_of_another_shape_is_left_out_of_a_scan(text: str) -> None:
    Path("a.ipynb").write_text(text)
    [skipped] = files.read_sources("a.ipynb")
    assert isinstance(skipped, files.Skipped)
    assert skipped.reason == "notebook"


def test_the_panel_passes_over_python_that_is_nested_too_deep(tmp_path: Path) -> None:
    Path("deep.py").write_text("x = " + "-" * 10**5 + "1\n")
    Path("train.py").write_text("def step(): ...\n")
    assert request.suggested_specs(tmp_path) == ("train.py:step",)


# -- what is kept for a person ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    ['{"tries": 1e999, "solved": ""}', '{"tries": NaN, "solved": ""}', '{"tries": -1, "solved": ""}', "5", "null", "[]",
     '{"tries": "9", "solved": ""}', '{"tries": 1, "solved": "<script>"}', '{"tries": 1, "solved": 5}', '{"tries": 1}',
     '{"tries": 1' + "0" * 400 + ', "solved": ""}'],
)  # fmt: skip
def test_an_entry_of_another_shape_is_not_believed_and_the_others_are(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    Path("workshop.json").write_text(f'{{"a": {entry}, "b": {{"tries": 2, "solved": "2026-01-02"}}}}')
    assert exercises.logbook_entries() == {"b": exercises.Entry(2, "2026-01-02")}
    assert exercises.note_try("a", solved=False) == exercises.Entry(1)


@pytest.mark.parametrize("text", ["[" * 10**5, "5", "[]", '{"language": 5}', "", "\xff", '{"language": {"a": 1}}'])
def test_settings_of_another_shape_count_as_nothing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    Path("settings.json").write_text(text, encoding="latin-1")
    Path("workshop.json").write_text(text, encoding="latin-1")
    assert (settings.remembered("language"), exercises.logbook_entries()) == ("", {})


@POSIX
def test_settings_that_are_a_link_stay_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings.FOLDER, str(tmp_path))
    Path("dotfiles.json").write_text("{}")
    Path("settings.json").symlink_to("dotfiles.json")
    settings.remember("language", "zh")
    assert Path("settings.json").is_symlink()
    assert json.loads(Path("dotfiles.json").read_text()) == {"language": "zh"}


@POSIX
def test_a_notebook_by_force_takes_the_place_of_a_link_not_of_what_it_leads_to() -> None:
    Path("precious").write_text("mine")
    Path("en").mkdir()
    Path("en", "start.ipynb").symlink_to(Path("precious").resolve())
    book.hand_out(Path(), ["start"], languages=["en"], force=True)
    assert Path("precious").read_text() == "mine"
    assert json.loads(Path("en", "start.ipynb").read_text(encoding="utf-8"))


@POSIX
def test_a_link_to_nowhere_is_not_written_through() -> None:
    Path("en").mkdir()
    Path("en", "start.ipynb").symlink_to(Path("elsewhere").resolve())
    assert _refused(lambda: book.hand_out(Path(), ["start"], languages=["en"])).key == "notebook_there"
    assert not Path("elsewhere").exists()


def test_a_pickle_never_runs(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, ("ran", "w")

    for name in ("batch.pt", "batch.pth", "batch.bin"):
        Path(name).write_bytes(pickle.dumps(Evil()))
        assert _refused(lambda name=name: load_batch(name)).key == "pickle_refused"  # type: ignore[misc]
    assert not Path("ran").exists()
    assert reading.short(tmp_path)
