"""Names that come from users' files must stay inert wherever they are printed: one escaper for each place.

HTML is escaped by Jinja2's autoescape (markupsafe); the rest is here.
"""

from __future__ import annotations

import re

from calc.symbolic.characters import BLANK, hidden

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&@:/-])")
_PROSE = re.compile(r"([\\`{}\[\]()<>#+!|~$&@:/-])")
_NUMBERED = re.compile(r"^(\s*\d{1,9})([.)])(?=\s|$)")
_ENTITY = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", ":": "&#58;", "/": "&#47;"}
_LONGEST_WORD = 300


def visible(text: str) -> str:
    """``text`` on one line with control, format, bidirectional and blank characters shown as ``\\x1b``, so none acts or hides."""
    return text if text.isprintable() and not BLANK.search(text) else "".join(_shown(c) for c in text)


def brief(text: str) -> str:
    """As ``visible``, with words too long for any message cut in the middle: a file's name can have thousands of characters. A space of
    another width than a blank's is shown as well: no message of ours has one, and in a name it would be taken for a blank."""
    shown = re.sub("[\u1680\u2000-\u200a\u202f\u205f\u3000]", lambda c: f"\\u{ord(c[0]):04x}", visible(text))
    return re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", _cut, shown)


def _cut(word: re.Match[str]) -> str:
    half = _LONGEST_WORD // 2
    return f"{word[0][:half]}…{word[0][-half:]}"


def _shown(c: str) -> str:
    if c in "\n\t\r":
        return " "
    if not hidden(c):
        return c
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def markdown(text: str) -> str:
    """``text`` as Markdown prints it literally: no emphasis, link, HTML, table cell, mention or mathematics begins in it.

    Punctuation that only matters at the start of a line or in an address is left alone where it cannot matter.
    """
    return _inert(_MARKDOWN, text)


def prose(text: str) -> str:
    """As ``markdown``, but emphasis by ``*`` and ``_`` stands."""
    return _inert(_PROSE, text)


def _inert(signs: re.Pattern[str], text: str) -> str:
    """With the signs escaped where they could act, and what acts without one of them: an address, a number that begins a list."""
    return _NUMBERED.sub(r"\1\\\2", signs.sub(_escaped_character, visible(text))).replace("www.", "www&#46;")


def _escaped_character(match: re.Match[str]) -> str:
    c, text = match.group(1), match.string
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if c in "-+#" and text[: match.start()].strip():
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
        return f"<code>{entities}</code>".replace("www.", "www&#46;")
    return f"`{shown}`"


def fenced(text: str) -> str:
    """``text`` for inside a fenced block: control characters shown, no line that could close the fence."""
    return "\n".join(visible(line).replace("```", "`\u200b``") for line in text.split("\n"))


def slug(text: str) -> str:
    """``text`` as an id or file name: letters, digits, dot, dash and underscore only, never empty, never hidden, bounded."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    if cleaned == text and len(cleaned) <= 80:
        return cleaned
    import hashlib  # costs a thirtieth of a command's start, which few names are worth

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{cleaned[:60].rstrip('-.')}-{digest}".lstrip("-.")
