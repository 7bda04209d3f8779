"""The command line: ``gradkit lab``, ``run``, ``diagnose``, ``verify``, ``scan``, ``guide``, ``guides``, ``claims``.

Every import of a heavy room is inside the command that needs it, so that ``gradkit --help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradkit.core import console, i18n, printable
from gradkit.core.arguments import Parser
from gradkit.core.console import program_output_aside, say
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import words

if TYPE_CHECKING:
    from gradkit.load.step import Step

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
    made = commands.add_parser(name, help=words(f"cli.{name}.help"), description=words(f"cli.{name}.about"))
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
    from gradkit.load import step
    from gradkit.source import training_loops
    from gradkit.teaching import examples

    if options.step in examples.BUILTINS and not Path(options.step).exists():
        return examples.from_builtin(options.step)
    names = ("model", "batch", "loss", "adapter", "weights")
    given = {name: getattr(options, name) for name in names}
    if not options.run_it_all:
        for text in filter(None, (options.step, options.model, options.batch, options.loss)):
            training_loops.refuse(text)
    return step.from_spec(options.step, **given)


def add_verify(commands: Commands[argparse.ArgumentParser]) -> None:
    """Declare ``gradkit verify``."""
    verify = command(commands, "verify", _verify)
    add_loading(verify)
    verify.add_argument("--frozen", nargs="+", action="extend", metavar="GLOB", help=words("cli.verify.frozen"))
    verify.add_argument("--steps", type=int, default=0, metavar="N", help=words("cli.verify.steps"))
    verify.add_argument("--depth", type=int, default=1, metavar="N", help=words("cli.verify.depth"))
    verify.add_argument("--json", action="store_true", help=words("cli.diagnose.json"))


def _verify(options: argparse.Namespace) -> int:
    from gradkit.api.verify import verify

    with program_output_aside():
        found = verify(
            load_step(options),
            should_train=options.should_train,
            frozen=options.frozen or (),
            replay=not options.no_replay,
            steps=options.steps,
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
    from gradkit.api.scan import judged, listed
    from gradkit.api.scanning import result
    from gradkit.core.package import VERSION

    with program_output_aside():
        if options.step or options.model:
            given = {"should_train": options.should_train, "replay": not options.no_replay}
            found = judged(options.path, lambda: load_step(options), **given)
        else:
            found = listed(options.path)
    if options.github:
        say(result.github_annotations(found), end="")
    elif options.json or options.sarif:
        say_json(found.data() if options.json else result.sarif_log(found, VERSION))
    else:
        say(found.text(), end="")
    unread = len({one.file for one in found.skipped if not one.cell}) == found.files > 0
    return COULD_NOT_RUN if unread else FINDINGS if found.report is not None and not found.report.healthy else HEALTHY


BOTH = "both"

Parse = Callable[[list[str]], argparse.Namespace]


def main(arguments: Sequence[str] | None = None, *, parse: Parse | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``gradkit``; None for those of this process.
        parse: reads the words of another program than ``gradkit``; what it gives has the command as ``run``.

    Returns:
        The exit status: 0 all is well, 1 the diagnosis has findings, 2 it could not run; 130 after Ctrl-C, and 128 and
        the number of any other signal that stopped it.

    Raises:
        SystemExit: after ``--help`` (status 0), or when the words make no command (status 2).
    """
    given, program = _divided(list(sys.argv[1:] if arguments is None else arguments))
    with console.streams(), console.signals():
        status = _status(given, program, parse or _parse)
    if arguments is None:
        console.settle_exit(status)
    return status


def _divided(given: list[str]) -> tuple[list[str], list[str]]:
    """The words of a command, and those of a person's program, which are none of the command's options."""
    if given[:1] == ["run"]:
        from gradkit.live.launch import divided

        own, program = divided(given[1:])
        return ["run", *own], program
    at = given.index("--") if given[:1] == ["diagnose"] and "--" in given else len(given)
    named = any(not word.startswith("-") for word in given[1:at])
    return (given[:at], given[at + 1 :]) if named else (given, [])


def _status(given: list[str], program: list[str], parse: Parse) -> int:
    try:
        try:
            i18n.language(preferred_language(given, os.environ))
        except ValueError as error:
            return _fail(str(error))
        options = parse(given)
        options.program = program
        return _run(options)
    except GradkitError as error:
        return _fail(error.text())
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        return COULD_NOT_RUN
    except KeyboardInterrupt as stop:
        number = getattr(stop, "number", signal.SIGINT)
        _fail(words("error.stopped", signal=signal.Signals(number).name))
        return 128 + number
    except OSError as error:
        return _fail(_of_a_file(error)) if error.filename is not None else _crash()
    except Exception:  # noqa: BLE001  # exit status 1 means findings, so a crash has to be told apart from them
        return _crash()


def _run(options: argparse.Namespace) -> int:
    try:
        status = int(options.run(options))
        console.flush()
        return status
    except SystemExit as stop:  # a user's file that ends the process must not look like a healthy one
        console.tell(console.ended_itself(stop.code))
        return COULD_NOT_RUN


