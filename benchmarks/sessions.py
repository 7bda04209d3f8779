"""Memory of a whole Jupyter session, as one learner has it: the server and the kernel, while a notebook runs.

python benchmarks/sessions.py                       every notebook in notebooks/en
python benchmarks/sessions.py start cases/*         some of them, by name or pattern
python benchmarks/sessions.py --limit 1024          exit with 1 if a session needs more MB than this (the default)

A JupyterLab server is started for each notebook, a kernel by that server, and every cell is run in it. Ten times a
second the memory of the server and of all its children is added up: on Linux a page that several share counts once.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil
import requests
from jupyter_client import BlockingKernelClient

from gradkit.notebook import lab

REPO = Path(__file__).parents[1]
NOTEBOOKS = REPO / "notebooks" / "en"
MB = 1024 * 1024


def memory(process: psutil.Process) -> tuple[float, float]:
    """MB of a process by itself, and of it with all that it started."""
    family = [process, *process.children(recursive=True)]
    sizes = []
    for one in family:
        try:
            told = one.memory_full_info()
            sizes.append(getattr(told, "pss", told.rss) / MB)
        except psutil.Error:
            sizes.append(0.0)
    return sizes[0], sum(sizes)


class Watch(threading.Thread):
    """Samples a process until it is stopped; ``server`` and ``whole`` are the highest values seen."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.process, self.server, self.whole, self.going = process, 0.0, 0.0, True

    def run(self) -> None:
        """Until ``going`` is False."""
        while self.going:
            server, whole = memory(self.process)
            self.server, self.whole = max(self.server, server), max(self.whole, whole)
            time.sleep(0.1)


def session(path: Path) -> tuple[float, float, float, int]:
    """Server alone, whole session (MB, both at their highest), seconds, and how many cells raised."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token, begun = secrets.token_hex(), time.monotonic()
    with tempfile.TemporaryDirectory() as runtime:
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", f"--ServerApp.root_dir={REPO}"]
        command += [
            "--ServerApp.port_retries=0",
            *(["--allow-root"] if os.name == "posix" and not os.geteuid() else []),
        ]
        settings = {"JUPYTER_RUNTIME_DIR": runtime, "JUPYTER_TOKEN": token, "PYTHONPATH": str(REPO)}
        with open(os.devnull, "w") as nowhere:
            server = subprocess.Popen(command, env={**os.environ, **settings}, stdout=nowhere, stderr=nowhere)
        try:
            base, head = f"http://127.0.0.1:{port}/api", {"Authorization": f"token {token}"}
            _until_it_answers(f"{base}/status", head, server)
            watch = Watch(psutil.Process(server.pid))
            watch.start()
            asked = {"path": str(path.relative_to(REPO)), "type": "notebook", "name": "", "kernel": {"name": "python3"}}
            made = requests.post(f"{base}/sessions", json=asked, headers=head, timeout=60)
            made.raise_for_status()
            raised = _run_all(path, Path(runtime, f"kernel-{made.json()['kernel']['id']}.json"))
            watch.going = False
            watch.join()
            return watch.server, watch.whole, time.monotonic() - begun, raised
        finally:
            server.terminate()
            server.wait()


def _until_it_answers(address: str, head: dict[str, str], server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        try:
            if requests.get(address, headers=head, timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.2)
    raise SystemExit("the server does not answer")


def _run_all(path: Path, connection: Path) -> int:
    """Run every code cell in the kernel of that file; how many raised."""
    kernel = BlockingKernelClient(connection_file=str(connection))
    kernel.load_connection_file()
    kernel.start_channels(hb=False)  # a kernel that is still importing misses beats, and is no dead one
    kernel.wait_for_ready(timeout=120)
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    raised = 0
    for cell in cells:
        reply = kernel.execute_interactive(cell.source, timeout=300, output_hook=lambda _: None)
        raised += reply["content"]["status"] != "ok" and "raises-exception" not in cell.metadata.get("tags", [])
    kernel.stop_channels()
    return raised


def main() -> int:
    """Print a table; 1 if a session is too large or a cell raised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"])
    parser.add_argument("--limit", type=float, default=1024, metavar="MB")
    options = parser.parse_args()
    lab.build_guides(REPO)
    found = {
        path.relative_to(NOTEBOOKS).with_suffix("").as_posix(): path for path in sorted(NOTEBOOKS.rglob("*.ipynb"))
    }
    chosen = [name for name in found if any(fnmatch.fnmatch(name, pattern) for pattern in options.names)]
    if not chosen:
        raise SystemExit(f"no notebook is called {options.names}")
    print("| notebook | server, MB | server and kernel, MB | seconds |\n|---|---|---|---|")
    wrong = 0
    for name in chosen:
        server, whole, seconds, raised = session(found[name])
        wrong += whole > options.limit or raised > 0
        remark = f" ({raised} cells raised)" if raised else ""
        print(f"| {name} | {server:.0f} | {whole:.0f} | {seconds:.0f} |{remark}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
