"""The user's source line of a call: the innermost frame on the stack that is not in torch or Napkin."""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = "site-packages/"
_OURS = ("site-packages/torch/", "site-packages/sympy/", "/calc/trace/", "/calc/graph/basis", "<")

Elsewhere = Callable[[], str]

_elsewhere: list[Elsewhere] = []


def user_line() -> str:
    """``file:line: source`` of who asked; where torch asks by itself, in a backward say, what it was doing."""
    return _innermost(traceback.walk_stack(sys._getframe(1))) or elsewhere()


def raising_line(error: BaseException) -> str:
    """``file:line: source`` of what raised ``error``."""
    return _innermost(reversed(list(traceback.walk_tb(error.__traceback__)))) or elsewhere()


@contextlib.contextmanager
def doing(what: Elsewhere) -> Iterator[None]:
    """Context in which ``what`` says what is being done when nobody's line is on the stack."""
    _elsewhere.append(what)
    try:
        yield
    finally:
        _elsewhere.pop()


def elsewhere() -> str:
    return _elsewhere[-1]() if _elsewhere else "a place of torch's own"


def _innermost(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The line of the first of ``frames``, innermost first, that is a user's."""
    for frame, line in frames:
        file = frame.f_code.co_filename
        if file.endswith("/calc/trace/step.py"):
            return ""  # what lies outside only called us
        if not is_foreign(file):
            return f"{_short(file)}:{line}: {linecache.getline(file, line).strip()[:80]}"
    return ""


@functools.cache
def is_foreign(path: str) -> bool:
    """Whether a file is torch's, Python's or this package's own recording, not one that a user wrote or chose."""
    if any(part in path for part in _OURS):
        return True
    return path.startswith(_STANDARD_LIBRARY) and _INSTALLED not in path


def _short(path: str) -> str:
    """A file's path without the part that depends on where Python or the project is installed."""
    for mark in (_INSTALLED, "/calc/"):
        if mark in path:
            return ("calc/" if mark == "/calc/" else "") + path.split(mark, 1)[1]
    return path.rsplit("/", 1)[-1]