def _of_a_file(error: OSError) -> str:
    path = printable.name(os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "?")
    return words("error.cannot_be_used", path=path, reason=error.strerror or type(error).__name__)


def _crash() -> int:
    console.tell(traceback.format_exc().rstrip("\n"))
    return _fail(words("error.crash"))


def preferred_language(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The language to speak: ``--language``, else ``$GRADKIT_LANGUAGE``, else the terminal's locale, else English.

    Example:
        >>> preferred_language(["guides", "--language=zh"], {"LANG": "en_US.UTF-8"})
        'zh'
        >>> preferred_language(["guides"], {"LANG": "zh_CN.UTF-8"})
        'zh'
        >>> preferred_language(["guides"], {"LANG": "fr_FR.UTF-8"})
        'en'
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--language", nargs="?")
    asked = finder.parse_known_args(list(arguments))[0].language
    asked = None if asked == BOTH else asked
    if asked or environment.get(i18n.VARIABLE):
        return str(asked or environment[i18n.VARIABLE])
    return "zh" if i18n.locale(environment).lower().startswith("zh") else "en"


def _fail(message: str) -> int:
    console.tell(words("cli.error", message=message))
    return COULD_NOT_RUN


def _parse(given: list[str]) -> argparse.Namespace:
    parser: argparse.ArgumentParser = Parser(
        prog="gradkit", description=words("cli.about"), epilog=words("cli.examples")
    )
    commands = parser.add_subparsers(metavar=words("cli.command"), required=True)
    _add_lab(commands)
    _add_run(commands)
    _add_diagnose(commands)
    add_verify(commands)
    add_scan(commands)
    _add_guides(commands)
    _add_claims(commands)
    _add_notebooks(commands)
    _add_class(commands)
    options, others = parser.parse_known_args(given)
    if others and not hasattr(options, "jupyter"):
        parser.error(words("cli.unknown_option", option=" ".join(others)))
    options.others = tuple(others)
    return options


def _add_lab(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lab = command(commands, "lab", _lab)
    lab.add_argument("--no-browser", action="store_true", help=words("cli.lab.no_browser"))
    lab.add_argument("--port", type=_port, metavar="N", help=words("cli.lab.port"))
    lab.add_argument("--ip", help=words("cli.lab.ip"))
    lab.add_argument("--dir", type=Path, default=Path(), help=words("cli.lab.dir"))
    lab.set_defaults(jupyter=True)


def _add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    run = command(commands, "run", _run_program)
    run.usage = words("cli.run.usage")
    run.add_argument("--json", metavar="OUT", default="", help=words("cli.run.json"))
    run.add_argument("--report", metavar="FILE", default="", help=words("cli.run.report"))
    run.add_argument("--should-train", nargs="+", action="extend", metavar="GLOB", help=words("cli.run.should_train"))
    run.add_argument("--stop", action="store_true", help=words("cli.run.stop"))
    run.add_argument("--quiet", action="store_true", help=words("cli.run.quiet"))
    run.add_argument("program", nargs="*", metavar="PROGRAM", help=words("cli.run.program"))


def _run_program(options: argparse.Namespace) -> int:
    from gradkit.live import launch

    wishes = launch.Wishes(
        json=options.json, report=options.report, stop=options.stop, quiet=options.quiet, language=i18n.language(),
        should_train=tuple(options.should_train or ()),
    )  # fmt: skip
    return launch.become(options.program, wishes)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text[:9]) < 1 << 16:
        raise argparse.ArgumentTypeError(words("cli.lab.no_port", port=printable.name(text)))
    return int(text)


def _add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diagnose = command(commands, "diagnose", _diagnose)
    add_loading(diagnose)
    diagnose.add_argument("--save", metavar="FILE", type=Path, help=words("cli.diagnose.save"))
    form = diagnose.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=words("cli.diagnose.json"))
    form.add_argument(
        "--breakdown", nargs="?", type=int, const=1, default=0, metavar="N", help=words("cli.diagnose.breakdown")
    )


