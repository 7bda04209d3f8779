"""A batch from one line of text, and the line that a model suggests; a loss from a name or an expression."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import gradkit
from gradkit.core.errors import GradkitError
from gradkit.load import batches, build, synthetic
from gradkit.load.step import from_objects, from_spec


def test_a_line_with_names_makes_a_dict_of_these_shapes_and_dtypes() -> None:
    batch = synthetic.make(synthetic.parse("x=float16[2, 3]; y=int64[2]<5; mask=bool[2]; n=int64[]"))
    assert {key: (value.dtype, tuple(value.shape)) for key, value in batch.items()} == {
        "x": (torch.float16, (2, 3)), "y": (torch.int64, (2,)), "mask": (torch.bool, (2,)), "n": (torch.int64, ()),
    }  # fmt: skip


def test_whole_numbers_stay_below_their_bound_and_masks_hide_nothing() -> None:
    batch = synthetic.make(synthetic.parse("ids=int64[50, 50]<3; attention_mask=int64[4, 4]<2"))
    assert set(batch["ids"].unique().tolist()) == {0, 1, 2}
    assert batch["attention_mask"].all()


def test_one_tensor_or_several_without_names() -> None:
    assert synthetic.make(synthetic.parse("float32[2, 3]")).shape == (2, 3)
    assert [one.shape for one in synthetic.make(synthetic.parse("float32[2]; int64[3]<4"))] == [(2,), (3,)]


def test_the_same_line_gives_the_same_numbers_and_leaves_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, second = (batches.load_batch("float32[5]") for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("line", ["x=float32[2, y]; z", "x=floaty[2]", "x=float32[2]; float32[3]", "x=float32[2] y"])
def test_a_line_that_describes_no_batch_is_refused_with_an_example(line: str) -> None:
    with pytest.raises(GradkitError, match=r"x=float32\[4, 3\]"):
        synthetic.parse(line)


def test_a_line_survives_being_written_and_read() -> None:
    entries = synthetic.parse("a=float32[2, 3]; b=int64[]<9; c=bool[2]")
    assert synthetic.parse("; ".join(map(str, entries))) == entries


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 4), nn.Linear(4, 3)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.embed(ids).mean(1)), labels)


PLAIN = {
    "linear": nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)),
    "images": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
    "steps": nn.LSTM(6, 4, batch_first=True),
    "words": nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 2)),
    "own loss": Tower(),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_model_suggests_goes_through_it(name: str) -> None:
    model = PLAIN[name]
    batch = synthetic.make(synthetic.parse(synthetic.propose(model)))
    model(**batch) if isinstance(batch, dict) else model(batch)


CONFIGS = {
    "GPT2LMHeadModel": {"n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 50},
    "BertForSequenceClassification": {
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "vocab_size": 50,
        "intermediate_size": 16,
        "num_labels": 4,
    },
    "BertForTokenClassification": {
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "vocab_size": 50,
        "intermediate_size": 16,
    },
    "T5ForConditionalGeneration": {
        "num_layers": 1,
        "d_model": 16,
        "num_heads": 2,
        "d_kv": 8,
        "d_ff": 16,
        "vocab_size": 50,
        "decoder_start_token_id": 0,
    },
    "ViTForImageClassification": {
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "intermediate_size": 16,
    },
    "WhisperForConditionalGeneration": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 16,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "vocab_size": 50,
        "max_source_positions": 20,
        "pad_token_id": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_model_with_a_config_suggests_gives_a_loss_that_can_be_diagnosed(name: str) -> None:
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**CONFIGS[name]))
    line = synthetic.propose(model)
    assert "labels" in line
    assert gradkit.diagnose(from_objects(model, batches.load_batch(line))).healthy


def test_a_model_that_says_nothing_suggests_nothing() -> None:
    assert synthetic.propose(nn.Flatten()) == ""


@pytest.mark.parametrize("text", ["mse_loss", "MSELoss", "(output - batch[1]).square().mean()"])
def test_a_loss_by_its_name_or_as_an_expression(text: str) -> None:
    model, batch = nn.Linear(3, 2), (torch.ones(4, 3), torch.zeros(4, 2))
    found = from_spec(model=model, batch=batch, loss=text).run()
    assert torch.allclose(found, nn.functional.mse_loss(model(batch[0]), batch[1]))


def test_a_text_that_is_no_loss_is_refused() -> None:
    with pytest.raises(GradkitError, match="cross_entropy"):
        build.build_expression("output +")


def test_a_cut_in_an_expression_is_named_with_its_text() -> None:
    step = from_spec(model=nn.Linear(3, 2), batch="float32[4, 3]", loss="output.detach().square().mean()")
    report = gradkit.diagnose(step)
    assert report.findings[0].cause == "detach"
    assert report.findings[0].location.text == "output.detach().square().mean()"
