"""Print a random sample of the repository's English, to read it with fresh eyes.

    python tests/sample_sentences.py --seed 1 --count 120

Samples sentences uniformly from docstrings, comments, error messages, command-line help and
Markdown pages. Each line is `file:line: [kind] sentence`; the same seed prints the same sample.
"""

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Sentence", "sample", "sentences"]

ROOT = Path(__file__).parent.parent
KINDS = ("docstring", "comment", "error", "help", "page")
HELP_ARGUMENTS = ("help", "description", "epilog")
MIN_WORDS = 3
"""Shorter texts are names or headings of sections, not sentences."""

END = re.compile(r"(?<!\bal)(?<!\bEq)(?<!\bEqs)[.!?][)\"'”*`]*$")
START = re.compile(r"[\"'“(*`\[]*[A-Z0-9`‖√∏Σ]")
MARKUP = re.compile(r"^(#+|[-*]|\d+\.|>) ")
ITEM = re.compile(r"[-*] |\S+ {2,}\S")
"""The start of a list item, or of a line of a table of words and their meanings."""
DIRECTIVE = re.compile(r"noqa|type:|pyright:|ruff:|!")


class Sentence(NamedTuple):
    """A sentence and where it starts."""

    file: str
    line: int
    kind: str
    text: str


class Line(NamedTuple):
    """A line of text and its number in the file."""

    number: int
    text: str


def sample(seed: int, count: int, path: str = "", root: Path = ROOT) -> list[Sentence]:
    """Return random sentences, the same for the same seed, of files whose path contains `path`."""
    found = [sentence for sentence in sentences(root) if path in sentence.file]
    return sorted(random.Random(seed).sample(found, min(count, len(found))))


def sentences(root: Path = ROOT) -> list[Sentence]:
    """Return all sentences of the repository, in the order of its files."""
    found = []
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.md")]):
        name = path.relative_to(root)
        if any(part.startswith((".", "_build", "runs")) for part in name.parts):
            continue
        text = path.read_text("utf-8")
        blocks = python_blocks(text) if path.suffix == ".py" else markdown_blocks(text)
        for kind, block in blocks:
            for line, sentence in split(block):
                if len(re.findall(r"[^\W\d_]{2,}", sentence)) >= MIN_WORDS:
                    found.append(Sentence(name.as_posix(), line, kind, sentence))
    return found


def python_blocks(source: str) -> Iterator[tuple[str, list[Line]]]:
    """Yield paragraphs of docstrings, comments, error messages and command-line help."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                for block in paragraphs(docstring_lines(node.value)):
                    yield "docstring", block
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for message in strings(node.exc):
                yield "error", [message]
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in HELP_ARGUMENTS:
                    for message in strings(keyword.value):
                        yield "help", [message]
    for block in comments(source):
        yield "comment", block


def docstring_lines(node: ast.Constant) -> list[Line]:
    """Return the lines of a docstring, the first one indented like the others."""
    first, *others = str(node.value).split("\n")
    indent = min((len(o) - len(o.lstrip()) for o in others if o.strip()), default=0)
    lines = [" " * indent + first.strip(), *others]
    return [Line(number, text) for number, text in enumerate(lines, start=node.lineno)]


def strings(node: ast.AST) -> Iterator[Line]:
    """Yield the string literals within an expression; f-strings keep their expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Line(node.lineno, node.value)
    elif isinstance(node, ast.JoinedStr):
        parts = (
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
        yield Line(node.lineno, "".join(parts))
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def comments(source: str) -> Iterator[list[Line]]:
    """Yield comments, those on consecutive lines of their own together."""
    block: list[Line] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string[1:].strip()
        alone = not token.line[: token.start[1]].strip()
        follows = block and alone and token.start[0] == block[-1].number + 1
        if not follows and block:
            yield block
            block = []
        if not DIRECTIVE.match(text):
            block.append(Line(token.start[0], text))
    if block:
        yield block


def markdown_blocks(text: str) -> Iterator[tuple[str, list[Line]]]:
    """Yield paragraphs, list items and table cells of a page, without code and formulas."""
    lines, fence = [], ""
    for number, line in enumerate(text.split("\n"), start=1):
        mark = next((m for m in ("```", "$$") if line.startswith(m)), "")
        if fence or mark:
            fence = "" if mark == fence else fence or mark
            lines.append(Line(number, ""))
        elif line.startswith("|"):
            cells = (Line(number, cell.strip()) for cell in line.strip("|").split("|"))
            lines += [part for cell in cells for part in (cell, Line(number, ""))]
        else:
            if MARKUP.match(line.strip()):
                lines.append(Line(number, ""))
            lines.append(Line(number, MARKUP.sub("", line.strip())))
    for block in paragraphs(lines):
        yield "page", block


def paragraphs(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield runs of lines with the same indentation, without doctests, rulers and tables."""
    block: list[Line] = []
    indent = 0
    for line in lines:
        text = line.text.strip()
        depth = len(line.text) - len(line.text.lstrip())
        skipped = not text or text.startswith((">>>", "...", "|", "---", "!["))
        item = ITEM.match(text)
        if block and (skipped or item or depth != indent):
            yield block
            block = []
        if not skipped:
            block.append(Line(line.number, text))
            indent = depth + 2 * bool(item and text[0] in "-*")
    if block:
        yield block


def split(block: list[Line]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a paragraph, each with the number of its first line."""
    words = [(line.number, word) for line in block for word in line.text.split()]
    first = 0
    for last, (_, word) in enumerate(words):
        ends = last + 1 == len(words) or (END.search(word) and START.match(words[last + 1][1]))
        if ends:
            yield words[first][0], " ".join(word for _, word in words[first : last + 1])
            first = last + 1


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description="Print random sentences of the repository.")
    parser.add_argument("--seed", type=int, default=0, help="number that fixes the sample")
    parser.add_argument("--count", type=int, default=120, help="how many sentences to print")
    parser.add_argument("--path", default="", help="only files whose path contains this text")
    options = parser.parse_args()
    for file, line, kind, text in sample(options.seed, options.count, options.path):
        print(f"{file}:{line}: [{kind}] {text}")


if __name__ == "__main__":
    main()