def _add_guides(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    guide = command(commands, "guide", _guide)
    guide.add_argument("cause", help=words("cli.guide.cause"))
    command(commands, "guides", _guides)


def _add_notebooks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    notebooks = command(commands, "notebooks", _notebooks, language=f"en|zh|{BOTH}")
    notebooks.add_argument("folder", nargs="?", metavar="DIR", type=Path, help=words("cli.notebooks.folder"))
    notebooks.add_argument("names", nargs="*", metavar="NAME", help=words("cli.notebooks.names"))
    notebooks.add_argument(
        "--as", dest="form", choices=("ipynb", "py"), default="ipynb", help=words("cli.notebooks.form")
    )
    notebooks.add_argument("--force", action="store_true", help=words("cli.notebooks.force"))


def _add_claims(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    claims = command(commands, "claims", _claims)
    claims.add_argument("claim", nargs="?", metavar="ID", help=words("cli.claims.claim"))


def _add_class(commands: Commands[argparse.ArgumentParser]) -> None:
    lesson = command(commands, "class", _class)
    lesson.add_argument("what", choices=("merge", "sheet", "poll"), help=words("cli.class.what"))
    lesson.add_argument("file", metavar="FILE", type=Path, help=words("cli.class.file"))
    lesson.add_argument("names", nargs="*", metavar="NAME", help=words("cli.class.names"))


def _class(options: argparse.Namespace) -> int:
    from gradkit.teaching import poll, results, sheet

    if options.what == "merge":
        told = results.merge([Path(name) for name in options.names], options.file)
        say(results.summary(told), end="")
    elif options.what == "poll":
        poll.write_poll(options.file, options.names)
    elif options.file.suffix:
        sheet.write_sheet(options.file)
    else:
        for path in sheet.handouts(options.file):
            say(printable.inert(printable.name(str(path), printable.FACT)))
    return HEALTHY


def _lab(options: argparse.Namespace) -> int:
    from gradkit.notebook.lab import open_lab

    return open_lab(
        options.dir,
        language=i18n.language() if options.language else None,
        browser=not options.no_browser,
        port=options.port,
        ip=options.ip,
        options=options.others,
    )


def _diagnose(options: argparse.Namespace) -> int:
    from gradkit.source import training_loops

    alone = options.step and not any((options.model, options.batch, options.loss, options.adapter, options.weights))
    if alone and not (options.run_it_all and ":" in options.step) and training_loops.is_training(options.step):
        return _diagnose_training(options)
    if options.program:
        raise GradkitError("arguments_for_a_step", step=options.step)
    from gradkit.api.diagnose import diagnose

    with program_output_aside():
        report = diagnose(load_step(options), should_train=options.should_train, replay=not options.no_replay)
    if options.json:
        say_json(report.data())
    else:
        say(report.text(), end="")
    if options.breakdown:
        say("\n" + report.breakdown(options.breakdown), end="")
    if options.save:
        try:
            report.save(options.save)
        except OSError as reason:
            raise GradkitError("cannot_save", path=options.save, reason=reason.strerror) from reason
    return HEALTHY if report.healthy else FINDINGS


def _diagnose_training(options: argparse.Namespace) -> int:
    """A script, or a function that trains: it runs up to its first finding, or its first few sound steps."""
    from gradkit.live.launch import SOUND_STEPS, Wishes, until_found
    from gradkit.source import training_loops

    if options.no_replay:
        raise GradkitError("no_replay_of_a_training", step=options.step)
    wishes = Wishes(
        report=str(options.save or ""), language=i18n.language(), should_train=tuple(options.should_train or ()),
        steps=SOUND_STEPS, breakdown=options.breakdown,
    )  # fmt: skip
    found = until_found(options.step, options.program, wishes)
    told, status = found.pop("told", None), found.pop("status")
    if found.get("healthy") is None:
        if told is not None and status == 0 and not found["steps"]:
            file = options.step.rpartition(":")[0] or options.step
            raise GradkitError("no_training", file=options.step, names=training_loops.steps_of(file))
        if told is not None and told["text"]:
            console.tell(told["text"].rstrip("\n"))
            return COULD_NOT_RUN
        return COULD_NOT_RUN if status == COULD_NOT_RUN else _fail(words("error.training_failed", status=status))
    if options.json:
        say_json(found)
    else:
        say(told["text"], end="")
    if told["breakdown"]:
        say("\n" + told["breakdown"], end="")
    return COULD_NOT_RUN if told["not_written"] else HEALTHY if found["healthy"] else FINDINGS


def _guide(options: argparse.Namespace) -> int:
    from gradkit.teaching.guide import guide, markdown
    from gradkit.teaching.messages import guides_about

    about = guides_about(options.cause) if " " in options.cause.strip() else (options.cause,)
    if len(about) == 1:
        say(markdown(guide(about[0])), end="")
        return HEALTHY
    say(words("cli.guide.several"))
    for one in about:
        say(f"  {one:26}{guide(one).title}")
    return HEALTHY


def _guides(_: argparse.Namespace) -> int:
    from gradkit.core.causes import families
    from gradkit.teaching.guide import guide

    for family, causes in families().items():
        say(words(f"guide.family.{family}"))
        for cause in causes:
            say(f"  {cause:26}{guide(cause).title}")
    return HEALTHY


def _claims(options: argparse.Namespace) -> int:
    from gradkit.teaching.claim import claim, claims, markdown

    if options.claim is None:
        for one in claims():
            say(f"{one.id:38}{words(f'claims.verdict.{one.verdict}')}: {one.belief}")
        return HEALTHY
    belief = claim(options.claim)
    seen = belief.run()
    say(markdown(belief, seen), end="")
    return HEALTHY if seen.verdict == belief.verdict else FINDINGS


def _notebooks(options: argparse.Namespace) -> int:
    from gradkit.teaching import book

    if options.folder is None:
        for name in book.book_names():
            say(f"{name:36}{book.book_title(name, i18n.language())}")
        return HEALTHY
    languages = i18n.LANGUAGES if options.language == BOTH else (i18n.language(),)
    for path in book.hand_out(
        options.folder, options.names, languages=languages, form=options.form, force=options.force
    ):
        say(printable.inert(printable.name(str(path), printable.FACT)))
    return HEALTHY
