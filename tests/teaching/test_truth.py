"""General sentences of guides, beliefs and lessons, run against right programs that were made to refute them.

`tests/awkward.py` holds the programs. What a guide tells its readers to run accuses none of them; and a sentence that
one of them refuted stands on no page any more.
"""
# ruff: noqa: RUF001  commas of Chinese

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradkit
from gradkit.core import causes
from gradkit.teaching import book
from gradkit.teaching import claim as teaching_claim
from gradkit.teaching.guide import load_case
from tests.awkward import AWKWARD, Built

REPO = Path(__file__).parents[2]
SUSPECTS = (
    "starved",
    "never_called",
    "no_signal",
    "not_finite",
    "idle",
)  # list names, of which a right program has none

each_program = pytest.mark.parametrize("name", AWKWARD)


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def built(name: str) -> Built:
    torch.manual_seed(0)
    return AWKWARD[name]()


def learning(model: nn.Module, step: Callable[[], torch.Tensor]) -> set[str]:
    """Who has a gradient that is finite and not all zero."""
    model.zero_grad()
    step().backward()
    named = ((name, p.grad) for name, p in model.named_parameters() if p.requires_grad)
    return {name for name, grad in named if grad is not None and bool(grad.any()) and bool(grad.isfinite().all())}


def trainable(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


@each_program
def test_every_parameter_of_an_awkward_program_that_may_train_learns(name: str) -> None:
    model, step = built(name)
    assert learning(model, step) == trainable(model) != set()


@each_program
def test_an_awkward_program_gets_a_clean_bill(name: str) -> None:
    model, step = built(name)
    report = gradkit.diagnose(step, model=model)
    assert report.findings == ()
    assert report.healthy


def told_to_run() -> Iterator[Any]:
    """What guides tell their readers to run, which lists suspects by name."""
    for cause in causes.causes():
        for name in SUSPECTS:
            if run := vars(load_case(cause)).get(name):
                assert list(inspect.signature(run).parameters) == ["model", "step"]
                yield pytest.param(run, id=f"{cause}-{name}")


@pytest.mark.parametrize("run", [*told_to_run()])
def test_what_a_guide_has_its_readers_run_accuses_no_right_program(run: Callable[..., list[str]]) -> None:
    accused = {name: run(*built(name)) for name in AWKWARD}
    assert {name: found for name, found in accused.items() if found} == {}


def test_what_is_kept_between_the_steps_of_a_right_program_has_no_history() -> None:
    listed = load_case("double_backward").kept_with_history
    for name in AWKWARD:
        model, step = built(name)
        step()
        assert listed(model) == [], name


# -- what the rows of a belief say beside its verdict -----------------------------------------------------------


def seen(name: str) -> dict[str, Any]:
    return {row.key: eval(row.seen) for row in teaching_claim.claim(name, "en").run().rows}


def test_eval_mode_keeps_less_only_where_a_layer_does_less() -> None:
    kept = seen("eval_saves_memory")
    assert kept["kept_in_train"] == kept["kept_in_eval"] > kept["kept_under_no_grad"] == 0
    for layer in ("dropout", "batch_norm"):
        assert kept[f"kept_in_train_with_{layer}"] > kept[f"kept_in_eval_with_{layer}"] > 0


def test_a_block_round_frozen_layers_saves_memory_only_where_it_costs_a_gradient() -> None:
    kept = seen("no_grad_round_a_frozen_encoder")
    assert kept["kept_without_a_layer_before"] == 0 < kept["kept_with_a_layer_before"]
    assert not kept["layer_before_gets_gradient"]
    assert kept["layer_before_gets_gradient_without_the_block"]


def test_elements_that_are_equally_large_share_the_gradient_of_max_or_one_gets_it() -> None:
    ties = seen("max_has_no_gradient")
    assert ties["gradient_of_a_tie"] == [0.5, 0.5, 0.0]
    assert sorted(ties["gradient_of_a_tie_by_dim"]) == [0.0, 0.0, 1.0]


def test_what_a_saved_config_says_does_not_decide_whether_the_loaded_adapter_trains() -> None:
    assert seen("adapter_loads_frozen")["trainable_where_the_file_says_otherwise"] == 0


# -- what reports and lessons say of a program ------------------------------------------------------------------


def test_a_zero_behind_a_relu_that_is_shut_is_not_excused_as_that_of_a_fresh_adapter() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(6, 4)
    nn.init.constant_(model[0].bias, -100.0)
    checked = gradkit.verify(lambda: (model(x) - 1).square().mean(), model=model)
    assert "what comes before a ReLU that is shut for every example does not" in checked.text()
    assert "if other batches do no better, that does not learn" in checked.report.text()


def test_a_verdict_on_zero_gradients_sends_nobody_past_a_loop_that_can_not_skip() -> None:
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    said = gradkit.diagnose(lambda: model(x).sum() * 0.0, model=model).text()
    assert "skip it where the loop lets you" in said


def test_the_guide_to_nan_and_its_report_know_of_masked_rows() -> None:
    torch.manual_seed(0)
    look, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)
    hidden = torch.tensor([[False, False, False], [True, True, True]])
    report = gradkit.diagnose(lambda: look(x, x, x, key_padding_mask=hidden)[0][0].square().sum(), model=look)
    assert [one.cause for one in report.findings] == ["nan_gradient"]
    assert "leave each row a place that is not masked" in report.text()


