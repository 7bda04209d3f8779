"""Parts of a library's model that a program has no use for are left alone, unless somebody wants them to learn."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from gradkit import diagnose

transformers = pytest.importorskip("transformers")


@pytest.fixture
def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return transformers.BertModel(config)


class Classifier(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(8, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(tokens).last_hidden_state.mean(1)).square().mean()


TOKENS = torch.arange(6).reshape(2, 3)


def test_a_pooler_that_nobody_asks_is_left_alone(bert: Any) -> None:
    model = Classifier(bert)
    report = diagnose(lambda: model(TOKENS), model=model)
    assert report.healthy
    assert report.meant.left == ("body.pooler.dense.weight", "body.pooler.dense.bias")
    assert "body.pooler.dense.weight" in report.text("en")


def test_a_pooler_that_is_to_learn_is_missed(bert: Any) -> None:
    model = Classifier(bert)
    report = diagnose(lambda: model(TOKENS), model=model, should_train=["*pooler*"])
    assert [finding.cause for finding in report.findings] == ["trainable_unused"]


def test_a_layer_of_ones_own_beside_it_is_missed(bert: Any) -> None:
    model = Classifier(bert)
    model.extra = nn.Linear(8, 8)
    report = diagnose(lambda: model(TOKENS), model=model)
    assert [finding.parameters for finding in report.findings] == [("extra.weight", "extra.bias")]


def test_a_layer_put_into_a_librarys_model_is_missed_where_that_does_not_run_it(bert: Any) -> None:
    bert.gate = nn.Linear(8, 8)
    model = Classifier(bert)
    report = diagnose(lambda: model(TOKENS), model=model)
    assert [finding.parameters for finding in report.findings] == [("body.gate.weight", "body.gate.bias")]


def test_an_adapter_in_a_part_that_is_not_used_is_missed(bert: Any) -> None:
    peft = pytest.importorskip("peft")
    model = Classifier(peft.get_peft_model(bert, peft.LoraConfig(target_modules=["pooler.dense"])))
    report = diagnose(lambda: model(TOKENS), model=model)
    assert any("lora_A" in name for finding in report.findings for name in finding.parameters)


def test_a_class_of_the_program_is_the_users_whoever_started_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idler(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 8))
            self.idle = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x)).square().mean()

    monkeypatch.setattr(sys.modules["__main__"], "__file__", pytest.__file__, raising=False)
    monkeypatch.setattr(Idler, "__module__", "__main__")
    model = Idler()
    report = diagnose(lambda: model(torch.ones(2, 8)), model=model)
    assert [finding.parameters for finding in report.findings] == [("idle.weight", "idle.bias")]
