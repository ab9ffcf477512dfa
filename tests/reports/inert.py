"""Whether a text that was made of hostile names is inert: what a reader of each format makes of it, beside the same text of plain names."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from calc.derive.rules_of_thumb import RULES
from reports.typeset.prose import TAGS
from reports.writers import tex
from tests.reports import allowed

CITED = {rule.link for rule in RULES}
BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
ACTING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def controls(text: str) -> list[str]:
    """Characters that act on a terminal or on the direction of a text, and those that show nothing, line ends apart."""
    return [c for c in text if c != "\n" and (unicodedata.category(c) in ACTING or c in BLANK)]


LETTERS = {"wbr", "small", "span", "i", "sub", "sup"}  # what breaks a long name, and what formulas are set in


class Elements(HTMLParser):
    """Elements and attributes of a page, counted; those that formulas and users' emphasis make are left out of the count."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[tuple[str, str]] = set()
        self.addresses: set[str] = set()
        self.other: list[str] = []
        self.maths = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.maths += tag == "math"
        if not self.maths and tag not in TAGS | LETTERS:
            self.tags[tag] += 1
        self.attributes |= {(tag, name) for name, _ in attrs}
        self.addresses |= {value or "" for name, value in attrs if name in ("href", "src", "action")}

    def handle_endtag(self, tag: str) -> None:
        self.maths -= tag == "math"

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)


def html_is_inert(text: str, plain: str) -> None:
    """The elements are those of the plain page, one by one; no attribute is new, no address but citations and places of the page."""
    actual, usual = Elements(text), Elements(plain)

    assert actual.tags == usual.tags
    assert actual.attributes <= usual.attributes
    assert {address for address in actual.addresses if not address.startswith("#")} <= CITED
    assert actual.other == usual.other
    assert controls(text) == []


_EMPHASIS = {"em_open", "em_close", "strong_open", "strong_close", "code_inline", "html_inline", "text", "softbreak"}
_EMPHASIS |= {"inline", "paragraph_open", "paragraph_close"}  # a name of spaces leaves none


def read(text: str) -> tuple[Counter[str], list[str], list[str]]:
    """Kinds of tokens, raw HTML, and addresses, as a Markdown reader sees them. Text and emphasis are left out of the count, and so are
    formulas, whose lines are parted by their length: what a sign is written as is longer than a letter."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    kinds = Counter(token.type for token in every if token.type not in _EMPHASIS and (token.type, token.info) != ("fence", "math"))
    raw = [token.content for token in every if token.type in ("html_block", "html_inline")]
    return kinds, raw, [str(token.attrs.get("href", token.attrs.get("src"))) for token in every if {"href", "src"} & token.attrs.keys()]


def markdown_is_inert(text: str, plain: str) -> None:
    """The tables, headings, lists, fences and links of the plain page; HTML is anchors, folds and code; nothing links by itself."""
    kinds, raw, addresses = read(text)
    inputs = re.compile(r"<!-- napkin-inputs .*? -->")

    assert kinds == read(plain)[0]
    for element in re.findall(r"<[^>]*>", inputs.sub("", " ".join(raw))):
        assert re.fullmatch(r'</?(?:code|details|summary)>|<a id="[A-Za-z0-9._-]+">|</a>', element)
    assert {address for address in addresses if not address.startswith("#")} <= CITED
    bare = re.sub(r'```.*?```|<a id="[^"]*">|\]\([^)\s]*\)|`[^`\n]*`', "", inputs.sub("", text), flags=re.DOTALL)
    assert not re.search(r"https?://|\bwww\.|@\w", bare)
    assert controls(text.replace("\u200b", "")) == []  # which breaks up a fence in a command
    for formula in [*re.findall(r"```math\n(.*?)\n```", text, re.DOTALL), *re.findall(r"\$`(.*?)`\$", text)]:
        assert allowed.commands_in(formula) <= allowed.COMMANDS | {r"\begin", r"\end", "\\\\"}


_SIGN = re.compile(r"\\[A-Za-z]+|\\.", re.DOTALL)
_PRINTING = allowed.COMMANDS | {r"\ensuremath", r"\allowbreak", r"\mathrm"}
_PRINTING |= {command for sign in (*tex._SPECIAL.values(), *tex._MATHS.values()) for command in _SIGN.findall(sign)}


def commands(text: str) -> Counter[str]:
    """Commands outside comments, those that print one sign left out."""
    body = re.sub(r"(?m)^%.*$", "", text)
    return Counter(sign for sign in _SIGN.findall(body) if sign.startswith("\\") and len(sign) > 1 and sign[1].isalpha())


def latex_is_inert(text: str, plain: str) -> None:
    """Commands that do something stand as often as on the plain page; braces are closed, and no comment hides a line's rest."""
    actual, usual = commands(text), commands(plain)
    body = re.sub(r"(?m)^%.*$|\\.", "", text)

    assert {c: n for c, n in actual.items() if c not in _PRINTING} == {c: n for c, n in usual.items() if c not in _PRINTING}
    assert body.count("{") == body.count("}")
    assert "%" not in body
    assert "^^" not in body
    assert controls(text) == []