@pytest.mark.parametrize(("language", "says"), [("en", "The program is rebuilt."), ("zh", "这里的程序是重建的。")])
def test_the_vision_memory_says_that_it_is_rebuilt(language: str, says: str) -> None:
    assert says in book.read_book("cases/vision_memory")[0].says(language)


def gradient_of_a_generator(judged: Callable[[torch.Tensor], torch.Tensor], *, emptied: bool = False) -> torch.Tensor:
    """What a generator learns where the discriminator's loss, before its own, is given what ``judged`` makes."""
    torch.manual_seed(0)
    maker, judge, noise, real = nn.Linear(4, 8), nn.Linear(8, 1), torch.randn(16, 4), torch.randn(16, 8)
    (nn.functional.softplus(-judge(real)) + nn.functional.softplus(judge(judged(maker(noise))))).mean().backward()
    if emptied:
        maker.zero_grad()
    nn.functional.softplus(-judge(maker(noise))).mean().backward()
    assert maker.weight.grad is not None
    return maker.weight.grad


def test_a_loss_that_should_not_teach_gets_a_detached_value_also_where_all_is_computed_again() -> None:
    right = gradient_of_a_generator(lambda fake: fake, emptied=True)
    assert torch.equal(gradient_of_a_generator(torch.Tensor.detach), right)
    assert torch.cosine_similarity(gradient_of_a_generator(lambda fake: fake).flatten(), right.flatten(), dim=0) < 0


@pytest.mark.parametrize(
    ("language", "says"),
    [
        ("en", "give its detach() to a loss that is not"),
        ("zh", "不该训练它们的损失（例如判别器的损失），则改用它的 detach()"),
    ],
)
def test_of_one_picture_for_two_losses_a_report_says_which_of_them_detaches_it(language: str, says: str) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"maker": nn.Linear(4, 8), "judge": nn.Linear(8, 1)})
    noise = torch.randn(16, 4)

    def step() -> torch.Tensor:
        fake = model["maker"](noise)
        nn.functional.softplus(model["judge"](fake)).mean().backward()
        return nn.functional.softplus(-model["judge"](fake)).mean()

    report = gradkit.diagnose(step, model=model)
    assert [one.cause for one in report.findings] == ["double_backward"]
    assert says in " ".join(report.text(language).split())


