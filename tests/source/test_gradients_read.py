"""What a program does by itself with the gradient of something that it holds under a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradkit.source import gradients_read

READ = {
    "an attribute's gradient": "step(net.u.grad)",
    "by way of a variable": "u = net.u\nstep(u.grad)",
    "in a loop": "for p in [net.u, net.v]:\n    p.data -= p.grad",
    "an entry's": "step(net.u[0].grad)",
    "asked for": "torch.autograd.grad(loss, [net.u])",
    "handed to an optimizer": "torch.optim.SGD([*net.parameters(), net.u])",
    "added to a group": "optimizer.add_param_group({'params': net.u})",
    "silenced": "loss = loss + 0 * net.u.sum()",
}
LEFT = {
    "another's gradient": "step(net.v.grad)",
    "a variable of that name": "u = net(x)\ntorch.autograd.grad(u, x)",
    "only used": "loss = (net.u * x).sum()\nloss.backward()",
    "the model's parameters": "for p in net.parameters():\n    step(p.grad)",
}


def is_read(text: str, folder: Path, name: str = ".u") -> bool:
    file = folder / "program.py"
    file.write_text(text)
    return gradients_read.is_read([str(file)], name)


@pytest.mark.parametrize("name", READ)
def test_what_is_done_with_a_gradient_is_seen(name: str, tmp_path: Path) -> None:
    assert is_read(READ[name], tmp_path)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_others_is_told_apart(name: str, tmp_path: Path) -> None:
    assert not is_read(LEFT[name], tmp_path)


def test_a_variable_is_told_by_its_bare_name(tmp_path: Path) -> None:
    assert is_read("print(probe.grad)", tmp_path, "probe")
