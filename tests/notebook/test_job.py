"""Work beside the main thread: what it carries over, and when it may be interrupted."""

from __future__ import annotations

import threading
import time

import torch

from gradkit.notebook.job import Cancelled, Job


def _ended(work: object) -> Job:
    return Job(work, lambda job: None).start().wait(20)  # type: ignore[arg-type]


def test_a_job_hands_back_what_its_work_returned() -> None:
    assert _ended(lambda job: 6 * 7).result == 42


def test_a_job_keeps_what_its_work_raised() -> None:
    assert isinstance(_ended(lambda job: 1 // 0).error, ZeroDivisionError)


def test_grad_mode_goes_along_and_does_not_come_back() -> None:
    torch.set_grad_enabled(False)
    job = _ended(lambda job: (torch.is_grad_enabled(), torch.set_grad_enabled(True)))
    assert job.result[0] is False
    assert not torch.is_grad_enabled()


def test_what_is_not_guarded_is_never_interrupted() -> None:
    began, steps = threading.Event(), []

    def work(job: Job) -> None:
        job.guard(lambda: None)()
        began.set()
        for number in range(200):
            time.sleep(0.001)
            steps.append(number)
        job.tell("next")

    job = Job(work, lambda job: None).start()
    assert began.wait(10)
    job.cancel()
    job.wait(20)
    assert len(steps) == 200
    assert isinstance(job.error, Cancelled)


def test_nothing_is_raised_after_the_guarded_part_has_ended() -> None:
    for _ in range(200):
        entered, tidied = threading.Event(), []

        def short(entered: threading.Event = entered) -> None:
            entered.set()

        def work(job: Job, short: object = short, tidied: list[int] = tidied) -> None:
            try:
                job.guard(short)()  # type: ignore[arg-type]
            finally:
                for number in range(300):
                    tidied.append(number)  # noqa: PERF402  # many instructions, each of which could be interrupted

        job = Job(work, lambda job: None).start()
        entered.wait(10)
        job.cancel()
        job.wait(20)
        assert len(tidied) == 300


def test_cancel_wins_over_the_error_that_it_caused() -> None:
    began = threading.Event()

    def endless() -> None:
        try:
            while True:
                began.set()
        except BaseException:
            raise RuntimeError from None

    job = Job(lambda job: job.guard(endless)(), lambda job: None).start()
    assert began.wait(10)
    job.cancel()
    assert isinstance(job.wait(20).error, Cancelled)
