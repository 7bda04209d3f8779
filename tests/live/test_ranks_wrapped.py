"""Programs on two processes whose models are wrapped: each wrapper is known, and one report names the rank and why."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from tests.programs.ranks import LOOP, SHARDED, SPLIT, STAGED, line, run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="torchrun with gloo")
SHARDS = pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="shards need a GPU with this torch")
NO_IMAGE = 'late and scene.pop("image")'
WRAPPED = "DistributedDataParallel(net)"


@SHARDS
def test_a_part_that_one_rank_of_a_sharded_model_leaves_out_is_told_with_the_condition(tmp_path: Path) -> None:
    status, said = run(tmp_path, SHARDED, batch=NO_IMAGE)
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 runs different parts of the sharded model from the other ranks") == 1
    assert "the batch of rank 1 lacks scene['image']" in said
    assert f"eye is called at train.py:{line(tmp_path, 'self.eye(scene')}" in said
    assert f"by the condition at train.py:{line(tmp_path, 'in scene:')}" in said
    assert "on rank 1 it is not given" in said


@SHARDS
def test_a_placeholder_that_counts_nothing_cures_a_sharded_model(tmp_path: Path) -> None:
    stands_in = 'net.forward = lambda scene: net.tell(net.ear(scene["sound"]) + (\n'
    stands_in += '    net.eye(scene["image"]) if "image" in scene else 0 * net.eye(torch.zeros(4, 6))))\n'
    status, said = run(tmp_path, stands_in + SHARDED, batch=NO_IMAGE)
    assert (status, said.count("gradkit")) == (0, 1)
    assert "6 optimizer steps, nothing to report" in said


@SHARDS
def test_a_nan_that_one_rank_of_a_sharded_model_makes_is_found_where_it_is_made(tmp_path: Path) -> None:
    status, said = run(tmp_path, SHARDED, forward="guess = guess / 0 * 0 if late else guess")
    assert status == 0
    assert "gradkit: rank 1 of 2 has a fault that the others do not have" in said
    at = f"\n  --> train.py:{line(tmp_path, 'guess / 0 * 0')}"
    assert f"error[nan_gradient]: the gradient of 6 parameters is nan or infinite{at}" in said
    assert "(all 131 values that should train)" in said
    assert "nothing to report" not in said


@SHARDS
def test_a_rank_of_a_sharded_model_that_detaches_its_output_is_named_with_the_line(tmp_path: Path) -> None:
    status, said = run(tmp_path, SHARDED, forward="guess = guess.detach() if late else guess")
    assert status == 1
    assert "gradkit: rank 1 of 2 raised an error" in said
    at = f"\n  --> train.py:{line(tmp_path, 'guess.detach()')}"
    assert f"error[detach]: detach() takes the value out of the graph of 6 parameters{at}" in said
    assert "proven: in a rerun without it, 6 parameters get a gradient" in said
    assert "copies from an earlier step" in said


@SHARDS
def test_a_rank_of_a_sharded_model_that_detaches_one_part_is_named_before_a_backward_crashes(tmp_path: Path) -> None:
    cuts = "seen = net.eye(scene['image'])\n        if rank == 1 and late: seen = seen.detach()\n"
    forward = "class Cuts(Describer):\n    def forward(self, scene):\n        " + cuts
    forward += "        return self.tell(self.ear(scene['sound']) + seen)\nlate, net.__class__ = False, Cuts\n"
    status, said = run(tmp_path, forward + SHARDED)
    assert status == 1
    assert said.count("gradkit: rank 1 of 2 has a fault that the others do not have") == 1
    assert f"--> train.py:{line(tmp_path, 'seen.detach()')}" in said
    assert "= no gradient: eye.weight, eye.bias" in said
    assert "proven: in a rerun without it, 2 parameters get a gradient" in said


@SHARDS
def test_a_part_of_a_sharded_model_that_is_frozen_on_one_rank_only_is_named_with_its_line(tmp_path: Path) -> None:
    status, said = run(tmp_path, "rank == 1 and net.eye.requires_grad_(False)\n" + SHARDED)
    assert status == 1
    assert "gradkit: rank 1 of 2 trains different parameters from the others" in said
    assert f"froze them at train.py:{line(tmp_path, 'net.eye.requires_grad_(False)')}" in said


def test_a_static_graph_that_changes_on_one_rank_is_explained(tmp_path: Path) -> None:
    loop = LOOP.replace(WRAPPED, "DistributedDataParallel(net, static_graph=True)")
    status, said = run(tmp_path, loop, batch=NO_IMAGE)
    assert status == 1
    assert "gradkit: rank 1 of 2 raised an error" in said
    assert "image is taken out here" in said


def _under_join(loop: str, ends: str) -> str:
    loop = loop.replace("for number in range(6):", f"with Join([model]):\n  for number in range({ends}):")
    return "from torch.distributed.algorithms.join import Join\n" + loop.replace("\n    ", "\n      ")


def test_a_part_that_one_rank_leaves_out_under_join_is_told_with_its_cause(tmp_path: Path) -> None:
    status, said = run(tmp_path, _under_join(LOOP, "6 - 2 * rank"), batch=NO_IMAGE)
    assert status == 1
    assert "gradkit: rank 1 of 2" in said  # which of the two errors comes first is a race
    assert "the batch of rank 1 lacks scene['image']" in said
    assert "error[trainable_unused]: 2 parameters" in said
    assert "= no gradient: eye.weight, eye.bias" in said
    assert "zero: loss + 0 * sum(p.sum()" in said


def test_a_compiled_wrapper_and_uneven_ends_under_join_are_sound(tmp_path: Path) -> None:
    loop = LOOP.replace(WRAPPED, 'torch.compile(DistributedDataParallel(net), backend="eager")')
    loop = _under_join(loop, "6 - 2 * rank").replace("Join([model])", "Join([model._orig_mod])")
    status, said = run(tmp_path, loop)
    assert status == 0
    assert said.count("gradkit") == said.count("nothing to report") > 0


def test_a_rank_of_a_model_split_over_ranks_that_raises_is_named_beside_those_that_wait(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.tensor.parallel")
    status, said = run(tmp_path, SPLIT, batch='assert not late, "this shard is broken"')
    assert status == 1
    assert f"rank 1: train.py:{line(tmp_path, 'this shard is broken')} raised AssertionError" in said
    assert re.search(r"rank 0: waits at train.py:\d+", said)
    assert "do not require grad" not in said


def test_a_stage_of_a_pipeline_that_raises_is_named_and_stages_are_not_compared(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.pipelining")
    status, said = run(tmp_path, STAGED, batch='assert not late, "this stage is broken"')
    assert status == 1
    assert f"rank 1: train.py:{line(tmp_path, 'this stage is broken')} raised AssertionError" in said
    assert "stages of a pipeline" in said
    assert "lacks" not in said


def test_a_stage_of_a_pipeline_that_cuts_its_input_off_from_one_step_on_is_told(tmp_path: Path) -> None:
    stage = pytest.importorskip("torch.distributed.pipelining.stage")
    if not hasattr(stage._PipelineStageBase, "_get_grad_send_meta"):
        pytest.skip("this torch does not know which inputs of a stage require grad")
    status, said = run(tmp_path, STAGED, forward="guess = guess.detach() if late else guess")
    assert status == 0
    assert said.count("gradkit: rank 1 of 2 hands back no gradient") == 1
    assert "in 3 steps in a row, the input of stage 1 of the pipeline got no gradient" in said
    assert "nothing to report" not in said
