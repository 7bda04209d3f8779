"""What Binder reads in binder/ is sound: rendered by repo2docker, in the versions we test with, and its scripts run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import repo2docker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools import readme
from tools.readme import tomllib

REPO = Path(__file__).parents[1]
BINDER = REPO / "binder"
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHON = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
CPU_WHEELS = "download.pytorch.org"

bash = pytest.mark.skipif(os.name != "posix", reason="Binder's scripts are for bash")


def requirements(path: Path) -> dict[str, Requirement]:
    lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("--")]
    here = {"python_version": PYTHON}
    return {canonicalize_name(one.name): one for one in found if one.marker is None or one.marker.evaluate(here)}


def image() -> dict[str, str]:
    """What the image has before anything of ours is installed, by name: repo2docker's own lock file."""
    folder = Path(repo2docker.__file__).parent / "buildpacks" / "conda"
    (lock,) = folder.glob(f"environment.py-{PYTHON}-linux-64.lock")
    names = re.findall(r"/([^/]+)-([^-/]+)-[^-/]+\.(?:conda|tar\.bz2)", lock.read_text())
    return {canonicalize_name(name): version for name, version in names}


# what is written there


def test_repo2docker_renders_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(REPO)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    rendered = ran.stdout + ran.stderr
    assert ran.returncode == 0, rendered
    for part in (
        "apt-get install --yes --no-install-recommends fonts-noto-cjk graphviz",
        '-r "binder/requirements.txt"',
        "RUN ./binder/postBuild",
        f"environment-2epy-2d{PYTHON.replace('.', '-2e')}",
    ):
        assert part in rendered
    assert re.search(r'R2D_ENTRYPOINT="?\S*binder/start', rendered)


def test_nothing_in_the_repository_outranks_requirements_txt() -> None:
    for folder in (BINDER, REPO / ".binder"):
        assert not any((folder / name).exists() for name in ("environment.yml", "Dockerfile", "Pipfile", "setup.py"))
    assert not (REPO / ".binder").exists()


def test_apt_txt_holds_names_of_packages_and_nothing_that_a_shell_would_run() -> None:
    names = (BINDER / "apt.txt").read_text().split("\n")
    assert names.pop() == ""
    assert names == sorted(names)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in names)


def test_its_python_is_one_that_we_support() -> None:
    assert PYTHON in SpecifierSet(PROJECT["requires-python"])
    assert f"Programming Language :: Python :: {PYTHON}" in PROJECT["classifiers"]


def test_every_version_is_exact_and_the_one_that_the_tests_run_with() -> None:
    ours, tested = requirements(BINDER / "requirements.txt"), requirements(REPO / "constraints.txt")
    for name, one in ours.items():
        (only,) = one.specifier
        assert only.operator == "=="
        assert only.version.removesuffix("+cpu") in tested[name].specifier, name
    (torch,) = ours["torch"].specifier
    assert torch.version.endswith("+cpu")
    assert f"--extra-index-url https://{CPU_WHEELS}/whl/cpu" in (BINDER / "requirements.txt").read_text()


def test_between_the_image_and_the_pins_every_dependency_is_there_and_none_of_the_image_is_replaced() -> None:
    pins, has = requirements(BINDER / "requirements.txt"), image()
    assert sorted(set(pins) & set(has)) == []
    for line in PROJECT["dependencies"]:
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate({"python_version": PYTHON, "sys_platform": "linux"}):
            name = canonicalize_name(one.name)
            assert name in pins or has[name] in one.specifier, one


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_badge_opens_a_notebook_that_is_there(language: str) -> None:
    page = readme.PAGES[language].read_text(encoding="utf-8")
    (path,) = re.findall(r"\(https://mybinder\.org/v2/gh/[^/]+/[^/]+/HEAD\?urlpath=lab%2Ftree%2F([^)]+)\)", page)
    assert (REPO / path.replace("%2F", "/")).is_file()
    assert f"/{language}/" in path.replace("%2F", "/")


def test_the_name_of_the_repository_is_written_in_one_place_only() -> None:
    name = readme.repository()
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", name)
    for language, path in readme.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert name not in page.replace(readme.badges(language), "")
    others = [*(REPO / "docs").rglob("*.md"), *BINDER.iterdir(), *(REPO / "gradkit").rglob("*.toml")]
    assert [path for path in others if name in path.read_text(encoding="utf-8")] == []


# what runs


@bash
@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_a_script_can_be_executed_and_is_bash(name: str) -> None:
    assert os.access(BINDER / name, os.X_OK)
    subprocess.run(["bash", "-n", BINDER / name], check=True)


@bash
def test_start_hands_over_to_what_binder_wants_to_run_and_keeps_what_is_set_already() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "JUPYTER_CONFIG_PATH": "/elsewhere"}
    environment.pop("MALLOC_ARENA_MAX", None)
    script = 'echo "$0 $1 $OMP_NUM_THREADS $MALLOC_ARENA_MAX $JUPYTER_CONFIG_PATH"; exit 7'
    ran = subprocess.run(
        [BINDER / "start", "bash", "-c", script, "one", "two words"],
        cwd=REPO, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 7
    assert ran.stdout == f"one two words 3 2 {REPO / 'gradkit' / 'notebook' / 'jupyter'}:/elsewhere\n"


def reachable(host: str) -> bool:
    try:
        socket.create_connection((host, 443), timeout=3).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_pip_finds_every_pin(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "-q", "-r"]
    wanted = (BINDER / "requirements.txt").read_text(encoding="utf-8")
    if not reachable(CPU_WHEELS):
        wanted = re.sub(r"^(--extra-index-url|torch==).*\n", "", wanted, flags=re.MULTILINE)
    (tmp_path / "requirements.txt").write_text(wanted, encoding="utf-8")
    first = next(line for line in wanted.splitlines() if line.startswith("torchviz"))
    (tmp_path / "probe.txt").write_text(first)
    if subprocess.run([*pip, tmp_path / "probe.txt"], capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")
    ran = subprocess.run([*pip, tmp_path / "requirements.txt"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@bash
@pytest.mark.slow
def test_postbuild_and_start_run_in_a_clean_venv_and_folder(tmp_path: Path) -> None:
    clone, venv = tmp_path / "clone", tmp_path / "venv"
    for part in ("binder", "gradkit", "notebooks"):
        shutil.copytree(REPO / part, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
    for built in (clone / "notebooks").glob("*/guides"):
        shutil.rmtree(built)
    for part in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / part, clone)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    installed = importlib.metadata.distribution("torch").locate_file("")
    (packages / "image.pth").write_text(f"import site; site.addsitedir({str(installed)!r})")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JUPYTER_CONFIG_PATH")}
    environment |= {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    environment |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: not isolated, from what is installed

    def run(*command: str | Path) -> str:
        ran = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    run("binder/postBuild")
    assert all((clone / "notebooks" / one / "guides" / "detach.ipynb").is_file() for one in ("en", "zh"))
    assert run("binder/start", "python", "-I", "-c", "import gradkit; print(gradkit.__file__)").startswith(str(clone))
    told = run("binder/start", "python", "-m", "jupyter", "--paths", "--json")
    assert json.loads(told)["config"][0] == str(clone / "gradkit" / "notebook" / "jupyter")
    assert "detach" in run("binder/start", "gradkit", "guides")
