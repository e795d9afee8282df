"""Pages made of a few kinds of blocks, written as one self-contained HTML file or as Markdown."""

import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from prefermab.common.files import write_atomically
from prefermab.errors import visible


@dataclasses.dataclass(frozen=True)
class Heading:
    """A heading; `name` is the anchor for links to it."""

    text: str
    level: int = 2
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph in Markdown; it may have `code`, **strong** and links within the page."""

    text: str


@dataclasses.dataclass(frozen=True)
class Bullets:
    """A list with bullet points."""

    items: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a grid; `mark`, a key of MARKS, says how its figure compares with another."""

    text: str
    mark: str = ""
    strong: bool = False


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table. A row with a single cell is a heading across all columns."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclasses.dataclass(frozen=True)
class Picture:
    """An SVG picture, its file name, and a caption that is also its text for screen readers."""

    name: str
    svg: str
    caption: str


Block = Heading | Text | Bullets | Grid | Picture

MARKS = {"better": "▲", "same": "●", "worse": "▼", "beyond": "◇", "": ""}

STYLE = """
:root { --ink: #1b1f24; --soft: #5b6570; --line: #d8dde3; --paper: #fff; --good: #1a7f37;
  --bad: #b3261e; --blue: #2563a8; color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p, li { max-width: 46rem; }
a { color: var(--blue); }
code { font: .88em ui-monospace, Menlo, Consolas, monospace; background: #f3f5f7;
  padding: .1em .3em; border-radius: 3px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .6rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 9rem; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; white-space: normal; }
td.across { text-align: left; font-weight: 600; background: #f3f5f7; white-space: normal; }
.words td { white-space: normal; text-align: left; }
.better .m { color: var(--good); } .worse .m { color: var(--bad); }
.worse { background: #fdf1f0; } .same .m, .beyond .m { color: var(--soft); }
figure { margin: 1rem 0 1.4rem; } figure svg { max-width: 100%; height: auto; }
figcaption { font-size: .88rem; color: var(--soft); max-width: 46rem; }
@media print { body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; } figure, tr { break-inside: avoid; } }
"""


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """The whole page as one HTML file."""
    body = "\n".join(_html(block) for block in blocks)
    return _visible_lines(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The whole page as Markdown; pictures are files in the folder `figures` beside it."""
    return _visible_lines(f"# {title}\n\n{blocks_as_markdown(blocks)}")


def blocks_as_markdown(blocks: Sequence[Block]) -> str:
    """Blocks as Markdown, without a title.

    >>> from prefermab.common.pages import Cell, Grid, blocks_as_markdown
    >>> print(blocks_as_markdown([Grid(["arms", "budget"], [[Cell("25"), Cell("7", "better")]])]))
    | arms | budget |
    |---|---|
    | 25 | 7 ▲ |
    <BLANKLINE>
    """
    return "\n".join(_markdown(block) for block in blocks)


def table_as_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of strings as Markdown."""
    return blocks_as_markdown([Grid(head, [[Cell(text) for text in row] for row in rows])])


def write_pages(
    folder: Path, title: str, blocks: Sequence[Block], others: Mapping[str, str] | None = None
) -> None:
    """Writes index.html, README.md and its pictures, and `others`: further texts by file name."""
    texts = {f"figures/{b.name}.svg": b.svg for b in blocks if isinstance(b, Picture)}
    texts |= {"index.html": as_html(title, blocks), "README.md": as_markdown(title, blocks)}
    for name, text in {**texts, **(others or {})}.items():
        write_atomically(folder / name, lambda draft, text=text: draft.write_text(text))


def _visible_lines(page: str) -> str:
    """A page with its control characters escaped; names from a table may contain them."""
    return "\n".join(visible(line) for line in page.split("\n"))


# Texts may contain names from a user's table, so HTML and links to other pages are not allowed.
_markdown_parser = MarkdownIt("zero").enable(["backticks", "emphasis", "link"])
_markdown_parser.validateLink = lambda url: url.startswith("#")
_inline = _markdown_parser.renderInline


def _html(block: Block) -> str:
    match block:
        case Heading(text, level, name):
            anchor = f' id="{name}"' if name else ""
            return f"<h{level}{anchor}>{_inline(text)}</h{level}>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Picture(_, svg, caption):
            drawn = svg[svg.index("<svg") :]
            label = f'<svg role="img" aria-label="{html.escape(caption, quote=True)}"'
            drawn = drawn.replace("<svg", label, 1)
            return f"<figure>{drawn}<figcaption>{_inline(caption)}</figcaption></figure>"
        case Grid(head, rows):
            width = len(head)
            top = "".join(f'<th scope="col">{_inline(name)}</th>' for name in head)
            lines = "\n".join(_html_row(row, width) for row in rows)
            # Sentences may wrap, figures may not.
            wraps = any(len(cell.text) > 60 for row in rows for cell in row if len(row) > 1)
            kind = ' class="words"' if wraps else ""
            return (
                f'<div class="scroll"><table{kind}><thead><tr>{top}</tr></thead>\n'
                f"<tbody>\n{lines}\n</tbody></table></div>"
            )


def _html_row(row: Sequence[Cell], width: int) -> str:
    if len(row) == 1:
        return f'<tr><td class="across" colspan="{width}">{_inline(row[0].text)}</td></tr>'
    cells = []
    for cell in row:
        mark = (
            f' <span class="m" title="{cell.mark}">{MARKS[cell.mark]}</span>' if cell.mark else ""
        )
        text = f"<strong>{_inline(cell.text)}</strong>" if cell.strong else _inline(cell.text)
        kind = f' class="{cell.mark}"' if cell.mark else ""
        cells.append(f"<td{kind}>{text}{mark}</td>")
    return "<tr>" + "".join(cells) + "</tr>"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level, name):
            anchor = f'<a id="{name}"></a>\n\n' if name else ""
            return f"{anchor}{'#' * level} {text}\n"
        case Text(text):
            return f"{text}\n"
        case Bullets(items):
            return "".join(f"- {item}\n" for item in items)
        case Picture(name, _, caption):
            return f"![{caption}](figures/{name}.svg)\n\n*{caption}*\n"
        case Grid(head, rows):
            lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
            for row in rows:
                texts = [_markdown_cell(cell, len(row) == 1) for cell in row]
                texts += [""] * (len(head) - len(row))
                lines.append("| " + " | ".join(texts) + " |")
            return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell, across: bool) -> str:
    text = f"**{cell.text}**" if (cell.strong or across) and cell.text else cell.text
    return f"{text} {MARKS[cell.mark]}".strip().replace("|", "\\|")