class Elsewhere(torch.Tensor):
    """A tensor as of a GPU: NumPy gets nothing of it before it is brought to the CPU."""

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_the_function_that_computes_in_numpy_brings_its_numbers_to_the_cpu_first() -> None:
    function = load_case("numpy_roundtrip").CumSum
    values = torch.arange(3.0).as_subclass(Elsewhere)
    with pytest.raises(TypeError):
        values.numpy()
    assert function.forward(None, values).tolist() == [0.0, 1.0, 3.0]
    assert function.backward(None, values).tolist() == [3.0, 3.0, 2.0]


def of_torch() -> Iterator[type[torch.optim.Optimizer]]:
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
            yield kind


def moves_what_has_no_gradient(kind: Any) -> bool:
    """It sees a gradient of two tensors for three steps, and then of one alone."""
    seen, idle, factor = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2)), torch.arange(4.0).view(2, 2)
    optimizer = kind([seen, idle], lr=0.01)

    def closure(other: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (seen * factor + other).pow(4).sum()
        loss.backward()
        for p in (seen, idle) if kind is torch.optim.SparseAdam else ():
            p.grad = None if p.grad is None else p.grad.to_sparse()
        return loss

    for other in (idle, idle, idle, None):
        before = idle.detach().clone()
        run = functools.partial(closure, idle.detach() if other is None else other)
        run()
        optimizer.step(*([run] if kind is torch.optim.LBFGS else []))
    return idle.grad is None and not torch.equal(idle, before)


def optimizers_that_move_what_has_no_gradient() -> set[str]:
    return {kind.__name__ for kind in of_torch() if moves_what_has_no_gradient(kind)}


def test_of_all_optimizers_lbfgs_alone_moves_what_has_no_gradient() -> None:
    assert optimizers_that_move_what_has_no_gradient() == {"LBFGS"}


# -- sentences that are withdrawn -------------------------------------------------------------------------------


def a_layer_before_the_block() -> bool:
    before, frozen, head = nn.Linear(4, 8), nn.Linear(8, 4).requires_grad_(False), nn.Linear(4, 1)
    hidden = before(torch.randn(3, 4))
    with torch.no_grad():
        hidden = frozen(hidden)
    head(hidden).mean().backward()
    return before.weight.grad is None


def a_result_that_keeps_its_flag() -> bool:
    weight = nn.Parameter(torch.ones(3))
    with torch.no_grad():
        return weight.to(weight.dtype).requires_grad and weight.view(-1).requires_grad


def slopes(function: Callable[[torch.Tensor], torch.Tensor], *values: float) -> list[float]:
    x = torch.tensor(values, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    return list(x.grad.tolist())


def names_of(program: str) -> set[str]:
    return trainable(built(program)[0])


def not_called(program: str) -> set[str]:
    model, step = built(program)
    called = set[str]()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: called.add(name))
    step()
    return {name for name, _ in model.named_modules()} - called


def learns(program: str) -> bool:
    model, step = built(program)
    return learning(model, step) == trainable(model)


def one_process_raises() -> bool:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.ModuleDict({"used": nn.Linear(2, 2), "idle": nn.Linear(2, 2)}))
    vars(model.module)["forward"] = lambda x: model.module["used"](x)
    model(torch.randn(2, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="Expected to have finished reduction"):
        model(torch.randn(2, 2))
    return True


def a_masked_row_that_is_zeros() -> bool:
    look, words = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(1, 3, 4)
    out, _ = look(words, words, words, key_padding_mask=torch.ones(1, 3, dtype=torch.bool), need_weights=False)
    return bool(out.isfinite().all())


def a_loss_module_with_weights() -> bool:
    return any(True for _ in nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3]).parameters())


def a_tensor_that_counts_nothing() -> bool:
    with torch.inference_mode():
        value = torch.zeros(1)
    with pytest.raises(RuntimeError, match="do not track version counter"):
        value._version  # noqa: B018
    return True


def a_number_below_bfloat16() -> bool:
    return torch.tensor(1e-42).item() > 0 == torch.tensor(1e-42, dtype=torch.bfloat16).item()


