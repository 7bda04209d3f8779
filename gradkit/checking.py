"""The commands that stand in a CI: ``gradkit verify`` and ``gradkit scan``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gradkit.console import program_output_aside, say
from gradkit.i18n import words
from gradkit.options import (
    COULD_NOT_RUN,
    FINDINGS,
    HEALTHY,
    Commands,
    add_loading,
    command,
    load_step,
    say_json,
)


def add_verify(commands: Commands[argparse.ArgumentParser]) -> None:
    """Declare ``gradkit verify``."""
    verify = command(commands, "verify", _verify)
    add_loading(verify)
    verify.add_argument("--frozen", nargs="+", action="extend", metavar="GLOB", help=words("cli.verify.frozen"))
    verify.add_argument("--depth", type=int, default=1, metavar="N", help=words("cli.verify.depth"))
    verify.add_argument("--json", action="store_true", help=words("cli.diagnose.json"))


def _verify(options: argparse.Namespace) -> int:
    from gradkit.verify import verify

    with program_output_aside():
        found = verify(
            load_step(options),
            should_train=options.should_train,
            frozen=options.frozen or (),
            replay=not options.no_replay,
        )
    if options.json:
        say_json(found.data(options.depth))
    else:
        say(found.text(depth=options.depth), end="")
    return HEALTHY if found else FINDINGS


def add_scan(commands: Commands[argparse.ArgumentParser]) -> None:
    """Declare ``gradkit scan``."""
    scan = command(commands, "scan", _scan)
    scan.add_argument("path", nargs="+", metavar="PATH", type=Path, help=words("cli.scan.path"))
    add_loading(scan, step="--step")
    form = scan.add_mutually_exclusive_group()
    for name in ("json", "github", "sarif"):
        form.add_argument(f"--{name}", action="store_true", help=words(f"cli.scan.{name}"))


def _scan(options: argparse.Namespace) -> int:
    from gradkit import __version__, alerts
    from gradkit.scan import judged, listed

    with program_output_aside():
        if options.step or options.model:
            given = {"should_train": options.should_train, "replay": not options.no_replay}
            found = judged(options.path, lambda: load_step(options), **given)
        else:
            found = listed(options.path)
    if options.github:
        say(alerts.github(found), end="")
    elif options.json or options.sarif:
        say_json(found.data() if options.json else alerts.sarif(found, __version__))
    else:
        say(found.text(), end="")
    unread = len({one.file for one in found.skipped if not one.cell}) == found.files > 0
    return COULD_NOT_RUN if unread else FINDINGS if found.report is not None and not found.report.healthy else HEALTHY
