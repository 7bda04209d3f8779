"""Programs on several processes: one rank goes wrong, and one report names it, its line and what the others do."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.programs.ranks import LOOP, line, run, run_on_two_machines

pytestmark = pytest.mark.skipif(os.name != "posix", reason="torchrun with gloo")


def test_sound_ranks_say_nothing_but_that(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP)
    assert status == 0
    assert "6 optimizer steps, nothing to report" in said
    assert said.count("gradkit") == 1


def test_the_rank_whose_batch_has_no_image_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, batch='late and scene.pop("image")')
    assert status == 1
    assert said.count("gradkit: rank 1 of 2") == 1
    assert f"train.py:{line(tmp_path, 'guess = model(scene)')}" in said
    assert "image is taken out here" in said
    assert "zero: loss + 0 * sum(p.sum()" in said


def test_the_line_that_detaches_on_one_rank_is_named_and_proven(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, forward="guess = guess.detach() if late else guess")
    assert status == 1
    assert "gradkit: rank 1 of 2 raised an error" in said
    assert f"--> train.py:{line(tmp_path, 'guess.detach()')}" in said
    assert "= no gradient: eye.weight, eye.bias" in said
    assert "proven: in a rerun without it" in said
    assert re.search(r"rank 0: waits at train.py:\d+, loss.backward\(\)", said)


def test_of_four_ranks_the_one_that_fails_is_named_beside_three_that_wait(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, count=4, batch='assert not late, "this shard is broken"')
    assert status == 1
    assert said.count("gradkit: rank 1 of 4 raised an error") == 1
    assert f"train.py:{line(tmp_path, 'this shard is broken')} raised AssertionError: this shard is broken" in said
    assert re.search(r"rank 0, 2-3: waits at train.py:\d+, loss.backward\(\)", said)


def test_a_nan_that_one_rank_spreads_to_all_is_found_where_it_is_made(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, forward="guess = guess / 0 * 0 if late else guess")
    assert status == 0
    assert "gradkit: rank 1 of 2 has a fault that the others do not have" in said
    assert f"--> train.py:{line(tmp_path, 'guess / 0 * 0')}" in said
    assert "nothing to report" not in said


def test_a_part_that_is_frozen_on_one_rank_only_is_named_with_itsline(tmp_path: Path) -> None:
    status, said = run(tmp_path, "rank == 1 and net.eye.requires_grad_(False)\n" + LOOP)
    assert status == 1
    assert "gradkit: rank 1 of 2 trains different parameters from the others" in said
    assert "eye.bias, eye.weight" in said
    assert f"froze them at train.py:{line(tmp_path, 'net.eye.requires_grad_(False)')}" in said


def test_a_rank_that_is_killed_is_missed_by_the_others(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, batch="late and os.kill(os.getpid(), 9)")
    assert status == 1
    assert "gradkit: rank 1 of 2 does not answer" in said
    assert "Signal 9 (SIGKILL) received" in said


def test_a_collective_that_one_rank_makes_alone_is_named_with_the_condition(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP, before="if late:\n        dist.all_reduce(loss.detach().clone())")
    assert status == 1
    assert "gradkit: rank 1 of 2" in said
    assert f"train.py:{line(tmp_path, 'dist.all_reduce')}" in said
    assert f"the condition at train.py:{line(tmp_path, 'if late:')}" in said


def test_of_two_machines_the_first_prints_the_one_report(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (status, said), (other, rest) = run_on_two_machines((first, second), LOOP, batch='late and scene.pop("image")')
    assert (status, other) == (1, 1)
    assert said.count("gradkit: rank 1 of 2 raised an error") == 1
    assert f"--> train.py:{line(second, 'scene.pop')}" in said
    assert "the batch of rank 1 lacks scene['image']" in said
    assert "= no gradient: eye.weight, eye.bias" in said
    assert "gradkit: rank" not in rest


def test_the_report_speaks_the_language_that_was_asked_for(tmp_path: Path) -> None:
    _, said = run(tmp_path, LOOP, options=("--language", "zh"), batch='assert not late, "broken"')
    assert "2 个 rank 中的 rank 1 抛出了错误" in said


def test_batches_that_differ_are_no_fault_where_the_wrapper_looks_for_unused_parameters(tmp_path: Path) -> None:
    loop = LOOP.replace("DistributedDataParallel(net)", "DistributedDataParallel(net, find_unused_parameters=True)")
    status, said = run(tmp_path, loop, batch='late and scene.pop("image")')
    assert status == 0
    assert said.count("gradkit") == 1
    assert "nothing to report" in said


def test_a_loss_that_one_rank_scales_is_told_with_its_line_while_training_goes_on(tmp_path: Path) -> None:
    scales = "    if rank == 1:\n        loss = loss * 0.5\n    optimizer.zero_grad()"
    files = ("--json", "out.json", "--report", "out.html")
    status, said = run(tmp_path, LOOP.replace("    optimizer.zero_grad()", scales), options=files)
    assert status == 0
    assert said.count("gradkit: rank 1 of 2 scales its loss differently from the others") == 1
    assert f"rank 1 makes the difference at train.py:{line(tmp_path, 'loss * 0.5')}" in said
    assert f"the condition at train.py:{line(tmp_path, 'if rank == 1')}" in said
    assert "nothing to report" not in said
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (found["healthy"], found["ranks"]["reason"], found["ranks"]["differ"]) == (False, "scaled", [1])
    assert "0.5 * mean(...)" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_loss_that_each_rank_weighs_by_its_share_of_the_samples_is_sound(tmp_path: Path) -> None:
    share = "shares = torch.tensor([0.8, 1.2])\n    loss = loss * shares[rank].item()"
    status, said = run(tmp_path, LOOP.replace("    optimizer.zero_grad()", f"    {share}\n    optimizer.zero_grad()"))
    assert status == 0
    assert "nothing to report" in said


def test_a_rank_that_has_fewer_batches_is_told_with_its_steps(tmp_path: Path) -> None:
    status, said = run(tmp_path, LOOP.replace("range(6)", "range(6 - 2 * rank)"))
    assert status == 1
    assert "gradkit: rank 1 of 2 has come to the end of its program" in said
    assert "rank 1 ended after 4 steps" in said


FORKS = """\
import signal, time
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(3)
time.sleep(0.3)
os.kill(child, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
"""


def test_a_signal_that_ends_a_copy_of_a_rank_does_not_end_the_rank(tmp_path: Path) -> None:
    status, said = run(tmp_path, FORKS + LOOP)
    assert status == 0
    assert "6 optimizer steps, nothing to report" in said
