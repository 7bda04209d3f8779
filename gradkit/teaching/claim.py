"""What people believe about autograd, each put to the test by an experiment that anyone can change and run again.

``claims/<id>/{experiment.py,en.md,zh.md}``: the experiment has ``BELIEVED``, what would be seen if the belief were
right, and ``observe()``, which returns what is seen. The verdict is derived from the two
(:mod:`gradkit.teaching.experiment`).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradkit.core import i18n, package
from gradkit.core.errors import GradkitError
from gradkit.core.i18n import speaking, words
from gradkit.teaching import bilingual, experiment
from gradkit.teaching.experiment import Trial

TOPICS = ("modes", "freezing", "graph", "loss", "cures", "optimizer", "adapters", "precision")

_LABEL = re.compile(r"^- (\w+) \| (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Claim:
    """One belief and what became of it.

    Attributes:
        id: its name, and that of its folder.
        language: ``"en"`` or ``"zh"``.
        topic: one of ``TOPICS``.
        belief: in the words that people use.
        verdict: ``"true"``, ``"false"`` or ``"depends"``: what the text below says of it. Running it tells again.
        holds: of one that depends: the observations that are as believed.
        answer: in one sentence.
        why: CommonMark.
        instead: what to do, CommonMark.
        labels: what each observation is called.
        sources: addresses of public pages on which people say it, ask it, or pay for it.
        causes: the guides that have to do with it.
        needs: ``"cuda"``, or ``""`` if any machine will do.
    """

    id: str
    language: str
    topic: str
    belief: str
    verdict: str
    answer: str
    why: str
    instead: str
    labels: dict[str, str] = field(repr=False)
    holds: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    needs: str = ""

    @property
    def code(self) -> str:
        """The source of the experiment."""
        return _source(self.id)

    def run(self) -> Trial:
        """Run the experiment; one that needs what is not here is told from its record.

        Example:
            >>> claim("clone_detaches").run().verdict
            'false'
        """
        recorded = bool(self.needs) and not experiment.can(self.needs)
        return replace(
            experiment.from_record(_record(self.id)) if recorded else experiment.run_experiment(self.code),
            labels=self.labels,
        )

    def edit(self) -> None:
        """Put the experiment into a new cell below this one, to be changed and run.

        Raises:
            GradkitError: ``not_in_notebook``.
        """
        from IPython import get_ipython

        shell = get_ipython()
        if shell is None:
            raise GradkitError("not_in_notebook")
        shell.set_next_input(f"{self.code}\n\nimport gradkit\n\ngradkit.judge(BELIEVED, observe())")

    def _repr_markdown_(self) -> str:
        return markdown(self)


def claims(language: str | None = None) -> tuple[Claim, ...]:
    """All beliefs, by topic.

    Args:
        language: ``"en"``, ``"zh"``, or None for the one in use.

    Raises:
        GradkitError: ``unknown_language``.

    Example:
        >>> {one.verdict for one in claims("en")} == {"true", "false", "depends"}
        True
    """
    found = (claim(name, language) for name in claim_names())
    return tuple(sorted(found, key=lambda one: (TOPICS.index(one.topic), one.id)))


def claim(name: str, language: str | None = None) -> Claim:
    """One belief.

    Raises:
        GradkitError: ``no_such_claim``, ``unknown_language``.

    Example:
        >>> claim("clone_detaches", "en").verdict
        'false'
    """
    language = language or i18n.language()
    if language not in i18n.LANGUAGES:
        raise GradkitError("unknown_language", code=language)
    if name not in claim_names():
        raise GradkitError("no_such_claim", claim=name, known=", ".join(claim_names()))
    return _read(name, language)


@functools.cache
def claim_names() -> tuple[str, ...]:
    """The ids of all beliefs, in alphabetical order.

    Example:
        >>> "clone_detaches" in claim_names()
        True
    """
    return tuple(sorted(entry.name for entry in claims_folder().iterdir() if (entry / "experiment.py").is_file()))


def claims_folder() -> Path:
    """Where they lie."""
    return package.FOLDER / "teaching" / "claims"


def claims_about(cause: str) -> tuple[Claim, ...]:
    """The beliefs that have to do with a cause.

    Example:
        >>> "clone_detaches" in {one.id for one in claims_about("detach")}
        True
    """
    return tuple(one for one in claims() if cause in one.causes)


def markdown(claim: Claim, seen: Trial | None = None) -> str:
    """A belief as one CommonMark page; with ``seen``, what a run of its experiment has shown is in it."""
    with speaking(claim.language):
        page = [f"# {claim.belief}", f"**{words(f'claims.verdict.{claim.verdict}')}** {claim.answer}"]
        if seen is not None:
            page += [_head("seen"), replace(seen, labels=claim.labels).markdown()]
            page += [] if seen.verdict == claim.verdict else [changed(claim, seen)]
        page += [_head("why"), claim.why, _head("instead"), claim.instead]
        page += [_head("experiment"), f"```python\n{claim.code}\n```"]
        if claim.sources:
            page += [_head("sources"), "\n".join(f"- <{address}>" for address in claim.sources)]
    return "\n\n".join(page) + "\n"


def changed(claim: Claim, seen: Trial) -> str:
    """That a run has come out otherwise than the text says."""
    with speaking(claim.language):
        stated, found = (words(f"claims.verdict.{one}") for one in (claim.verdict, seen.verdict))
        return words("claims.changed", stated=stated, found=found)


def _head(part: str) -> str:
    return f"## {words(f'claims.part.{part}')}"


@functools.cache
def _read(name: str, language: str) -> Claim:
    facts, _ = bilingual.front_matter(_text(name, "en"))
    told, body = bilingual.front_matter(_text(name, language))
    text = {part: said for part, _, said in bilingual.paired_parts(body)}
    return Claim(
        name, language, facts["topic"], told["belief"], facts["verdict"], told["answer"], text["why"], text["instead"],
        labels=dict(_LABEL.findall(text["seen"])), needs=facts.get("needs", ""),
        **{key: tuple(facts.get(key, "").replace(",", " ").split()) for key in ("holds", "sources", "causes")},
    )  # fmt: skip


def _text(name: str, language: str) -> str:
    return (claims_folder() / name / f"{language}.md").read_text(encoding="utf-8")


@functools.cache
def _source(name: str) -> str:
    return (claims_folder() / name / "experiment.py").read_text(encoding="utf-8").strip()


def _record(name: str) -> str:
    return (claims_folder() / name / "record.json").read_text(encoding="utf-8")
