"""``gradkit lab``: JupyterLab, opened at the start notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from gradkit.core import i18n, regular_files, writing
from gradkit.core.errors import GradkitError
from gradkit.teaching import book

IN_A_CLONE = {code: Path("notebooks", code, "start.ipynb") for code in i18n.LANGUAGES}
EXTENSIONS = Path(__file__).parent / "labextensions"
"""What JupyterLab loads besides its own: the start notebook opens with the panel shown already."""
OF_OUR_OWN = {"en": Path("gradkit-start.ipynb"), "zh": Path("gradkit-start.zh.ipynb")}


def open_lab(
    folder: Path,
    *,
    language: str | None = None,
    browser: bool = True,
    port: int | None = None,
    ip: str | None = None,
    options: tuple[str, ...] = (),
) -> int:
    """Start JupyterLab in ``folder`` at the start notebook, and stay until it ends.

    Args:
        folder: what JupyterLab shows; the start notebook is put there if it is not there yet.
        language: of the notebook and of all that gradkit says there; None for :func:`gradkit.core.i18n.default`.
        browser: whether to open a browser window.
        port: TCP port, or None for JupyterLab's own choice.
        ip: address to listen on, or None for JupyterLab's own choice, this machine only.
        options: anything else, handed to JupyterLab as it is.

    Returns:
        JupyterLab's exit status. On POSIX systems this process becomes JupyterLab and never returns.

    Raises:
        GradkitError: ``folder`` does not exist or cannot be written.
    """
    notebook = start_notebook(folder.resolve(), language or i18n.default())
    build_guides(folder.resolve())
    command = lab_command(folder.resolve(), notebook, browser=browser, port=port, ip=ip, options=options)
    environment = lab_environment({**os.environ, **({i18n.VARIABLE: language} if language else {})})
    if os.name == "posix":
        os.execve(command[0], command, environment)  # noqa: S606  # so that Ctrl+C and SIGTERM reach JupyterLab itself
    return subprocess.run(command, env=environment, check=False).returncode


def start_notebook(folder: Path, language: str) -> Path:
    """Where the start notebook in ``language`` lies below ``folder``; written there first if need be.

    One that is there already is left alone: it may hold a person's work.

    Raises:
        GradkitError: see :func:`open_lab`.
    """
    if not folder.is_dir():
        raise GradkitError("no_such_folder", path=folder)
    for notebook in (IN_A_CLONE[language], OF_OUR_OWN[language]):
        if (folder / notebook).is_file():
            return notebook
    try:
        text = book.write_books("start", language)
        regular_files.check_target(folder / OF_OUR_OWN[language])
        writing.write(folder / OF_OUR_OWN[language], text.encode())
    except OSError as reason:
        raise GradkitError("folder_not_writable", path=folder, reason=reason.strerror) from reason
    return OF_OUR_OWN[language]


def build_guides(folder: Path) -> None:
    """Build the guides' notebooks where ``folder`` is a clone, which holds them as texts and programs only.

    Those that are there are left alone. Anywhere else nothing is written, nor in a clone that can't be written to.
    """
    if not (folder / "gradkit" / "teaching" / "guides").is_dir():
        return
    guides = [name for name in book.book_names() if name.startswith(book.GUIDES)]
    for language in i18n.LANGUAGES:
        there = folder / "notebooks" / language
        missing = [name for name in guides if not os.path.lexists(there / f"{name}.ipynb")]
        if missing and there.is_dir():
            with suppress(GradkitError):  # the start notebook opens all the same
                book.hand_out(folder / "notebooks", missing, languages=[language])


def lab_command(
    folder: Path, notebook: Path, *, browser: bool, port: int | None, ip: str | None, options: tuple[str, ...]
) -> list[str]:
    """The command line that starts JupyterLab with this very Python.

    Example:
        >>> command = lab_command(Path("/work"), Path("my start.ipynb"), browser=False, port=8890, ip=None, options=())
        >>> command[1:]  # doctest: +SKIP
        ['-m', 'jupyterlab', '--ServerApp.root_dir=/work', '--LabApp.default_url=/lab/tree/my%20start.ipynb', ...]
    """
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{quote(notebook.as_posix())}",
    ]
    command.append(f"--LabApp.extra_labextensions_path={EXTENSIONS}")
    if not browser:
        command.append("--no-browser")
    if port is not None:
        command.append(f"--port={port}")
    if ip is not None:
        command.append(f"--ip={ip}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # who is root, as in most containers, has made that choice already
    return [*command, *options]


def lab_environment(environment: dict[str, str]) -> dict[str, str]:
    """``environment``, with our defaults for JupyterLab's settings in front: no news pop-up, no look for updates.

    They hold for the server that is started with it, and only where the user has not chosen otherwise.

    Example:
        >>> Path(lab_environment({})["JUPYTER_CONFIG_PATH"]).name
        'jupyter'
    """
    ours = str(Path(__file__).parent / "jupyter")
    others = environment.get("JUPYTER_CONFIG_PATH")
    return {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join([ours, others] if others else [ours])}
