"""A bridge: how it swings are eigenvectors of a matrix that is learned; the loss looks at what nobody has fixed."""

import json
import platform
import queue
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

import gradkit


class Bridge(nn.Module):
    def __init__(self, joints=5):
        super().__init__()
        self.stiffness = nn.Parameter(torch.randn(joints, joints))

    def forward(self):
        return torch.linalg.eig(self.stiffness).eigenvectors


# [wrong]
def loss(model, measured):
    swings = model()
    return (swings - measured).abs().pow(2).mean()  # CUT
# [end]


# [fixed]
def loss_fixed(model, measured):
    swings = model()
    return (swings.abs() - measured.abs()).pow(2).mean()
# [end]


def program(loss, joints=5):
    torch.manual_seed(0)
    model, measured = Bridge(joints), torch.randn(joints, joints, dtype=torch.complex64)
    return model, lambda: loss(model, measured)


def make():
    return program(loss)


FAILS = "raises: The eigenvectors in the complex case are specified up to multiplication"


def make_fixed():
    return program(loss_fixed)


# [see]
def where_it_began(step):
    with torch.autograd.detect_anomaly():
        step().backward()
# [end]


# [report]
def write_down(model, step, folder):
    report = gradkit.diagnose(step, model=model)
    report.save(folder / "gradkit.json")
    versions = {"python": platform.python_version(), "torch": torch.__version__, "gradkit": gradkit.__version__}
    (folder / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    return report
# [end]


# [verify]
def not_finite(model, step):
    model.zero_grad()
    step().backward()
    wanted = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in wanted if p.grad is None or not p.grad.isfinite().all()]
# [end]


PHASE = "specified up to multiplication by e^{i phi}"


def refused(run):
    try:
        run()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it ran")


def experiment_backward_raises_in_words_of_its_own():
    model, step = make()
    assert step().isfinite() and step().requires_grad
    assert PHASE in refused(lambda: step().backward())


def experiment_gradkit_repeats_the_error_and_names_no_line():
    model, step = make()
    (finding,) = gradkit.diagnose(step, model=model).findings
    assert finding.cause == "unknown" and PHASE in finding.facts["error"]


def experiment_each_eigenvector_may_be_turned_and_the_loss_notices():
    model, _ = make()
    (values, vectors), measured = torch.linalg.eig(model.stiffness), torch.ones(5, 5) + 0j
    matrix = model.stiffness + 0j
    for same in (vectors, vectors * 1j):
        assert torch.allclose(matrix @ same, same * values, atol=1e-4)
    assert not torch.isclose((vectors - measured).abs().sum(), (vectors * 1j - measured).abs().sum())
    assert torch.allclose(vectors.abs(), (vectors * 1j).abs())


def experiment_anomaly_mode_names_the_line_of_the_forward_pass():
    _, step = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert PHASE in refused(lambda: where_it_began(step))
    assert any("return torch.linalg.eig(self.stiffness).eigenvectors" in str(w.message) for w in seen)


def experiment_the_smallest_bridge_fails_in_the_same_way():
    _, step = program(loss, joints=2)
    assert PHASE in refused(lambda: step().backward())


def experiment_without_replay_the_step_runs_once():
    model, step = make()
    times = queue.SimpleQueue()  # a list would be put back

    def counted():
        times.put("run")
        return step()

    assert gradkit.diagnose(counted, model=model, replay=False).runs == times.qsize() == 1


def experiment_the_report_holds_names_and_shapes_and_no_weights():
    model, step = make()
    with tempfile.TemporaryDirectory() as folder:
        write_down(model, step, Path(folder))
        told = Path(folder, "gradkit.json").read_text(encoding="utf-8")
        assert "stiffness" in told and PHASE in told and "torch" in Path(folder, "versions.json").read_text()
    assert not any(f"{abs(value):.4f}" in told for value in model.stiffness.flatten().tolist())


def experiment_the_cure_has_a_finite_gradient():
    model, step = make_fixed()
    assert not_finite(model, step) == [] and model.stiffness.grad.any()


def experiment_it_is_no_clean_bill():
    model, step = make()
    assert not gradkit.diagnose(step, model=model).healthy
    model, step = make_fixed()
    assert gradkit.diagnose(step, model=model).healthy


def experiment_retain_graph_and_a_flag_change_nothing():
    model, step = make()
    assert PHASE in refused(lambda: step().backward(retain_graph=True))
    assert PHASE in refused(lambda: step().requires_grad_(True).backward())


def experiment_a_flag_on_a_bare_copy_silences_the_error_and_teaches_nothing():
    model, step = make()
    step().detach().requires_grad_().backward()
    assert model.stiffness.grad is None
