"""What the commands have in common: how a command is declared, and the words that name a step."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gradkit import console, printable
from gradkit.i18n import words

if TYPE_CHECKING:
    from gradkit.load import Step

Commands = argparse._SubParsersAction  # noqa: SLF001  argparse gives what add_subparsers() returns no other name
HEALTHY, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def say_json(data: object) -> None:
    """Write data to stdout as JSON; where the encoding of stdout lacks letters, in ASCII, which means the same."""
    text = printable.as_json(data)
    console.say(text if printable.can_say(text) else printable.as_json(data, ascii_only=True))


def command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    language: str = "en|zh",
) -> argparse.ArgumentParser:
    """A command of this name; its sentences are ``cli.<name>.help`` and ``cli.<name>.about``.

    ``language`` is what may stand after ``--language``.
    """
    made = commands.add_parser(
        name,
        help=words(f"cli.{name}.help"),
        description=words(f"cli.{name}.about"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--language", metavar=language, help=words("cli.language"))
    made.set_defaults(run=run)
    return made


def add_loading(parser: argparse.ArgumentParser, *, step: str = "step") -> None:
    """The words that name a step, or a model with its batch and loss.

    Args:
        step: ``"step"`` for a word of its own, ``"--step"`` for an option.
    """
    how = {"nargs": "?"} if step == "step" else {}
    parser.add_argument(step, metavar="train.py:step", help=words("cli.diagnose.step"), **how)  # type: ignore[arg-type]
    for name in ("model", "batch", "loss", "adapter", "weights"):
        parser.add_argument(f"--{name}", help=words(f"cli.diagnose.{name}"))
    parser.add_argument(
        "--should-train", nargs="+", action="extend", metavar="GLOB", help=words("cli.diagnose.should_train")
    )
    parser.add_argument("--no-replay", action="store_true", help=words("cli.diagnose.no_replay"))
    parser.add_argument("--run-it-all", action="store_true", help=words("cli.diagnose.run_it_all"))


def load_step(options: argparse.Namespace) -> Step:
    """The step that the words name: a built-in example, or the user's own.

    Raises:
        GradkitError: as ``load.from_spec`` does.
    """
    from gradkit import load, trainings

    if options.step in load.BUILTINS and not Path(options.step).exists():
        return load.from_builtin(options.step)
    names = ("model", "batch", "loss", "adapter", "weights")
    given = {name: getattr(options, name) for name in names}
    if not options.run_it_all:
        for text in filter(None, (options.step, options.model, options.batch, options.loss)):
            trainings.refuse(text)
    return load.from_spec(options.step, **given)
