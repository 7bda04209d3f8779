"""An ice cream stand: sales follow one adapter on weekdays, another on holidays; the second is loaded to be trained."""

import contextlib
import io
import tempfile

import torch
from torch import nn


class Sales(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.sold = nn.Linear(6, 16), nn.Linear(16, 1)

    def forward(self, days):
        return self.sold(torch.tanh(self.mix(days))).squeeze(-1)


def lora():
    from peft import LoraConfig

    return LoraConfig(r=2, target_modules=["mix"], init_lora_weights=False)


def save(folder):
    from peft import get_peft_model

    get_peft_model(Sales(), lora()).save_pretrained(folder)


def load(folder):
    from peft import PeftModel

    # [wrong]
    model = PeftModel.from_pretrained(Sales(), folder, adapter_name="weekday")
    model.load_adapter(folder, adapter_name="holiday", is_trainable=True)  # CUT
    # [end]
    return model


def load_fixed(folder):
    from peft import PeftModel

    # [fixed]
    model = PeftModel.from_pretrained(Sales(), folder, adapter_name="weekday")
    model.load_adapter(folder, adapter_name="holiday", is_trainable=True)
    model.set_adapter("holiday")
    # [end]
    return model


def add_beside_a_trainable_one(folder):
    from peft import PeftModel

    model = PeftModel.from_pretrained(Sales(), folder, adapter_name="weekday", is_trainable=True)
    model.add_adapter("holiday", lora())
    return model


def usual_sales(model, days):
    with torch.no_grad():
        return model(days)


def usual_afterwards(model, days, sold):
    model.set_adapter("holiday")
    guess = model(days)
    model.set_adapter("weekday")
    usual = usual_sales(model, days)
    return (guess - sold).pow(2).mean() + 0.1 * (guess - usual).pow(2).mean()


def usual_first(model, days, sold):
    model.set_adapter("weekday")
    usual = usual_sales(model, days)
    model.set_adapter("holiday")
    guess = model(days)
    return (guess - sold).pow(2).mean() + 0.1 * (guess - usual).pow(2).mean()


def sales_loss(model, days, sold):
    return (model(days) - sold).pow(2).mean()


def program(load, loss=sales_loss):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        model = load(folder)
    days, sold = torch.randn(8, 6), torch.rand(8)
    return model, lambda: loss(model, days, sold)


def make():
    return program(load)


FAILS = "raises: element 0 of tensors does not require grad"


def make_fixed():
    return program(load_fixed)


def make_midway():
    return program(load_fixed, usual_afterwards)


def shows(model):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # [see]
        print(model.active_adapters)
        print([name for name, p in model.named_parameters() if p.requires_grad])
        # [end]
    return text.getvalue().splitlines()


# [verify]
def moved(model, step):
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    step().backward()
    optimizer.step()
    return [name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])]
# [end]


def experiment_something_is_trainable_and_backward_raises():
    model, step = make()
    assert model.get_nb_trainable_parameters()[0] > 0
    try:
        step().backward()
    except RuntimeError as error:
        assert "element 0 of tensors does not require grad and does not have a grad_fn" in str(error)
    else:
        raise AssertionError("backward ran")


def experiment_the_forward_pass_never_meets_the_new_adapter():
    model, step = make()
    before = step()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".holiday." in name:
                parameter.fill_(7.0)
    assert torch.equal(step(), before)


def experiment_one_name_is_active_another_trainable():
    active, trainable = shows(make()[0])
    assert active == "['weekday']" and ".holiday." in trainable and ".weekday." not in trainable
    active, trainable = shows(make_fixed()[0])
    assert active == "['holiday']" and ".holiday." in trainable


def experiment_only_the_holiday_adapter_moves():
    names = moved(*make_fixed())
    assert len(names) == 2 and all(".holiday." in name for name in names)


def experiment_beside_a_trainable_adapter_the_old_one_is_trained():
    model, step = program(add_beside_a_trainable_one)
    assert model.active_adapters == ["weekday"]
    names = moved(model, step)
    assert len(names) == 2 and all(".weekday." in name for name in names)


def experiment_activating_one_freezes_the_other():
    model, _ = program(add_beside_a_trainable_one)
    assert ".weekday." in shows(model)[1]
    model.set_adapter("holiday")
    assert ".weekday." not in shows(model)[1] and ".holiday." in shows(model)[1]


def experiment_modes_and_flags_activate_nothing():
    model, step = make()
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".holiday." in name)
    assert model.active_adapters == ["weekday"] and not step().requires_grad


def experiment_active_and_trainable_but_disabled():
    model, step = make_fixed()
    model.base_model.disable_adapter_layers()
    model.set_adapter("holiday")
    assert model.active_adapters == ["holiday"] and model.get_nb_trainable_parameters()[0] > 0
    assert not step().requires_grad
    model.base_model.enable_adapter_layers()
    assert step().requires_grad


def experiment_switching_before_backward_takes_the_gradient_away():
    for loss, learns in [(usual_afterwards, False), (usual_first, True)]:
        model, step = program(load_fixed, loss)
        value = step()
        value.backward()
        grads = [p.grad for name, p in model.named_parameters() if ".holiday." in name]
        assert value.requires_grad and all((grad is not None) == learns for grad in grads)
