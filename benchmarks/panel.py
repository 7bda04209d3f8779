"""What the panel costs: time from a click on Diagnose to the picture, and memory of a Jupyter server with its kernel.

    python benchmarks/panel.py [--times 3] [--only time memory]

Time: a panel is opened on a model, Diagnose is pressed, and the stages are timed as the panel itself tells them: load,
run the step, run backward, look for cuts, prove by a rerun, name the cause, draw. All of it in this process; what the
browser adds is not in it. Nobody else should be using the machine.
Memory: ``jupyter lab`` with one kernel that runs what the start notebook runs (the panel) and then GPT-2 small from a
config; resident memory of the server and of the kernel, the highest of both together while it runs (Linux only).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PROGRAM = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

ids = torch.zeros(1, 32, dtype=torch.long)


def step():
    model = GPT2LMHeadModel(GPT2Config())

    def run():
        hidden = model.transformer(ids).last_hidden_state{cut}
        return model.lm_head(hidden).logsumexp(-1).mean()

    return model, run


def sound():
    return GPT2LMHeadModel(GPT2Config())(ids, labels=ids).loss


def meta():
    with torch.device("meta"):
        light = GPT2LMHeadModel(GPT2Config())
        tokens = torch.zeros(1, 32, dtype=torch.long)
    return light, lambda: light(tokens, labels=tokens).loss
"""
PANEL = "import gradkit\npanel = gradkit.panel()\npanel"
CLICKS = """
panel.form.kind.value = "file"
panel.form.source.mode.value = "step"
panel.form.source.step.control.value = "train.py:step"
panel.diagnose.click()
panel.job.wait()
print(panel.report.verdict("en"))
"""


def stages(cut: bool) -> dict[str, float]:
    """Seconds of each stage of one diagnosis of GPT-2 small by the panel, in this process."""
    from gradkit.notebook.panel import Panel

    folder = _folder(cut)
    panel = Panel(language="en")
    panel.form.kind.value, panel.form.source.mode.value = "file", "step"
    panel.form.source.step.control.value = f"{folder}/train.py:step"
    times: list[tuple[str, float]] = []
    heard = panel._heard

    def listen(job: Any) -> None:
        if not times or times[-1][0] != job.stage:
            times.append((job.stage, job.seconds))
        heard(job)

    panel._heard = listen  # type: ignore[method-assign]
    begin = time.perf_counter()
    panel.start()
    job = panel.job
    if job is not None:
        job.wait()
    took = time.perf_counter() - begin
    assert panel.report is not None, panel.problem.value
    assert panel.report.healthy is not cut, panel.report
    ends = [seconds for _, seconds in times[1:]] + [took]
    found = {name: end - start for (name, start), end in zip(times, ends, strict=True) if name}
    return {**found, "all": took}


def _folder(cut: bool) -> Path:
    folder = Path(tempfile.mkdtemp())
    (folder / "train.py").write_text(PROGRAM.replace("{cut}", ".detach()" if cut else ""), encoding="utf-8")
    return folder


# -- memory ---------------------------------------------------------------------------------------------------------


