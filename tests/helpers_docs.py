"""The pages of the documentation, their code blocks and links. CONTRIBUTING.md has the rules for blocks."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/results.md", "docs/results/", "docs/ablations.md", "docs/ablations/")
"""Written by `hacrl results`: pages link to them before they exist, and they show no code to run."""
PROGRAMS = ("hacrl", "make", "pip", "python", "pytest", "grep", "cd", "source")
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Block:
    """One block of code: a fence with its language, or lines indented by four blanks."""

    page: Path
    line: int
    """Of its first line of code, counted from 1."""
    language: str
    code: str
    title: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}, line {self.line}"


def pages() -> list[Path]:
    """All pages that people write."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    return sorted(page for page in found if not str(page.relative_to(ROOT)).startswith(GENERATED))


def tokens(page: Path) -> list[Token]:
    """The page as Markdown."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page in order."""
    for token in tokens(page):
        if token.type not in ("fence", "code_block"):
            continue
        assert token.map is not None
        language, _, rest = token.info.strip().partition(" ")
        title = re.fullmatch(r'title="(.+)"', rest)
        first = token.map[0] + (2 if token.type == "fence" else 1)
        block = Block(page, first, language, token.content, title[1] if title else None)
        yield block if token.type == "fence" else _indented(block)


def _indented(block: Block) -> Block:
    """Commands or output, told apart by the first word."""
    words = [word for word in block.code.split() if not ASSIGNMENT.fullmatch(word)]
    language = "sh" if words[0] in PROGRAMS else "text"
    if language == "text" and _is_python(block.code):
        raise AssertionError(f"{block}: Python belongs into a ```python fence, so that it is run")
    return Block(block.page, block.line, language, block.code, None)


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True


def commands(block: Block) -> list[list[str]]:
    """The commands of a block as words, without comments, assignments, redirections and what is piped on."""
    found = []
    for line in block.code.replace("\\\n", " ").splitlines():
        words = [word for word in shlex.split(line, comments=True) if not ASSIGNMENT.fullmatch(word)]
        ends = [words.index(sign) for sign in ("|", ">") if sign in words]
        if words:
            found.append(words[: min(ends)] if ends else words)
    return found


def links(page: Path) -> Iterator[str]:
    """Targets of links and pictures."""
    for token in tokens(page):
        for child in token.children or ():
            target = child.attrs.get("href" if child.type == "link_open" else "src")
            if child.type in ("link_open", "image"):
                yield str(target)


def anchors(page: Path) -> set[str]:
    """The headings as GitHub names them; mkdocs checks its own."""
    parsed = tokens(page)
    headings = [after for token, after in pairwise(parsed) if token.type == "heading_open"]
    texts = ["".join(child.content for child in heading.children or ()) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def inline_code(page: Path) -> Iterator[str]:
    """What stands between backticks."""
    for token in tokens(page):
        yield from (child.content for child in token.children or () if child.type == "code_inline")
