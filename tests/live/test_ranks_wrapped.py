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


def test_a_static_graph_that_changes_on_one_rank_is_explained(tmp_path: Path) -> None:
    loop = LOOP.replace(WRAPPED, "DistributedDataParallel(net, static_graph=True)")
    status, said = run(tmp_path, loop, batch=NO_IMAGE)
    assert status == 1
    assert "gradkit: rank 1 of 2 raised an error" in said
    assert "image is not given here" in said


def test_a_compiled_wrapper_and_uneven_ends_under_join_are_sound(tmp_path: Path) -> None:
    loop = LOOP.replace(WRAPPED, 'torch.compile(DistributedDataParallel(net), backend="eager")')
    loop = loop.replace("for number in range(6):", "with Join([model]):\n  for number in range(6 - 2 * rank):")
    loop = "from torch.distributed.algorithms.join import Join\n" + loop.replace("\n    ", "\n      ")
    loop = loop.replace("Join([model])", "Join([model._orig_mod])")
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
