"""Whatever gradkit loads by itself comes from this machine: every socket is refused here, and nobody asks for one."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from gradkit.core.errors import GradkitError
from gradkit.load.pretrained import VARIABLES, offline
from gradkit.load.step import from_spec
from gradkit.teaching import book, claim, examples

BATCH = "input_ids=int64[2, 5]<50; labels=int64[2, 5]<50"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was asked of the network, which refuses; a test fails that asked for anything."""
    asked: list[str] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        asked.append(str(arguments[-2:]))
        raise socket.gaierror("refused by the test")

    for owner, name in ((socket, "getaddrinfo"), (socket.socket, "connect"), (socket.socket, "connect_ex")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # whoever runs the tests may be offline
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield asked
    assert asked == []


def _tiny() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    _tiny().save_pretrained(folder / "base")
    get_peft_model(_tiny(), LoraConfig(target_modules=["q_proj"], r=2)).save_pretrained(folder / "lora")
    _change(folder / "lora" / "adapter_config.json", base_model_name_or_path=str(folder / "base"))
    return folder


@pytest.fixture
def work(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The adapter at ``org/lora``, as a repository on the hub could be called, and its model at ``base``."""
    shutil.copytree(saved / "base", tmp_path / "base")
    shutil.copytree(saved / "lora", tmp_path / "org" / "lora")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _refused(**what: Any) -> GradkitError:
    with pytest.raises(GradkitError) as caught:
        from_spec(batch=BATCH, **what)
    return caught.value


# -- complete folders -------------------------------------------------------------------------------------------------


def test_an_adapter_is_loaded_without_the_network(work: Path) -> None:
    step = from_spec(adapter="org/lora", batch=BATCH)
    assert any("lora_A" in name for name, _ in step.model.named_parameters())


def test_a_model_folder_is_loaded_without_the_network(work: Path) -> None:
    assert type(from_spec(model="base", batch=BATCH).model) is LlamaForCausalLM


def test_a_model_in_the_old_format_is_not_converted_by_the_hub_meanwhile(work: Path) -> None:
    (work / "base" / "model.safetensors").unlink()
    torch.save(_tiny().state_dict(), work / "base" / "pytorch_model.bin")
    assert type(from_spec(model="base", batch=BATCH).model) is LlamaForCausalLM


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_state_dict_is_loaded_without_the_network(ending: str, work: Path) -> None:
    from safetensors.torch import save_file

    (torch.save if ending == ".pt" else save_file)(nn.Linear(3, 1).state_dict(), f"weights{ending}")
    from_spec(model=nn.Linear(3, 1), weights=f"weights{ending}", batch="float32[2, 3]")


@pytest.mark.parametrize("name", examples.BUILTINS)
def test_a_built_in_example_is_made_and_run_without_the_network(name: str) -> None:
    examples.from_builtin(name).run()


def test_the_experiment_about_adapters_runs_without_the_network() -> None:
    assert claim.claim("adapter_loads_frozen").run().verdict == claim.claim("adapter_loads_frozen").verdict


def test_notebooks_are_handed_out_without_the_network(tmp_path: Path) -> None:
    assert book.hand_out(tmp_path, ["start"], languages=["en"])


# -- incomplete folders -----------------------------------------------------------------------------------------------


def test_an_adapter_without_weights_is_not_filled_from_the_hub(work: Path) -> None:
    (work / "org" / "lora" / "adapter_model.safetensors").unlink()
    error = _refused(adapter="org/lora")
    assert error.key == "no_adapter_weights"
    assert "org/lora" in str(error)
    assert "adapter_model.safetensors" in str(error)
    assert "adapter_model.bin" in str(error)


def test_other_weights_in_an_adapters_folder_do_not_stand_for_its_own(work: Path) -> None:
    (work / "org" / "lora" / "adapter_model.safetensors").rename(work / "org" / "lora" / "other.safetensors")
    assert _refused(adapter="org/lora").key == "no_adapter_weights"


def test_a_link_to_weights_that_are_gone_is_not_filled_from_the_hub(work: Path) -> None:
    weights = work / "org" / "lora" / "adapter_model.safetensors"
    weights.unlink()
    weights.symlink_to(work / "gone")
    assert _refused(adapter="org/lora").key == "no_such_file"


@pytest.mark.parametrize("name", ["facebook/opt-125m", "../../../../etc", "", None, 5, ["base"], {"a": 1}, "a" * 9000])
def test_a_base_model_that_is_not_on_this_machine_is_asked_for_not_fetched(name: object, work: Path) -> None:
    _change(work / "org" / "lora" / "adapter_config.json", base_model_name_or_path=name)
    error = _refused(adapter="org/lora")
    assert error.key == "no_base"
    assert "train.py:build_model" in str(error)
    assert len(str(error)) < 1000


def test_a_model_folder_without_weights_is_not_filled_from_the_hub(work: Path) -> None:
    (work / "base" / "model.safetensors").unlink()
    assert _refused(model="base").key == "pretrained_failed"


def test_an_adapter_beside_a_model_does_not_fetch_its_own_base(work: Path) -> None:
    shutil.copy(work / "org" / "lora" / "adapter_config.json", work / "base")
    _change(work / "base" / "adapter_config.json", base_model_name_or_path="facebook/opt-125m")
    assert _refused(model="base").key == "pretrained_failed"


def test_a_missing_shard_is_not_fetched(work: Path) -> None:
    (work / "base" / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (work / "base" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert _refused(model="base").key == "pretrained_failed"


@pytest.mark.parametrize(
    "shard", ["../../else/model.safetensors", "/etc/passwd", "C:\\x.safetensors", "..\\x", 5, None]
)
def test_an_index_that_names_weights_elsewhere_is_refused(shard: object, work: Path) -> None:
    index = {"metadata": {}, "weight_map": {"model.norm.weight": shard}}
    (work / "base" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert _refused(model="base").key == "config_elsewhere"


@pytest.mark.parametrize(
    "change",
    [
        {"_attn_implementation": "kernels-community/flash-attn2"},
        {"text_config": {"attn_implementation": {"": "someone/evil"}}},
        {"trust_remote_code": True},
    ],
)
def test_a_model_that_asks_for_code_from_elsewhere_is_refused(change: dict[str, object], work: Path) -> None:
    _change(work / "base" / "config.json", **change)
    assert _refused(model="base").key == "config_wants_code"


@pytest.mark.parametrize(
    "change", [{"megatron_core": "evil"}, {"tokenizer_kwargs": {"trust_remote_code": True}}, {"megatron_core": 5}]
)
def test_an_adapter_that_asks_for_code_from_elsewhere_is_refused(change: dict[str, object], work: Path) -> None:
    _change(work / "org" / "lora" / "adapter_config.json", **change)
    assert _refused(adapter="org/lora").key == "config_wants_code"


def test_custom_code_beside_a_model_is_not_run(work: Path) -> None:
    (work / "base" / "modeling_evil.py").write_text("open('ran', 'w').close()\nclass Evil: pass\n")
    _change(work / "base" / "config.json", auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    from_spec(model="base", batch=BATCH)
    assert not Path("ran").exists()


# -- and afterwards ---------------------------------------------------------------------------------------------------


def _seen() -> dict[str, object]:
    return {"live": huggingface_hub.constants.HF_HUB_OFFLINE, **{name: os.environ.get(name) for name in VARIABLES}}


def test_the_libraries_are_offline_while_something_is_loaded() -> None:
    with offline():
        assert _seen() == {"live": True, **dict.fromkeys(VARIABLES, "1")}


@pytest.mark.parametrize("wished", [None, "0", "1"])
def test_a_persons_own_choice_is_back_afterwards(wished: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if wished is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", wished)
    before = _seen()
    with pytest.raises(ZeroDivisionError), offline(), offline():
        raise ZeroDivisionError
    assert _seen() == before


def test_what_is_imported_meanwhile_does_not_stay_offline() -> None:
    program = """
from gradkit.load.pretrained import offline
with offline():
    import huggingface_hub, transformers.utils.hub as hub, peft
    assert huggingface_hub.is_offline_mode() if hasattr(huggingface_hub, "is_offline_mode") else True
print(huggingface_hub.constants.HF_HUB_OFFLINE, getattr(hub, "_is_offline_mode", False))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