@dataclass(frozen=True)
class Withdrawn:
    """A sentence, or the part of it that made it false, in both languages; and what refutes it."""

    english: str
    chinese: str
    refuted: Callable[[], bool]

    def __str__(self) -> str:
        return self.english


def a_config_that_does_not_decide() -> bool:
    return bool(seen("adapter_loads_frozen")["trainable_where_the_file_says_otherwise"] == 0)


def a_function_that_is_flat_on_a_side() -> bool:
    return slopes(torch.relu, -0.5) + slopes(lambda x: x.clamp(0, 5), -2.0, 7.0) == [0.0, 0.0, 0.0]


def less_that_is_kept() -> bool:
    kept = seen("eval_saves_memory")
    return bool(kept["kept_in_eval_with_dropout"] < kept["kept_in_train_with_dropout"])


def a_block_that_saves_nothing() -> bool:
    return bool(seen("no_grad_round_a_frozen_encoder")["kept_without_a_layer_before"] == 0)


def a_layer_that_refuses_after_eval() -> bool:
    return teaching_claim.claim("any_layer_trains_in_eval", "en").run().verdict == "false"


def predictions_of_what_is_detached() -> bool:
    return all(map(learns, ["a_gan_step", "truncated_bptt", "a_straight_through_estimate"]))


def an_argmax_on_the_way_to_the_loss() -> bool:
    return learns("a_mixture_of_experts")


def other_names_of_what_an_adapter_trains() -> bool:
    saved, prompt = names_of("an_adapter_with_modules_to_save"), names_of("prompt_tuning")
    return any("modules_to_save" in name for name in saved) and not any("lora_" in name for name in prompt)


def layers_that_learn_without_being_called() -> bool:
    name = "attention_whose_projection_is_never_called"
    return learns(name) and not_called(name) == {"blocks", "blocks.0.out_proj", "blocks.1.out_proj"}


def a_tie() -> bool:
    return bool(max(seen("max_has_no_gradient")["gradient_of_a_tie"]) < 1)


def a_norm_that_is_logged_before_the_step() -> bool:
    model, x = nn.Linear(4, 1), torch.randn(6, 4)
    before, optimizer = model.weight.detach().clone(), torch.optim.SGD(model.parameters(), lr=0.1)
    (model(x) - 1).square().mean().backward()
    logged = [float(p.grad.norm()) for p in model.parameters() if p.grad is not None]
    optimizer.step()
    return len(logged) == 2 and not torch.equal(model.weight, before)


def a_layer_that_is_added_with_its_group() -> bool:
    model, x = nn.Sequential(nn.Linear(4, 4)), torch.randn(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.append(nn.Linear(4, 1))
    optimizer.add_param_group({"params": model[1].parameters()})
    report = gradkit.diagnose(lambda: (model(x) - 1).square().mean(), model=model, optimizer=optimizer)
    return report.healthy and report.findings == ()


def a_copy_without_history_made_otherwise() -> bool:
    x = torch.ones(3, requires_grad=True)
    copy = torch.empty_like(x).copy_(x.data).detach()
    return copy.grad_fn is None and not copy.requires_grad and copy.data_ptr() != x.data_ptr()


def an_update_by_hand_without_a_block() -> bool:
    weight = nn.Parameter(torch.ones(3))
    weight.data -= 0.5
    return bool(weight.eq(0.5).all()) and weight.is_leaf


def a_prompt_that_is_loaded_trainable() -> bool:
    import tempfile

    from peft import PeftModel
    from transformers import LlamaConfig, LlamaForCausalLM

    model, _ = built("prompt_tuning")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = PeftModel.from_pretrained(LlamaForCausalLM(LlamaConfig(vocab_size=20, **sizes)), folder).train()
    return any(p.requires_grad for p in loaded.parameters())


def another_layer_that_keeps_less_in_eval_mode() -> bool:
    def kept(layer: nn.Module) -> int:
        seen: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: seen.append(x.nbytes) or x, lambda x: x):
            layer(torch.randn(4, 2, 8, requires_grad=True))
        return sum(seen)

    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    return kept(layer) > kept(layer.eval())


