"""The text of a lab, and the kit's other documents, as HTML: tables, code that can be copied, links, pictures.

It is the kit's own text. Even so, HTML in it is escaped, and links lead only to the kit's documents and manifests, to
anchors, and by https to other sites.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from loosehanger.console.flowchart import drawing
from loosehanger.learn.exercise import without_front_matter
from loosehanger.learn.lab_text import BlockCommand, BlockError, read_commands
from loosehanger.paths import ROOT

DOCUMENTS = re.compile(r"(README|CONTRIBUTING|CHANGELOG)\.md|(docs|playbooks|monitoring|roles)/[\w./-]+\.md")
"""The documents that a page shows, by their paths in the checkout."""
PICTURES = re.compile(r"docs/[\w-]+\.png")
_FOLDED = re.compile(r"^<details><summary>([^\n]*)</summary>\n(.*?)^</details>$", re.MULTILINE | re.DOTALL)
_RUN = "/learn/run"


def lab_html(markdown: str, lab: str, exercise: int, place: int) -> Markup:
    """A section of a lab's text as HTML.

    Args:
        markdown: the section.
        lab: the scenario.
        exercise: the section's exercise, for the buttons that run its commands; 0 for no such buttons.
        place: the section's place in the text, where links to manifests stay.
    """
    return _html(markdown, f"playbooks/{lab}", {"exercise": exercise, "place": place})


def document_html(path: str) -> tuple[str, Markup] | None:
    """The title and the HTML of one of the kit's documents; None if there is no such document.

    Args:
        path: its path in the checkout.
    """
    file = kit_file(path, DOCUMENTS)
    if file is None:
        return None
    text = without_front_matter(file.read_text(encoding="utf-8")).strip()
    title, _, rest = text.partition("\n")
    return title.lstrip("# "), _html(rest, posixpath.dirname(path), {"exercise": 0, "place": 0})


def kit_file(path: str, allowed: re.Pattern[str]) -> Path | None:
    """A file of the checkout whose path a pattern allows; None if there is none."""
    if not allowed.fullmatch(path) or ".." in path.split("/"):
        return None
    file = ROOT / path
    return file if file.is_file() and file.resolve().is_relative_to(ROOT.resolve()) else None


def _html(markdown: str, folder: str, environment: dict[str, int]) -> Markup:
    parts, end = [], 0
    for found in _FOLDED.finditer(markdown):
        parts.append(_part(markdown[end : found.start()], folder, environment))
        parts.append(
            Markup("<details><summary>{}</summary>{}</details>").format(found[1], _part(found[2], folder, environment))
        )
        end = found.end()
    return Markup().join([*parts, _part(markdown[end:], folder, environment)])


def _part(markdown: str, folder: str, environment: dict[str, int]) -> Markup:
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("fence", _fence)
    reader.add_render_rule("table_open", _table_open)
    reader.add_render_rule("table_close", _table_close)
    tokens = reader.parse(markdown, environment)
    for place, (token, following) in enumerate(pairwise(tokens)):
        if token.type == "heading_open":
            token.attrSet("id", anchor(following.content))
        elif token.type == "th_open" and not following.content:
            # A screen reader has nothing to read of a header without text.
            token.tag = tokens[place + 2].tag = "td"
    for token in tokens:
        for child in token.children or ():
            _lead(child, folder, environment["place"])
    return Markup(reader.renderer.render(tokens, reader.options, environment))  # noqa: S704 - HTML in it is escaped


def anchor(heading: str) -> str:
    """The anchor that a heading has on GitHub, which the links of the documents use."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def _lead(token: Token, folder: str, place: int) -> None:
    """Changes a link or a picture of a document to its address in the console."""
    if token.type == "image":
        path = _within(folder, str(token.attrGet("src") or ""))
        token.attrSet("src", f"/scenario/picture?path={quote(path)}")
    elif token.type == "link_open":
        token.attrSet("href", _address(folder, str(token.attrGet("href") or ""), place))


def _address(folder: str, link: str, place: int) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return link if parts.scheme == "https" else "#"
    if not parts.path:
        return f"#{parts.fragment}"
    path = _within(folder, parts.path)
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    if kit_file(path, DOCUMENTS):
        return f"/scenario/document?path={quote(path)}{fragment}"
    if path.startswith(f"{folder}/") and path.endswith(".yaml"):
        return f"/scenario?section={place}&file={quote(str(PurePosixPath(path).relative_to(folder)))}#manifest"
    return f"/scenario/elsewhere?path={quote(path)}"


def _within(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _table_open(_: RendererHTML, _tokens: Sequence[Token], _index: int, _options: OptionsDict, env: EnvType) -> str:
    env["tables"] = number = int(str(env.get("tables", 0))) + 1
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table {number}"><table>'


def _table_close(_: RendererHTML, _tokens: Sequence[Token], _index: int, _options: OptionsDict, _env: EnvType) -> str:
    return "</table></div>"


def _fence(_: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    kind = token.info.strip()
    if kind == "mermaid" and (picture := drawing(token.content)):
        return str(picture)
    if kind == "console":
        try:
            return str(Markup().join(_console(read_commands(token.content, 1), int(str(env["exercise"])))))
        except BlockError:
            pass
    lines = Markup().join(_line(line, kind) for line in token.content.splitlines())
    return str(
        Markup('<div class="code"><pre><code>{}</code></pre>{}</div>').format(lines, _copy(token.content, kind or "it"))
    )


def _console(commands: Sequence[BlockCommand], exercise: int) -> Iterator[Markup]:
    """The commands of a block, each with its buttons, and the output that one may expect."""
    yield Markup('<div class="commands">')
    for command in commands:
        prompted = "\n> ".join(f"$ {command.text}".splitlines())
        run = _run(command, exercise) if exercise and not command.for_terminals else ""
        yield Markup('<div class="code command"><pre><code>{}</code></pre>{}{}</div>').format(
            prompted, _copy(command.text, command.text), run
        )
        if expected := "\n".join(line for _, line in command.output):
            yield Markup('<pre class="expected"><code>{}</code></pre>').format(expected)
    yield Markup("</div>")


def _copy(text: str, subject: str) -> Markup:
    # Hidden until a script makes it work.
    return Markup(
        '<button type="button" class="quiet small" data-copy="{}" hidden>Copy<span class="unseen"> {}</span></button>'
    ).format(text, _short(subject))


def _run(command: BlockCommand, exercise: int) -> Markup:
    return Markup(
        '<button class="small" form="actions" data-stay formaction="{}?exercise={}&amp;command={}">'
        'Run<span class="unseen"> {}</span></button>'
    ).format(_RUN, exercise, command.digest, _short(command.text))


def _short(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= 60 else f"{line[:60]}…"


def _line(line: str, kind: str) -> Markup:
    mark = {"+": "added", "-": "removed"}.get(line[:1], "") if kind == "diff" else ""
    if not mark or line.startswith(("+++", "---")):
        return escape(line) + "\n"
    return Markup('<span class="{}">{}</span>\n').format(mark, line)
