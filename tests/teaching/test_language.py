"""Words and sentences that readers stumbled over, in either language: they may stand on no page again."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import nbformat
import pytest

from gradkit.core.i18n import catalogue

REPO = Path(__file__).parents[2]
READ = [("", "*.md"), ("docs", "*.md"), ("gradkit/teaching", "**/*.md"), ("gradkit/teaching/books", "**/*.py")]
SAID = ("CHANGELOG.md", "CHANGELOG.zh.md")  # they may say what was changed

ENGLISH = {
    "hands its grid": "gives its grid a gradient of zeros",
    "lets it count nothing": "multiplies the result by zero",
    "its backward gets nothing for": "its backward is not asked for a gradient",
    "where what took the place": "which line returns the value that replaces",
    "thaw": "unfreeze",
    "starved:": "no gradient:",
    "elements that should train": "values that should train",
    "hold every claim": "back up its claims",
    "nothing is run": "runs nothing",
    "read off": "read from",
    "{n} to change": "findings to fix",
    "1 to change": "1 finding to fix",
    "round value": "prints 0.0",
    "with this undone": "in a rerun without it",
    "brings a history along": "reuses a graph that backward() has already freed",
    "used up is needed once more": "part of this graph was already freed",
    "works without the value that it was handed": "does not use its argument",
    "outside cannot beat it": "cannot override it",
    "hand every tensor that should learn to": "pass every tensor ... as an argument of",
    "could be compared with zero": "Not checked for zero: no gradient arrived",
    "accuses what is none of": "found a problem elsewhere",
    "what comes behind it; but what comes before": "later layers still learn, but earlier layers",
    "guilty batch": "the batch at fault",
    "comes alive when": "run this cell to use it",
    "or say it": "or type an expression",
    "heard in another way": "gradkit records them separately",
    "told line by line": "gradkit decides for each line",
    "in vain": "that never come",
    "behind autograd's back": "without their history",
    "taken over no elements": "applied to an empty tensor",
    "What the last run showed": "The last run",
    "foretells": "predicts",
    "Sound:": "Healthy:",
    "Esc lets go": "Esc deselects",
    "as it was before, it is in": "holds it as it was before",
    "speak Chinese by themselves": "switch gradkit to Chinese",
    "only known from others": "what others have reported",
    "Errors that are no cut": "other backward errors",
    "hook of yours": "your hook",
    "Put that right": "Fix that",
    "is to learn": "should learn",
    "are to learn": "should learn",
    " anew": " again",
    "mended": "fixed",
}

CHINESE = {
    "撤销路上的切断": "撤销沿途的切断",
    "修法": "修复建议、改法",
    "放在单机上": "不用 DDP",
    "各台机器": "各个进程",
    "--> eye -->": "eye, frozen, as in the English drawing",
    "第一个丢掉梯度的调用": "最先丢失梯度的调用",
    "迷思": "误区",
    "断点": "切断处",
    "只有空标注": "只来得及标注",
    "、抛物": "抛掷",
    "电平": "对数能量",
    "撤掉": "撤销",
    "压不过": "无法覆盖",
    "认得通往": "真正连着",
    "一丁点": "一小部分",
    "整整齐齐": "打印的是 0.0 和 None",
    "没有观察到可": "没有得到梯度",
    "有 0 个得到": "没有一个得到",
    "被掩码盖住": "被掩码屏蔽",
    "缩放系数": "缩放因子",
    "词嵌入": "嵌入层",
    "嵌入表": "嵌入层",
    "输出层": "输出头、分类头",
    "动作头": "识别动作的输出头",
    "可重入式": "可重入的",
    "梯度检查点": "激活检查点",
    "记录早已恢复": "梯度模式早已恢复",
    "指责": "列为原因",
    "追究": "列为原因",
    "点“诊断”": "点“开始诊断”",
    "有一段路缺失": "回传路径缺了一段",
    "也没有放大什么": "也没有做任何缩放",
    "对这一层和它后面的层确实如此": "这一层确实冻结了",
}

COUNTED = re.compile(r"(?:\{(?:n|all|total|size|count)\}|\d) 个(?:应当训练的|冻结的)?参数(?!张量)")


@functools.cache
def pages() -> dict[str, str]:
    """Every text that a reader is given, by its path."""
    found = [path for folder, pattern in READ for path in (REPO / folder).glob(pattern)]
    found += (REPO / "gradkit/locales").rglob("*.toml")
    texts = {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in found if path.name not in SAID}
    return {path: re.sub(r"\s+", " ", text) for path, text in texts.items()}


def standing(word: str) -> list[str]:
    """The pages that hold the word; it may be the name of a sentence, or the end of another word."""
    searched = re.compile(rf"(?<!\w){re.escape(word)}(?! = )") if word.isascii() else re.compile(re.escape(word))
    return [path for path, text in pages().items() if searched.search(text)]


@pytest.mark.parametrize("word", ENGLISH)
def test_english_that_readers_stumbled_over_stands_on_no_page(word: str) -> None:
    assert standing(word) == [], f"say: {ENGLISH[word]}"


@pytest.mark.parametrize("word", CHINESE)
def test_chinese_that_readers_stumbled_over_stands_on_no_page(word: str) -> None:
    assert standing(word) == [], f"say: {CHINESE[word]}"


def test_chinese_counts_of_tensors_are_not_counts_of_elements() -> None:
    """A count of tensors is one of 参数张量; a count of numbers is one of 元素, or a 参数量."""
    assert {path: found for path, text in pages().items() if (found := COUNTED.findall(text))} == {}


def test_the_programs_of_the_cases_print_chinese_in_the_chinese_notebook() -> None:
    """What a program says up to its first fact, where the two languages say it differently."""
    english, chinese = catalogue("en"), catalogue("zh")
    programs = [key for key in english if key.startswith("case.") and english[key] != chinese[key]]
    said = [english[key].split("{")[0].strip() for key in programs]
    page = nbformat.read(REPO / "docs/notebooks/zh/cases/vision_memory.ipynb", as_version=4)
    printed = "".join(str(output.get("text", "")) for cell in page.cells for output in cell.get("outputs", ()))
    assert chinese["case.forward"] in printed
    assert [words for words in said if len(words) > 8 and words in printed] == []