def a_way_past_the_detach() -> bool:
    before, head, x = nn.Linear(3, 3), nn.Linear(3, 1), torch.ones(2, 3)
    hidden = before(x)
    (head(hidden.detach().exp_()) + hidden.mean()).sum().backward()
    return before.weight.grad is not None


def a_leaf_that_is_written_into() -> bool:
    pad, weight = torch.zeros(3), torch.ones(3, requires_grad=True)
    pad.add_(1)
    (pad * weight).sum().backward()
    return weight.grad is not None


def a_mode_that_enable_grad_does_not_end() -> bool:
    weight = torch.ones(3, requires_grad=True)
    with torch.inference_mode(), torch.enable_grad():
        return not (weight * 2).requires_grad


def a_tensor_in_the_middle_that_keeps_its_gradient() -> bool:
    middle = torch.ones(3, requires_grad=True) * 2
    middle.retain_grad()
    middle.sum().backward()
    return middle.grad is not None and not middle.is_leaf


def refuting(program: str) -> Callable[[], bool]:
    return functools.partial(learns, program)


WITHDRAWN = [
    Withdrawn("something frozen costs nobody a gradient", "谁也不会因此丢掉梯度", a_layer_before_the_block),
    Withdrawn("does what that file says", "`from_pretrained` 照此办理", a_config_that_does_not_decide),
    Withdrawn("and loading follows it", "加载时照此办理", a_config_that_does_not_decide),
    Withdrawn(
        "`clamp` and `frac` have a slope on either side",
        "`clamp`、`frac` 在两侧都有斜率",
        a_function_that_is_flat_on_a_side,
    ),
    Withdrawn("just as many tensors are kept", "保存的张量一个也不少", less_that_is_kept),
    Withdrawn("(it saves memory) unless", "这个块能省内存", a_block_that_saves_nothing),
    Withdrawn("block only saves memory", "块只是节省内存", a_block_that_saves_nothing),
    Withdrawn("On one machine the same net trains", "放在单机上训练，一切正常", one_process_raises),
    Withdrawn(
        "Every gradient arrives in eval mode", "在 eval 模式下，梯度一个也不会少", a_layer_that_refuses_after_eval
    ),
    Withdrawn("whatever went in", "不管输入是什么，算出来的结果一律", a_result_that_keeps_its_flag),
    Withdrawn("but never into the prediction", "绝不进入预测", predictions_of_what_is_detached),
    Withdrawn("left in metrics and predictions only", "只出现在指标和预测里", an_argmax_on_the_way_to_the_loss),
    Withdrawn(
        "only parameters with `lora_` in their names",
        "只有名字里带 `lora_` 的参数",
        other_names_of_what_an_adapter_trains,
    ),
    Withdrawn(
        "each layer of `__init__` appears in `forward`",
        "`__init__` 里的每一层都出现在 `forward` 里",
        layers_that_learn_without_being_called,
    ),
    Withdrawn("that element gets the whole gradient", "梯度也全部归它", a_tie),
    Withdrawn(
        "no layer with weights and no `nn.Parameter` is made in `forward` or in what it calls",
        "`forward` 以及它调用的函数里，不创建带权重的层，也不创建 `nn.Parameter`",
        refuting("a_parameter_of_the_first_pass"),
    ),
    Withdrawn(
        "`nn.Parameter(...)` stands in `__init__`, never in `forward`",
        "`nn.Parameter(...)` 只出现在 `__init__` 里，绝不出现在 `forward` 里",
        refuting("a_parameter_of_the_first_pass"),
    ),
    Withdrawn(
        "`nn.Parameter(...)` stands in `__init__`, and holds numbers that were not computed from any parameter",
        "`nn.Parameter(...)` 只出现在 `__init__` 里，而且其中的数值不是由别的参数算来的",
        refuting("a_copy_of_a_weight_to_begin_with"),
    ),
    Withdrawn(
        "trainable weights is kept from step to step. In a run",
        "都不会留到下一步。跑一次",
        refuting("a_queue_of_earlier_keys"),
    ),
    Withdrawn(
        "each gradient that goes into a loss is asked for with `create_graph=True`",
        "凡是还要进入损失的梯度，求的时候都写了 `create_graph=True`",
        refuting("meta_learning_of_first_order"),
    ),
    Withdrawn(
        "between `backward()` and `step()` stand only `unscale_()` and clipping, with a bound above 0",
        "`backward()` 和 `step()` 之间只有 `unscale_()` 和裁剪，裁剪的上限大于 0",
        a_norm_that_is_logged_before_the_step,
    ),
    Withdrawn(
        "nothing on the way to the loss runs in an `inference_mode` block or under such a decorator",
        "通往损失的路上，没有 `inference_mode` 代码块，也没有这样的装饰器",
        refuting("a_frozen_encoder_in_inference_mode"),
    ),
    Withdrawn(
        "from the moment a value is made until `backward()`, nothing writes into it",
        "从算出一个值到 `backward()` 之间，没有任何代码改写它",
        refuting("a_relu_in_place"),
    ),
    Withdrawn(
        "`requires_grad` is set on parameters and on inputs, never on what the model computed",
        "`requires_grad` 只设在参数和输入上，绝不设在模型算出来的值上",
        refuting("a_gradient_penalty"),
    ),
    Withdrawn(
        "no function that the loss goes through is decorated",
        "通往损失的函数都没有这类装饰器",
        refuting("a_teacher_under_a_decorator"),
    ),
    Withdrawn(
        "every branch that returns the loss ends in a mean or a sum over the batch",
        "每条返回损失的分支，最后都在批次上求了平均或求和",
        refuting("the_worst_example_softly"),
    ),
    Withdrawn(
        "NumPy is used only for inputs, targets, logs and plots",
        "NumPy 只用于输入、目标值、日志和绘图",
        refuting("hard_examples_chosen_in_numpy"),
    ),
    Withdrawn(
        "nothing adds or replaces a parameter once the optimizer is built",
        "优化器创建之后，不再添加或替换任何参数",
        a_layer_that_is_added_with_its_group,
    ),
    Withdrawn(
        "no `.item()`, `.tolist()`, `float()` or `math.` between the model and the loss",
        "从模型到损失之间，没有 `.item()`、`.tolist()`、`float()` 和 `math.`",
        refuting("terms_that_are_balanced_by_their_size"),
    ),
    Withdrawn(
        "no plain list, dict or tensor in `__init__` holds what should learn",
        "`__init__` 里，需要学习的东西没有放在普通的列表、字典或张量里",
        refuting("layers_that_a_list_names_once_more"),
    ),
    Withdrawn(
        "each `round`, `sign` and `floor` on the way to the loss is written in this way",
        "通往损失的路上，每个 `round`、`sign`、`floor` 都采用这种写法",
        refuting("a_remainder_after_floor"),
    ),
    Withdrawn("claims is proven by the cell below it", "都由紧跟其后的单元格来证明", a_function_that_is_flat_on_a_side),
    Withdrawn("experiments that hold every claim", "支撑每个结论的实验", a_function_that_is_flat_on_a_side),
    Withdrawn("`argmax` only for metrics", "`argmax` 只用来算指标", an_argmax_on_the_way_to_the_loss),
    Withdrawn(
        "Only `clone().detach()` and `detach().clone()` do both",
        "只有 `clone().detach()` 和 `detach().clone()` 才两样都做",
        a_copy_without_history_made_otherwise,
    ),
    Withdrawn(
        "Only updates that you write by hand need the block",
        "只有自己手写更新时，才需要这个块",
        an_update_by_hand_without_a_block,
    ),
    Withdrawn(
        "answer: Nothing is trainable after that call",
        "answer: 调用之后仍然没有任何可训练的参数",
        a_prompt_that_is_loaded_trainable,
    ),
    Withdrawn("It freezes the weights unless", "是什么，权重都会被冻结", a_prompt_that_is_loaded_trainable),
    Withdrawn(
        "only what dropout and batch norm keep while they train falls away",
        "少掉的只是 dropout 和 batch norm 训练时才要保存的那一点",
        another_layer_that_keeps_less_in_eval_mode,
    ),
    Withdrawn(
        "so does the gradient: what comes before learns nothing",
        "梯度也没了：前面的部分什么都学不到",
        a_way_past_the_detach,
    ),
    Withdrawn(
        "what backward still needs, or a leaf; otherwise", "或者改写了叶子张量，才会", a_leaf_that_is_written_into
    ),
    Withdrawn(
        "Whatever was set outside is overwritten inside",
        "不论外层怎么设，到了里层都会改掉",
        a_mode_that_enable_grad_does_not_end,
    ),
    Withdrawn(
        "Only leaves (parameters, tensors that you made with `requires_grad=True`) keep `.grad`",
        "只有叶子张量（参数，以及你用 `requires_grad=True` 创建的张量）才保存 `.grad`",
        a_tensor_in_the_middle_that_keeps_its_gradient,
    ),
    Withdrawn(
        "An optimizer passes over every parameter whose",
        "的参数，优化器一概跳过",
        lambda: optimizers_that_move_what_has_no_gradient() != set(),
    ),
    Withdrawn(
        "`MultiheadAttention` makes `nan` of it, and",
        "`MultiheadAttention` 会算出 `nan`",
        a_masked_row_that_is_zeros,
    ),
    Withdrawn("or a loss module in `forward` is harmless", "或损失模块没有问题", a_loss_module_with_weights),
    Withdrawn(
        "Only floating point tensors can require grad",
        "只有浮点张量才能有梯度",
        lambda: torch.zeros(1, dtype=torch.complex64, requires_grad=True).requires_grad,
    ),
    Withdrawn(
        "Every tensor counts how often it was written to", "每个张量都记着自己被写过几次", a_tensor_that_counts_nothing
    ),
    Withdrawn("it reaches as far down as full precision", "它能表示的最小数量级与全精度相同", a_number_below_bfloat16),
    Withdrawn(
        "compute it again in each step for each loss:",
        "在每一步里为每个损失重新计算这个值：",
        lambda: bool((gradient_of_a_generator(lambda x: x) * gradient_of_a_generator(torch.Tensor.detach)).sum() < 0),
    ),
    Withdrawn("never a value on the way to the loss", "通往损失的数值不要转", refuting("a_remainder_after_floor")),
]


@functools.cache
def pages() -> dict[str, str]:
    """Every text that a reader is given."""
    texts = [*REPO.glob("*.md"), *REPO.glob("docs/*.md")]
    for folder, pattern in [("teaching", "*.md"), ("teaching/books", "*.py"), ("locales", "*.toml"), ("cases", "*.py")]:
        texts += (REPO / "gradkit" / folder).rglob(pattern)
    return {str(path.relative_to(REPO)): re.sub(r"\s+", " ", path.read_text(encoding="utf-8")) for path in texts}


@pytest.mark.parametrize("sentence", WITHDRAWN, ids=str)
def test_what_refuted_a_sentence_refutes_it_still(sentence: Withdrawn) -> None:
    assert sentence.refuted()


@pytest.mark.parametrize("sentence", WITHDRAWN, ids=str)
def test_a_sentence_that_was_refuted_stands_on_no_page(sentence: Withdrawn) -> None:
    said = (sentence.english, sentence.chinese)
    assert [path for path, text in pages().items() if any(part in text for part in said)] == []
