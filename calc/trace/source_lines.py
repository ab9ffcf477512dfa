"""The user's source line of a call: the innermost frame on the stack that is not in torch or Napkin."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import NamedTuple

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = "site-packages/"
# Files whose lines say nothing about the model: einops and einx only write operations of torch in another notation.
_OURS = (
    *("site-packages/torch/", "site-packages/sympy/", "site-packages/typing_extensions.py", "site-packages/einops/", "site-packages/einx/"),
    *("/calc/trace/", "/calc/experiment/", "/calc/graph/basis", "<"),
)

Elsewhere = Callable[[], str]


class SourceLine(NamedTuple):
    """A line of the user's code, by its ``place`` (``file:line``) and ``source``; or a description of what runs, without a place."""

    place: str
    source: str

    def __str__(self) -> str:
        return f"{self.place}: {self.source}" if self.place else self.source

    @property
    def before_message(self) -> str:
        """The line in front of a message; without its source where that is only the head of a call that raises it."""
        only_head = self.source.startswith("raise ") and self.source.endswith("(")
        return self.place if self.place and only_head else str(self)

    def then(self, message: str) -> str:
        """The source and what it raised."""
        return f"{self.source}: {message}" if self.place else message


_elsewhere: list[Elsewhere] = []


def user_line() -> str:
    """``file:line: source`` of the user's code that is running; inside torch (in a backward, for example), a description of what runs."""
    return str(running_line())


def running_line() -> SourceLine:
    """The line of the user's code that is running."""
    return _innermost(traceback.walk_stack(sys._getframe(1))) or SourceLine("", elsewhere())


def raising_line(error: BaseException) -> SourceLine:
    """The line of the code that raised ``error``."""
    return _innermost(reversed(list(traceback.walk_tb(error.__traceback__)))) or SourceLine("", elsewhere())


def raising_lines(error: BaseException) -> list[str]:
    """The lines that raised an error and its causes; and where a condition decides that one is raised, the lines of the condition."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        frames = ((frame.f_code.co_filename, line) for frame, line in reversed([*traceback.walk_tb(cause.__traceback__)]))
        file, line = next(((file, line) for file, line in frames if not is_foreign(file)), ("", 0))
        lines += [str(_line(file, number)) for number in (line, *_conditions_in(file).get(line, ()))]
        cause = cause.__cause__
    return lines


@functools.cache
def _conditions_in(file: str) -> dict[int, range]:
    """The lines of each condition of a file, by the line of the ``raise`` that it decides about."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # no source
        return {}
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)]
    return {node.body[0].lineno: range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1) for node in branches}


@contextlib.contextmanager
def doing(work: Elsewhere) -> Iterator[None]:
    """Context in which ``work`` describes the running work when the stack has no line of a user."""
    _elsewhere.append(work)
    try:
        yield
    finally:
        _elsewhere.pop()


def elsewhere() -> str:
    """The running work in words, for an error whose stack has no line of a user."""
    return _elsewhere[-1]() if _elsewhere else "torch's own code"


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> SourceLine | None:
    """The first user's line in ``frames``, innermost first."""
    for frame, line in frames:
        file = frame.f_code.co_filename
        if file.endswith("/calc/trace/step.py"):
            return None  # the outer frames only called us
        if not is_foreign(file):
            return _line(file, line)
    return None


def _line(file: str, line: int) -> SourceLine:
    """The line of a file, a longer one cut with an ellipsis."""
    source = linecache.getline(file, line).strip().rstrip(":")
    return SourceLine(f"{_short(file)}:{line}", f"{source[:_LONGEST]}{'…' if len(source) > _LONGEST else ''}")


_LONGEST = 80  # characters of source


@functools.cache
def is_foreign(path: str) -> bool:
    """Whether a file belongs to torch, Python or this package's tracing, rather than to code that a user wrote or chose."""
    if any(part in path for part in _OURS):
        return True
    return path.startswith(_STANDARD_LIBRARY) and _INSTALLED not in path


def _short(path: str) -> str:
    """A file's path without the part that depends on where Python or the project is installed."""
    for mark in (_INSTALLED, "/calc/"):
        if mark in path:
            return ("calc/" if mark == "/calc/" else "") + path.split(mark, 1)[1]
    return path.rsplit("/", 1)[-1]
