"""Names that come from users' files must stay inert wherever they are printed: one escaper for each place.

HTML is escaped by Jinja2's autoescape (markupsafe); the rest is here.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&@:/-])")
_PROSE = re.compile(r"([\\`{}\[\]()<>#+!|~$&@:/-])")
_ENTITY = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", ":": "&#58;", "/": "&#47;"}
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible(text: str) -> str:
    """``text`` on one line with control, format and bidirectional characters shown as ``\\x1b``, so none acts."""
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    if c in "\n\t\r":
        return " "
    if unicodedata.category(c) not in _INVISIBLE:
        return c
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def markdown(text: str) -> str:
    """``text`` as Markdown prints it literally: no emphasis, link, HTML, table cell, mention or mathematics begins in it.

    Punctuation that only matters at the start of a line or in an address is left alone where it cannot matter.
    """
    return _MARKDOWN.sub(_escaped_character, visible(text)).replace("www.", "www&#46;")


def prose(text: str) -> str:
    """As ``markdown``, but emphasis by ``*`` and ``_`` stands."""
    return _PROSE.sub(_escaped_character, visible(text)).replace("www.", "www&#46;")


def _escaped_character(match: re.Match[str]) -> str:
    c, text = match.group(1), match.string
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if c in "-+#!" and before and c != "!":
        return c  # a list, heading or rule begins a line only
    if c in "()" and before != "]":
        return c
    if c == "_" and before.isalnum() and after.isalnum():
        return c  # inside a word, an underscore is no emphasis
    if c == ":" and after != "/":
        return c
    if c == "/" and before not in ":/":
        return c
    if c == "@" and not (after.isalnum()):
        return c
    return _ENTITY.get(c, f"\\{c}")


def markdown_code(text: str) -> str:
    """``text`` as a code span that it cannot leave, fit for a table cell."""
    shown = visible(text)
    if not shown.strip():
        return "<code></code>"
    if "|" in shown or "`" in shown or "\\" in shown:
        # A code span takes no escapes, and a table splits at | even inside one: write the element out.
        entities = "".join(f"&#{ord(c)};" if not (c.isalnum() or c in " .,-=") else c for c in shown)
        return f"<code>{entities}</code>"
    return f"`{shown}`"


def fenced(text: str) -> str:
    """``text`` for inside a fenced block: control characters shown, no line that could close the fence."""
    return "\n".join(visible(line).replace("```", "`\u200b``") for line in text.split("\n"))


def slug(text: str) -> str:
    """``text`` as an id or file name: letters, digits, dot, dash and underscore only, never empty, never hidden, bounded."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    if cleaned == text and len(cleaned) <= 80:
        return cleaned
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[:60].rstrip('-.')}-{digest}".lstrip("-.")
