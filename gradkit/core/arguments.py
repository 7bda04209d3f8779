"""The parser of a command line: what argparse says by itself, in the language that is spoken."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, NoReturn

from gradkit.core import console
from gradkit.core.i18n import words

_MESSAGES = {
    "required": r"the following arguments are required: (?P<names>.+)",
    "one_of": r"one of the arguments (?P<names>.+) is required",
    "choice": r"invalid choice: (?P<value>.+) \(choose from (?P<names>.+)\)",
    "value": r"invalid (?P<kind>\S+) value: (?P<value>.+)",
    "one": r"expected one argument",
    "some": r"expected at least one argument",
    "apart": r"not allowed with argument (?P<names>.+)",
    "explicit": r"ignored explicit argument (?P<value>.+)",
}
"""What argparse finds wrong, as it says it in English: the sentence ``cli.parser.<key>`` says the same."""


class Layout(argparse.RawDescriptionHelpFormatter):
    """A help as argparse lays it out; a ``%`` in a sentence is a ``%``."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """As argparse has it, with the word before it in the language that is spoken."""
        super().add_usage(usage, actions, groups, words("cli.parser.usage") if prefix is None else prefix)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help and action.help.replace("%", "%%")


class Parser(argparse.ArgumentParser):
    """Says what argparse says in the language that is spoken; it is not silent about a help that cannot be written.

    Args:
        **given: as for ``argparse.ArgumentParser``; ``add_help`` is not among them, for ``-h`` is there already.

    Example:
        >>> from gradkit.core.i18n import speaking
        >>> with speaking("zh"): Parser(prog="train").format_help().split()[-1]
        '显示这份帮助并退出'
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": Layout, "allow_abbrev": False, **given, "add_help": False})
        self._positionals.title = words("cli.parser.positionals")
        self._optionals.title = words("cli.parser.options")
        self.add_argument("-h", "--help", action="help", default=argparse.SUPPRESS, help=words("cli.parser.help"))

    def format_help(self) -> str:
        """The help, each heading followed by the colon of its language."""
        text = super().format_help()
        for group in (self._positionals, self._optionals):
            text = text.replace(f"\n{group.title}:\n", f"\n{words('cli.parser.heading', title=group.title)}\n")
        return text

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and end the process with status 2."""
        self.print_usage(sys.stderr)
        self.exit(2, words("cli.parser.error", program=self.prog, message=_said(message)) + "\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            console.say(message, end="")
            console.flush()
        else:
            console.tell(message.rstrip("\n"))


def _said(message: str) -> str:
    """What argparse finds wrong, in the language that is spoken; as argparse says it where we know no words for it."""
    if of := re.fullmatch(r"argument (?P<name>[^:]+): (?P<message>.+)", message, re.DOTALL):
        return words("cli.parser.argument", name=of["name"], message=_said(of["message"]))
    for key, pattern in _MESSAGES.items():
        if found := re.fullmatch(pattern, message, re.DOTALL):
            return words(f"cli.parser.{key}", **found.groupdict())
    return message
