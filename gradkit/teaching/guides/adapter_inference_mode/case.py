"""A ticket router: its LoRA adapter was trained on Monday and saved; on Tuesday the training is to go on."""

import contextlib
import io
import json
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix, self.desk = nn.EmbeddingBag(50, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, tickets):
        return self.desk(torch.tanh(self.mix(self.words(tickets))))


def monday(folder):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["mix"], init_lora_weights=False)
    model = get_peft_model(Router(), config)
    model.save_pretrained(folder)
    return model


def tuesday(folder):
    from peft import PeftModel

    # [wrong]
    model = PeftModel.from_pretrained(Router(), folder)  # CUT
    model.train()
    # [end]
    return model


def tuesday_fixed(folder):
    from peft import PeftModel

    # [fixed]
    model = PeftModel.from_pretrained(Router(), folder, is_trainable=True)
    model.train()
    # [end]
    return model


def router(**options):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["mix"], init_lora_weights=False, **options)
    return get_peft_model(Router(), config)


def config_for_serving(_):
    return router(inference_mode=True)


def config_of_monday(folder):
    from peft import PeftConfig, get_peft_model

    config = PeftConfig.from_pretrained(folder)
    return get_peft_model(Router(), config)


def config_taken_back(folder):
    from peft import PeftConfig, get_peft_model

    config = PeftConfig.from_pretrained(folder)
    config.inference_mode = False
    return get_peft_model(Router(), config)


def switched_for_serving(folder):
    model = tuesday_fixed(folder)
    model.set_adapter("default", inference_mode=True)
    return model


def switched_back(folder):
    model = switched_for_serving(folder)
    model.set_adapter("default")
    return model


def program(resume):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        monday(folder)
        model = resume(folder)
    tickets, desks = torch.randint(0, 50, (6, 9)), torch.randint(0, 5, (6,))
    return model, lambda: F.cross_entropy(model(tickets), desks)


def make():
    return program(tuesday)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(tuesday_fixed)


def make_config():
    return program(config_for_serving)


def make_saved():
    return program(config_of_monday)


def make_switched():
    return program(switched_for_serving)


def shows(model):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # [see]
        model.print_trainable_parameters()
        # [end]
    return text.getvalue()


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


def experiment_backward_or_the_optimizer_raises():
    model, step = make()
    for attempt, message in [(lambda: step().backward(), "element 0 of tensors does not require grad"),
                             (lambda: moved(model, step), "optimizer got an empty parameter list")]:
        try:
            attempt()
        except (RuntimeError, ValueError) as error:
            assert message in str(error)
        else:
            raise AssertionError(f"no {message}")


def experiment_a_new_adapter_trains_but_the_saved_config_says_inference():
    with tempfile.TemporaryDirectory() as folder:
        assert monday(folder).get_nb_trainable_parameters()[0] > 0
        assert json.loads((Path(folder) / "adapter_config.json").read_text())["inference_mode"] is True


def experiment_whatever_the_file_says_the_argument_decides():
    from peft import PeftModel

    with tempfile.TemporaryDirectory() as folder:
        monday(folder)
        config = Path(folder) / "adapter_config.json"
        for said in (True, False):
            config.write_text(json.dumps({**json.loads(config.read_text()), "inference_mode": said}))
            for asked in (True, False):
                model = PeftModel.from_pretrained(Router(), folder, is_trainable=asked)
                assert (model.get_nb_trainable_parameters()[0] > 0) == asked


def experiment_zero_trainable_before_and_some_after():
    assert shows(make()[0]).startswith("trainable params: 0 ")
    assert not shows(make_fixed()[0]).startswith("trainable params: 0 ")


def experiment_only_the_adapter_moves():
    names = moved(*make_fixed())
    assert len(names) == 2 and all("lora_" in name for name in names)


def experiment_layers_in_modules_to_save_move_as_well():
    model = router(modules_to_save=["desk"])
    tickets, desks = torch.randint(0, 50, (6, 9)), torch.randint(0, 5, (6,))
    others = [name for name in moved(model, lambda: F.cross_entropy(model(tickets), desks)) if "lora_" not in name]
    assert others and all(".desk.modules_to_save." in name for name in others)


def experiment_a_tuned_prompt_is_loaded_trainable_and_refuses_the_argument():
    from peft import PeftModel, PromptTuningConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    base, config = LlamaConfig(vocab_size=9, **sizes), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        get_peft_model(LlamaForCausalLM(base), config).save_pretrained(folder)
        refused = []
        for asked in (False, True):
            try:
                loaded = PeftModel.from_pretrained(LlamaForCausalLM(base), folder, is_trainable=asked)
            except ValueError as error:
                assert "Cannot set a prompt learning adapter to trainable when loading pretrained adapter" in str(error)
                refused.append(asked)
    assert refused == [True]
    assert [name.split(".")[0] for name, p in loaded.named_parameters() if p.requires_grad] == ["prompt_encoder"]


def experiment_train_mode_does_not_unfreeze():
    model, step = make()
    assert model.train().training and not step().requires_grad


def experiment_unfreezing_everything_trains_the_base_too():
    model, step = make()
    model.requires_grad_(True)
    assert any("lora_" not in name for name in moved(model, step))


def experiment_other_backward_errors_stay():
    _, step = make_fixed()
    loss = step()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        assert "backward through the graph a second time" in str(error)
    else:
        raise AssertionError("the second backward ran")


def learns(resume):
    model, step = program(resume)
    model.train()
    return step().requires_grad


def experiment_a_config_that_says_inference_makes_a_frozen_adapter():
    assert not learns(config_for_serving) and learns(lambda _: router())


def experiment_a_config_that_was_saved_says_inference_by_itself():
    assert not learns(config_of_monday) and learns(config_taken_back)
    name = "base_model.model.mix.lora_A.default.weight"
    with tempfile.TemporaryDirectory() as folder:
        saved, loaded, made = monday(folder), tuesday(folder), config_taken_back(folder)
    assert torch.equal(loaded.state_dict()[name], saved.state_dict()[name])
    assert not torch.equal(made.state_dict()[name], saved.state_dict()[name])


def experiment_an_adapter_may_be_frozen_where_it_is_switched_to():
    assert not learns(switched_for_serving) and learns(switched_back)