def resident(process: int) -> tuple[float, float]:
    """Resident memory of a process in MB, and how much of it is its own: no file that could be read again."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text("utf-8").splitlines())
    return float(fields["VmRSS"].split()[0]) / 1024, float(fields["RssAnon"].split()[0]) / 1024


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()]


class Watch(threading.Thread):
    """Notes the memory of a server and its kernel ten times a second."""

    def __init__(self, server: int) -> None:
        super().__init__(daemon=True)
        self.server, self.ended = server, threading.Event()
        self.now, self.high = (0.0, 0.0, 0.0, 0.0), (0.0, 0.0)

    def run(self) -> None:
        """See ``threading.Thread``."""
        while not self.ended.wait(0.1):
            try:
                server, *kernels = (resident(one) for one in (self.server, *children(self.server)))
            except (OSError, KeyError):  # one of them is just coming or going
                continue
            kernel = sum(one for one, _ in kernels)
            together, own = server[0] + kernel, server[1] + sum(one for _, one in kernels)
            self.now = server[0], kernel, together, own
            self.high = max(self.high[0], together), max(self.high[1], own)


def session(run: Callable[[Watch, Any], None]) -> None:
    """A Jupyter server with one kernel in an empty folder that holds GPT-2's ``train.py``."""
    from jupyter_client.blocking import BlockingKernelClient

    from gradkit.notebook.lab import lab_command, lab_environment

    folder, token = _folder(cut=True), secrets.token_hex(8)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    homes = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    options = (f"--IdentityProvider.token={token}",)
    command = lab_command(folder, Path("none.ipynb"), browser=False, port=port, ip="127.0.0.1", options=options)
    environment = lab_environment({**os.environ, **homes, "GRADKIT_CONFIG_DIR": str(folder)})
    server = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        kernel = _ask(f"http://127.0.0.1:{port}/api/kernels", token)["id"]
        client = BlockingKernelClient(connection_file=str(folder / "runtime" / f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.start_channels()
        _wait_for(client)
        watch = Watch(server.pid)
        watch.start()
        run(watch, client)
        watch.ended.set()
        client.stop_channels()
    finally:
        server.terminate()
        server.wait()


def _wait_for(client: Any) -> None:
    """A kernel whose heart has not begun to beat counts as dead."""
    for _ in range(100):
        try:
            client.wait_for_ready(timeout=120)
            return
        except RuntimeError:
            time.sleep(0.3)
    raise TimeoutError


def _ask(url: str, token: str) -> Any:
    request = urllib.request.Request(url, b"{}", {"Authorization": f"token {token}"}, method="POST")
    for _ in range(600):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


def memory() -> None:
    """Print resident memory at each point of two sessions: one with the panel, one that only trains."""
    session(functools.partial(_points, [
        ("kernel started", "pass"),
        ("panel shown", PANEL),
        ("GPT-2 small from a config diagnosed", CLICKS),
        ("and once more", "panel.diagnose.click(); panel.job.wait()"),
    ]))  # fmt: skip
    session(functools.partial(_points, [
        ("without gradkit: GPT-2 small, one forward and backward", "import train; train.sound().backward()"),
    ]))  # fmt: skip
    session(functools.partial(_points, [
        ("panel shown", PANEL),
        ("GPT-2 small on the meta device diagnosed", CLICKS.replace(":step", ":meta")),
    ]))  # fmt: skip
    session(functools.partial(_points, [
        ("panel, a LoRA run (its first example) diagnosed", f"{PANEL}.diagnose.click(); panel.job.wait()"),
    ]))  # fmt: skip


def _points(steps: Sequence[tuple[str, str]], watch: Watch, client: Any) -> None:
    print("| MB | server | kernel | together (highest) | of it no files (highest) |\n|---|---|---|---|---|")
    for name, code in steps:
        reply = client.execute_interactive(code, timeout=600, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]
        time.sleep(0.5)
        server, kernel, together, own = watch.now
        high, high_own = watch.high
        print(
            f"| {name} | {server:.0f} | {kernel:.0f} | {together:.0f} ({high:.0f}) | {own:.0f} ({high_own:.0f}) |",
            flush=True,
        )


def main() -> None:
    """Print the tables, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=["time", "memory"], default=["time", "memory"])
    options = parser.parse_args()
    if "time" in options.only:
        import torch

        torch.set_num_threads(1)
        for cut in (True, False):
            rows = [stages(cut) for _ in range(options.times)]
            names = [name for name in rows[0] if name != "all"] + ["all"]
            print(f"GPT-2 small, {'one detach()' if cut else 'sound'}, seconds, median of {options.times} (first)")
            print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|")
            middle = [statistics.median(row.get(name, 0.0) for row in rows) for name in names]
            cells = [f"{m:.2f} ({rows[0].get(name, 0.0):.2f})" for m, name in zip(middle, names, strict=True)]
            print(f"| {' | '.join(cells)} |\n", flush=True)
    if "memory" in options.only:
        memory()


if __name__ == "__main__":
    sys.exit(main())
