"""The writer of lines and tables on a terminal: nothing is cut, names and numbers stay whole, and no text acts."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.writers.terminal import PIPE_WIDTH, Head, Styled, Terminal, bold, right
from tests.reports import hostile
from tests.reports.inert import controls

QUANTITIES = ("parameters", "optimizer_state.bytes", "flops.backward.elementwise")
NUMBERS = ("19,210\u00a0elements", "1,234,153,696\u00a0bytes", "unknown")
HEADS: tuple[Head, ...] = ("Quantity", *right("Value"), "Closed form")
FORMS = ("d·f + f·K + f + K", "8·d·f + 8·f·K + 8·f + 8·K + 16", "no attention call of this model declares a causal mask")
ROWS = list(zip(QUANTITIES, NUMBERS, FORMS, strict=True))


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(width: int, heads: tuple[Head, ...] = HEADS, rows: list[tuple[str, ...]] | None = None) -> list[str]:
    out = io.StringIO()
    Terminal(width, out).table(heads, ROWS if rows is None else rows)
    return out.getvalue().splitlines()


def line(width: int, *parts: str | Styled) -> list[str]:
    out = io.StringIO()
    Terminal(width, out).line(*parts)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [140, 90, 60, 40])
def test_names_and_numbers_are_never_split(width: int) -> None:
    """At every width each name and each number is whole on one line, and no line is longer than the width."""
    shown = table(width)

    assert max(map(len, shown)) <= width
    assert [word for word in (*QUANTITIES, *NUMBERS) if not any(word in text for text in shown)] == []


@pytest.mark.parametrize("width", [90, 60, 55])
def test_a_name_is_not_split_to_be_indented(width: int) -> None:
    """A line goes on further left where a name needs it."""
    name, out = "torch._decomp.decompositions._log_softmax_backward_data", io.StringIO()
    Terminal(width, out).line("  source       ", name, hang=15)
    shown = out.getvalue().splitlines()

    assert max(map(len, shown)) <= width
    assert [text.strip() for text in shown] == ([f"source       {name}"] if width == 90 else ["source", name])


def test_a_table_that_fits_is_aligned_under_its_heads() -> None:
    """Numbers end in one column, texts begin in one."""
    assert [
        "Quantity                                   Value   Closed form",
        "─" * 105,
        "parameters                       19,210\u00a0elements   d·f + f·K + f + K",
        "optimizer_state.bytes        1,234,153,696\u00a0bytes   8·d·f + 8·f·K + 8·f + 8·K + 16",
        "flops.backward.elementwise               unknown   no attention call of this model declares a causal mask",
    ] == table(140)


def test_the_widest_text_is_folded_first() -> None:
    """Of 60 columns, 26 and 4 go to gaps and the other columns: the last has 30."""
    rows = [("a", "12,345", "one two three four five six seven eight nine")]

    assert [
        "Name   Value  Words",
        "─" * 40,
        "a     12,345  one two three four five",
        "              six seven eight nine",
    ] == table(40, ("Name", *right("Value"), "Words"), rows)


def test_a_table_that_does_not_fit_is_written_as_records() -> None:
    """One cell to a line, with its head."""
    assert [
        "parameters",
        "  Value: 19,210\u00a0elements",
        "  Closed form: d·f + f·K + f + K",
        "optimizer_state.bytes",
        "  Value: 1,234,153,696\u00a0bytes",
        "  Closed form: 8·d·f + 8·f·K + 8·f + 8·K",
        "    + 16",
    ] == table(40)[:7]


def test_rows_without_heads_are_aligned() -> None:
    assert ["a    b", "cc   d"] == table(30, (), [("a", "b"), ("cc", "d")])
    assert [] == table(30, (), [])


def test_a_long_product_breaks_behind_a_multiplication_dot() -> None:
    """A name of that length does not, unless it is longer than a whole line."""
    assert ["8·transformer·", "embedding·rows"] == line(16, "8·transformer·embedding·rows")
    assert ["see", "abcdefghijkl"] == line(12, "see abcdefghijkl")
    assert ["abcdefghijkl", "m"] == line(12, "abcdefghijklm")


def test_further_lines_are_indented_as_the_first() -> None:
    assert ["  one two", "  three"] == line(10, "  one two three")


def test_wide_characters_take_two_columns() -> None:
    """So columns behind a Chinese name stay aligned."""
    assert ["a      x", "模型   x"] == table(30, (), [("a", "x"), ("模型", "x")])


@given(st.text(st.sampled_from("ab ·."), max_size=80), st.integers(1, 30))
def test_folding_loses_nothing(text: str, width: int) -> None:
    """Every character but spaces at breaks is there, in order, and no line is too long."""
    shown = line(width, text.strip())

    assert max(map(len, shown), default=0) <= width
    assert re.sub(r"\s", "", text) == re.sub(r"\s", "", "".join(shown))


def test_styles_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe and NO_COLOR get plain text; a style ends with its text, where lines are folded too."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = _Screen()
    Terminal(8, screen).line("see ", bold("one two"))
    assert "see \x1b[1mone\x1b[0m\n\x1b[1mtwo\x1b[0m\n" == screen.getvalue()
    assert ["see one", "two"] == line(8, "see ", bold("one two"))
    monkeypatch.setenv("NO_COLOR", "1")
    screen = _Screen()
    Terminal(80, screen).line(bold("one"))
    assert "one\n" == screen.getvalue()


def test_no_text_acts_on_a_terminal() -> None:
    """In a line, a head, a cell, a styled one and a record."""
    out = io.StringIO()
    for width in (200, 20):
        terminal = Terminal(width, out)
        for text in hostile.ALL:
            terminal.line(text, bold(text))
            terminal.table((text, (text, "right")), [(text, text), (bold(text), [text, (text, bold(text))])])

    assert len(out.getvalue()) > 10_000
    assert controls(out.getvalue()) == []


def test_the_width_is_that_of_the_terminal_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while standard error goes to a file; COLUMNS overrides it, also in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)
    controlling, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 61, 0, 0))
    with open(terminal, "w") as file:
        own = Terminal(file=file)
        monkeypatch.setenv("COLUMNS", "53")
        overridden = Terminal(file=file)
    os.close(controlling)

    assert (own.is_terminal, own.width, overridden.width) == (True, 61, 53)
    assert Terminal(file=io.StringIO()).width == 53
    monkeypatch.delenv("COLUMNS")
    assert Terminal(file=io.StringIO()).width == PIPE_WIDTH
