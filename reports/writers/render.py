"""The Jinja2 environment that both writers share: undefined names are errors, and what is not marked safe is escaped."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from calc.errors import BadInputError, suggestion
from reports.page.build import SECTIONS
from reports.typeset.escape import visible
from reports.typeset.wording import model_title

TEMPLATES = Path(__file__).resolve().parent.parent.parent / "templates"

Filter = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Look:
    """Which template writes a page, and the folder of a user's templates that override the built-in ones."""

    template: str = "report.j2"
    folder: Path | None = None


PLAIN = Look()


class Sectioned(Protocol):
    """A page of any kind."""

    @property
    def sections(self) -> Mapping[str, str]: ...


def look_of(template: str, folder: str) -> Look:
    """The look of a template by its name, ``homework`` say, and of a user's own folder; what is not there is refused before any work."""
    own = Path(folder) if folder else None
    if own is not None and not os.path.isdir(own):  # os.path, unlike Path, says no to names that no file can have
        raise BadInputError(f"{folder} is not a folder of templates")
    if own is not None and not any((*own.glob("*.j2"), *own.glob("report.css"))):
        raise BadInputError(f"{folder} holds no template (.j2) and no report.css: leave --templates out, or name the folder that does")
    name = f"{template or 'report'}.j2"
    places = [TEMPLATES] if own is None else [own, TEMPLATES]
    if not re.fullmatch(r"[\w-]{1,60}", template or "report") or not any((place / name).is_file() for place in places):
        names = sorted({file.stem for place in places for file in place.glob("*.j2")} - _PARTS)
        raise BadInputError(f"unknown template {template[:60]!r}: {suggestion(template, names)}")
    return Look(name, own)


# Macros of a format, and what is no report of a model.
_PARTS = {
    *("html", "markdown", "latex", "lecture", "roofline", "comparison", "side-by-side", "by-part", "same-steps", "exercises"),
    *("scripted", "what-if", "site", "questions", "step-names"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Format:
    """What a page is written in: the template of its macros, what printed values pass through, and filters of its own."""

    macros: str
    escape: Callable[[str], str] | None
    filters: Mapping[str, Filter]


# What a template of a user's own may take. Reports of large models have 10⁶ characters, and are made in a second.
_MOST_CHARACTERS = 50_000_000
_MOST_ELEMENTS = 1_000_000  # of a text or list made by *
_MOST_BITS = 10_000  # of an integer made by * or **
_MOST_MEMORY = 2 * 2**30
_MOST_SECONDS = 60.0


class _TooMuch(Exception):
    """A template asks for more than a report can need."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which * and ** make nothing that fills the memory or takes minutes; they are the operators that can."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator_: str, left: Any, right: Any) -> Any:
        if operator_ == "**":
            return _power(left, right)
        for sequence, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(sequence, "__len__") and len(sequence) * times > _MOST_ELEMENTS:
                raise _TooMuch(f"a text or list of {len(sequence) * times:,} elements, of {_MOST_ELEMENTS:,} at most")
        return _small(operator.mul(left, right))


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MOST_BITS:
        raise _TooMuch(f"a number of {left.bit_length() * right:,} bits, of {_MOST_BITS:,} at most")
    return operator.pow(left, right)


def _small(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise _TooMuch(f"a number of {value.bit_length():,} bits, of {_MOST_BITS:,} at most")
    return value


def environment(
    escape: Callable[[str], str] | None,
    filters: Mapping[str, Filter],
    sections: Iterable[str] = SECTIONS,
    folder: Path | None = None,
) -> jinja2.Environment:
    """An environment whose printed values pass through ``escape``; without one, they are HTML, in which control characters are shown as
    well. ``sections`` are numbered in order.

    Jinja's autoescape is on in either case: it keeps apart what a macro made (safe) from what a name brought (not). Templates run in
    Jinja's sandbox: one that somebody brought can read the page and nothing else.
    """

    def finalize(value: object) -> object:
        if hasattr(value, "__html__"):
            return value
        if escape is None:
            return "\n".join(map(visible, str(value).split("\n")))
        return Markup(escape(str(value)))

    env = _Sandbox(
        loader=jinja2.FileSystemLoader([TEMPLATES] if folder is None else [folder, TEMPLATES]),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters.update({"model_title": model_title, **filters})
    env.globals["numbers"] = {name: str(i) for i, name in enumerate(sections, 1)}
    return env


# Our templates do not change while a process runs, and take longer to compile than to fill in. A user's own are compiled for each page.
@functools.lru_cache(maxsize=32)
def _ours(form: Format, sections: tuple[str, ...]) -> jinja2.Environment:
    return environment(form.escape, form.filters, sections)


def render(form: Format, page: Sectioned, look: Look, **context: object) -> str:
    """A page in one format: a document's template over the format's macros. What is wrong with a template is one line that names it."""
    sections = tuple(page.sections)
    env = _ours(form, sections) if look.folder is None else environment(form.escape, form.filters, sections, look.folder)
    try:
        with contextlib.nullcontext() if look.folder is None else _bounded():
            return _filled(env.get_template(look.template).generate(page=page, macros=form.macros, **context))
    except jinja2.TemplateNotFound as error:
        raise BadInputError(f"no template {error.name}: the folder of --templates needs it") from None
    except jinja2.TemplateSyntaxError as error:
        raise BadInputError(f"template {error.name}, line {error.lineno}: {error.message}") from None
    except MemoryError as error:
        name, line = _place(error, look)
        raise BadInputError(
            f"template {name}, line {line}: it takes more memory than {_MOST_MEMORY / 2**30:g} GiB: make less of it"
        ) from None
    except _ERRORS as error:
        name, line = _place(error, look)
        raise BadInputError(f"template {name}, line {line}: {error}") from None


_ERRORS = (
    jinja2.TemplateError, _TooMuch, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError, OSError,
)  # fmt: skip


def _filled(parts: Iterable[str]) -> str:
    texts, length = [], 0
    for part in parts:
        texts.append(part)
        length += len(part)
        if length > _MOST_CHARACTERS:
            raise _TooMuch(f"a page of more than {_MOST_CHARACTERS:,} characters")
    return "".join(texts)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Loops of a template end, and what it makes fits the memory, where the system can see to it."""
    with _within_memory(), _within_time():
        yield


@contextlib.contextmanager
def _within_time() -> Iterator[None]:
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, __: FrameType | None) -> None:
        raise _TooMuch(f"it takes more than {_MOST_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, _MOST_SECONDS, _MOST_SECONDS)  # again, where code that ignores exceptions took the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _within_memory() -> Iterator[None]:
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # a system that does not say
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + _MOST_MEMORY
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _place(error: BaseException, look: Look) -> tuple[str, int]:
    """The template and line where an error arose: the innermost one of the traceback, which Jinja writes in terms of templates."""
    places = [(Path(f.filename).name, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    if not places and look.folder is None:
        raise error
    return places[-1] if places else (look.template, 1)
