"""Users' prose: the notes of a spec are Markdown from somebody's file, rendered for each format so that nothing in it acts.

HTML gets emphasis, code, lists and paragraphs, by Python-Markdown and then through an allow-list; nothing of it becomes a link,
an image or markup of its own. Markdown keeps emphasis and code spans and escapes the rest. A terminal shows the plain text.
"""

from __future__ import annotations

import re

from markupsafe import Markup
from markupsafe import escape as html_escape

from reports.typeset import escape

TAGS = {"p", "em", "strong", "code", "pre", "ul", "ol", "li", "blockquote", "br"}
LONGEST = 4000  # what is longer is no note, and is shown as it is written
# Tags, links, images and headings are not read, so that what a note has of them is shown as it is written.
_NO_BLOCKS = ("hashheader", "setextheader", "hr", "reference")
_NO_INLINES = (
    "html", "link", "image_link", "image_reference", "reference", "short_reference", "short_image_ref", "autolink", "automail",
)  # fmt: skip
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LIST_OR_LINE = re.compile(r"\s*([*_]\s*)*$|\s*\*\s")


def html(text: str) -> Markup:
    """The note as HTML elements of ``TAGS`` without attributes."""
    import nh3

    shown = "\n".join(escape.visible(line) for line in text.split("\n"))
    if len(shown) > LONGEST:
        return html_escape(shown)
    try:
        read = _read(shown)
    except RecursionError:  # lists within lists within lists
        return html_escape(shown)
    clean = nh3.clean(read, tags=TAGS, attributes={}, link_rel=None).strip()
    alone = re.fullmatch(r"<p>((?:(?!<p>).)*)</p>", clean, re.DOTALL)
    return Markup(alone[1] if alone else clean)


def _read(text: str) -> str:
    from markdown import Markdown

    reader = Markdown()
    reader.preprocessors.deregister("html_block")
    for name in _NO_BLOCKS:
        reader.parser.blockprocessors.deregister(name)
    for name in _NO_INLINES:
        reader.inlinePatterns.deregister(name)
    return reader.convert(text)


def markdown(text: str) -> Markup:
    """The note on one line of Markdown: emphasis and code spans stand, everything else is literal."""
    shown = escape.visible(text).strip()
    if _LIST_OR_LINE.match(shown):
        return Markup(escape.markdown(shown))
    written, end = [], 0
    for span in _CODE_SPAN.finditer(shown):
        written += [escape.prose(shown[end : span.start()]), escape.markdown_code(span[2].strip())]
        end = span.end()
    return Markup("".join([*written, escape.prose(shown[end:])]))
