"""The command line: ``gradkit lab``, ``diagnose``, ``verify``, ``scan``, ``guide``, ``guides``, ``claims``.

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
from typing import Any

from gradkit import checking, console, i18n, printable, processes
from gradkit.console import program_output_aside, say
from gradkit.errors import GradkitError
from gradkit.i18n import words
from gradkit.options import COULD_NOT_RUN, FINDINGS, HEALTHY, add_loading, command, load_step, say_json

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
    given = list(sys.argv[1:] if arguments is None else arguments)
    with console.streams(), console.signals():
        status = _status(given, parse or _parse)
    if arguments is None:
        processes.settle(status)
    return status


def _status(given: list[str], parse: Parse) -> int:
    try:
        try:
            i18n.language(preferred_language(given, os.environ))
        except ValueError as error:
            return _fail(str(error))
        return _run(parse(given))
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


class Parser(argparse.ArgumentParser):
    """Says what it says as the commands do; argparse itself is silent about a help that cannot be written."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            console.say(message, end="")
            console.flush()
        else:
            console.tell(message.rstrip("\n"))


def _parse(given: list[str]) -> argparse.Namespace:
    parser: argparse.ArgumentParser = Parser(
        prog="gradkit",
        description=words("cli.about"),
        epilog=words("cli.examples"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar=words("cli.command"), required=True)
    _add_lab(commands)
    _add_diagnose(commands)
    checking.add_verify(commands)
    checking.add_scan(commands)
    _add_guides(commands)
    _add_claims(commands)
    _add_notebooks(commands)
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


def _lab(options: argparse.Namespace) -> int:
    from gradkit.lab import open_lab

    return open_lab(
        options.dir,
        language=i18n.language() if options.language else None,
        browser=not options.no_browser,
        port=options.port,
        ip=options.ip,
        options=options.others,
    )


def _diagnose(options: argparse.Namespace) -> int:
    from gradkit.diagnose import diagnose

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


def _guide(options: argparse.Namespace) -> int:
    from gradkit.guide import guide, markdown

    say(markdown(guide(options.cause)), end="")
    return HEALTHY


def _guides(_: argparse.Namespace) -> int:
    from gradkit import cause_registry
    from gradkit.guide import guide

    for family, causes in cause_registry.families().items():
        say(words(f"guide.family.{family}"))
        for cause in causes:
            say(f"  {cause:26}{guide(cause).title}")
    return HEALTHY


def _claims(options: argparse.Namespace) -> int:
    from gradkit import beliefs

    if options.claim is None:
        for one in beliefs.claims():
            say(f"{one.id:38}{words(f'claims.verdict.{one.verdict}')}: {one.belief}")
        return HEALTHY
    claim = beliefs.claim(options.claim)
    seen = claim.run()
    say(beliefs.markdown(claim, seen), end="")
    return HEALTHY if seen.verdict == claim.verdict else FINDINGS


def _notebooks(options: argparse.Namespace) -> int:
    from gradkit import bookshelf, handouts

    if options.folder is None:
        for name in bookshelf.names():
            say(f"{name:36}{bookshelf.title(name, i18n.language())}")
        return HEALTHY
    languages = i18n.LANGUAGES if options.language == BOTH else (i18n.language(),)
    for path in handouts.hand_out(
        options.folder, options.names, languages=languages, form=options.form, force=options.force
    ):
        say(printable.inert(printable.name(str(path), printable.FACT)))
    return HEALTHY
