"""The values of a document's names: quantities of models, answers of questions, properties of devices.

Checking a document runs no code from it: a model of the user's own is loaded only if the user names its file. Other files are read only
from the document's folder, unless the user names them.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from calc.errors import BadInputError
from calc.platform.progress import Progress
from calc.symbolic.assignments import read_assignments
from reports.jobs.request import PAIRS
from reports.live import units
from reports.live.document import MOST_LAYERS, Statement
from reports.live.language import LanguageError, UnitValue, WorkBudget, evaluate

_NAME = re.compile(r"[A-Za-z_]\w{0,59}")
# Cost of a statement in operations: stored closed forms are evaluated, other models are traced.
_EVALUATED, _TRACED = 500, 10_000
_KINDS = {"element": units.NUMBER, "byte": units.BYTE, "FLOP": units.FLOP}


class Named(Protocol):
    """Values by dotted name."""

    def value(self, path: str) -> UnitValue: ...


@dataclass(frozen=True, slots=True)
class NamedValues:
    """Values by name. ``label``: their owner, for messages."""

    label: str
    values: Mapping[str, UnitValue]

    def value(self, path: str) -> UnitValue:
        """The value at ``path``. Raises ``BadInputError`` with the nearest name if there is none."""
        if path not in self.values:
            raise BadInputError(f"{self.label} has no {path[:60]!r}: {_near(path, self.values)}it has {', '.join(list(self.values)[:40])}")
        return self.values[path]


@dataclass(frozen=True, slots=True)
class FailedStatement:
    """A statement that cannot be run, and why, in a message without its place; line and column count from 1. ``within``: the column is
    that of the error in the statement."""

    line: int
    column: int
    message: str
    within: bool

    def __str__(self) -> str:
        return f"line {self.line}{f', column {self.column}' if self.within else ''}: {self.message}"


class DependsError(BadInputError):
    """A name whose statement, on line ``on``, failed."""

    def __init__(self, on: int) -> None:
        super().__init__(f"depends on line {on}, which failed")
        self.on = on


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a document defines, in order, and its remaining work budget. ``undefined``: for each name that a failed statement
    would define, the line of the first failure."""

    results: dict[str, Named] = field(default_factory=dict)
    values: dict[str, UnitValue] = field(default_factory=dict)
    work: WorkBudget = field(default_factory=WorkBudget)
    failed: list[FailedStatement] = field(default_factory=list)
    undefined: dict[str, int] = field(default_factory=dict)

    def lookup(self, path: str) -> UnitValue:
        """The value of ``L`` or of ``g.memory.peak``. Raises ``BadInputError`` for an unknown name."""
        head, dot, tail = path.partition(".")
        if dot and head in self.results:
            return self.results[head].value(tail)
        if not dot and head in self.values:
            return self.values[head]
        if head in self.values:
            raise BadInputError(f"{head[:40]} is a number: it has no {tail[:40]!r}")
        if head in self.results:
            raise BadInputError(f"{head[:40]} is not a number: name one of its numbers, as {head[:40]}.parameters")
        if head in self.undefined:
            raise DependsError(self.undefined[head])
        defined = ", ".join([*self.values, *(f"{name}.…" for name in self.results)]) or "nothing"
        near = _near(head, (*self.values, *self.results)).rstrip()
        raise BadInputError(f"{head[:40]!r} is not defined above{f': {near}' if near else ''} (defined: {defined[:300]})")

    def free(self, name: str) -> str:
        """``name``, if it can be defined. Raises ``BadInputError`` if it is no name or defined already."""
        if not _NAME.fullmatch(name):
            raise BadInputError(f"{name[:40]!r} is not a name: use letters, digits and underscores")
        if name in self.results or name in self.values or name in self.undefined or name in ("max", "min"):
            raise BadInputError(f"{name} is already defined: choose another name")
        return name


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs the statements of a document. ``folder``: that of the document; ``files``: those that the user named; ``seconds``: what each
    derivation took so far."""

    folder: Path
    files: tuple[Path, ...] = ()
    cache: bool = True
    progress: Progress = lambda _: None
    seconds: list[float] = field(default_factory=list, compare=False)

    def run(self, statements: Sequence[Statement]) -> Scope:
        """The names after all statements, in order. A statement that fails is listed in ``failed``; the others still run. Raises
        ``BadInputError`` if the document takes too many operations."""
        scope = Scope()
        for statement in statements:
            try:
                self._run(statement, scope)
            except BadInputError as error:
                if scope.work.remaining < 0:
                    raise BadInputError(f"line {statement.line}: {error}") from None
                _record(error, statement, scope)
        return scope

    def _run(self, statement: Statement, scope: Scope) -> None:
        text = statement.text
        word = text.split(None, 1)[0]
        assigned = re.match(r"([A-Za-z_]\w*)\s*=(?!=)\s*", text)
        if assigned:
            try:
                scope.values[scope.free(assigned[1])] = evaluate(text[assigned.end() :], scope.lookup, scope.work)
            except LanguageError as error:
                raise LanguageError(str(error), error.column + assigned.end()) from None
            return
        makers = {"model": self._model, "ask": self._ask, "device": self._device}
        if word not in makers:
            near = "".join(f"did you mean {name}? " for name in difflib.get_close_matches(word, makers, n=1))
            raise BadInputError(
                f"unknown statement {word[:40]!r}: {near}write model … as NAME, ask … as NAME, device … as NAME, or NAME = …"
            )
        try:
            tokens = shlex.split(text)
        except ValueError as error:
            raise BadInputError(f"cannot read {text[:60]!r}: {error}") from None
        if len(tokens) < 4 or "as" not in tokens[2:]:
            raise BadInputError(f"{text[:60]!r} gives no name: write {word} {tokens[1] if len(tokens) > 1 else '…'} … as NAME")
        at = len(tokens) - 1 - tokens[::-1].index("as")
        if at + 1 >= len(tokens):
            raise BadInputError(f"{text[:60]!r} gives no name behind as")
        name, keywords = scope.free(tokens[at + 1]), read_assignments([*tokens[2:at], *tokens[at + 2 :]], PAIRS)
        _require_few_layers(keywords)
        scope.work.spend(_EVALUATED)
        scope.results[name] = makers[word](tokens[1], keywords, scope.work)

    def _model(self, model: str, keywords: Mapping[str, str], work: WorkBudget) -> Named:
        from calc.pipeline.precomputed import stored
        from reports.jobs.request import request_from

        request = request_from(model, keywords, self.cache)
        word = self._word(model)
        form = stored(word, request.options.to_json()) if self.cache else None
        if form is not None and form.covers(request.sizes):
            return ModelValues(model, form.derivation(request.sizes))
        from calc.models.load import require
        from reports.jobs import job

        work.spend(_TRACED)
        require(word)
        longest = f"the longest before it took {max(self.seconds):.0f} s" if self.seconds else "seconds, or minutes for a large model"
        self.progress(f"loading and tracing {model} ({longest})")
        begin = time.perf_counter()
        request = replace(request, model=word)
        traced = job.derive(request, self.progress)
        job.keep(request, traced)
        self.seconds.append(time.perf_counter() - begin)
        return ModelValues(model, traced)

    def _word(self, model: str) -> str:
        """The model argument with the path that the user named. Raises ``BadInputError`` for a file that the user did not name."""
        if model.startswith("hf:"):
            return f"hf:{self._file(model.removeprefix('hf:'))}"
        if ".py" not in model:
            return model
        file, colon, name = model.rpartition(":")
        alike = [path for path in self.files if colon and path.name == Path(file).name]
        matching = [path for path in alike if path.resolve() == (self.folder / file).resolve()] or alike
        if not matching:
            raise BadInputError(f"{model[:60]} is code: it runs only if you name the file, as napkin verify … --source {file[:60]}")
        if len(matching) > 1:
            raise BadInputError(f"{model[:60]} matches {len(matching)} files: name only one {Path(file).name[:40]} with --source")
        return f"{matching[0]}:{name}"

    def _file(self, path: str) -> Path:
        """The resolved path of a file that the document names: in its folder, with links followed, or one that the user named."""
        try:
            folder, place = self.folder.resolve(), (self.folder / path).resolve()
            place = (place / "config.json").resolve() if os.path.isdir(place) else place
            allowed = {where for file in self.files for where in (file.resolve(), (file / "config.json").resolve())}
            is_other = os.path.exists(place) and not stat.S_ISREG(os.stat(place).st_mode)
        except (OSError, ValueError, RuntimeError) as error:  # an impossible name, or a cycle of links
            raise BadInputError(f"cannot read {path[:60]}: {getattr(error, 'strerror', None) or error}") from None
        if not (place.is_relative_to(folder) or place in allowed):
            shown = path[:200]
            raise BadInputError(f"{shown} is outside the document's folder: name the file, as napkin verify … --source {shown}")
        if is_other:
            raise BadInputError(f"{path[:60]} is not a regular file: give the path of one")
        return place

    def _ask(self, question: str, keywords: Mapping[str, str], work: WorkBudget) -> Named:
        from calc.capacity.questions.equation_solver import answered
        from calc.capacity.questions.registry import question as question_of
        from calc.pipeline.precomputed import names

        if "model" in keywords:  # no code is run for a question either
            work.spend(0 if self.cache and keywords["model"] in names() else _TRACED)
            keywords = {**keywords, "model": self._word(keywords["model"])}
        if "hardware" in keywords:
            keywords = {**keywords, "hardware": str(self._file(keywords["hardware"]))}
        return NamedValues(f"the answer to {question}", _answered(answered(question_of(question), keywords, self.progress)))

    def _device(self, name: str, keywords: Mapping[str, str], _: WorkBudget) -> Named:
        from calc.hardware.accelerators import accelerator

        if keywords:
            raise BadInputError(f"a device has no {next(iter(keywords))[:40]!r} to set: leave it out")
        device = accelerator(name)
        values = {
            "memory": UnitValue(Fraction(device.memory), units.BYTE),
            "bandwidth": UnitValue(Fraction(device.bandwidth), units.BYTE_RATE),
        }
        for dtype, peak in device.peaks.items():
            values[dtype] = UnitValue(peak.dense, units.FLOP_RATE)
        if device.link is not None:
            values["link"] = UnitValue(Fraction(device.link), units.BYTE_RATE)
        if device.watts is not None:
            values["watts"] = UnitValue(Fraction(device.watts), units.WATT)
        return NamedValues(name, values)


def _record(error: BadInputError, statement: Statement, scope: Scope) -> None:
    """Record a failed statement, and the name that it would define."""
    within = error.column if isinstance(error, LanguageError) else 0
    scope.failed.append(FailedStatement(statement.line, statement.column + within, str(error), isinstance(error, LanguageError)))
    name = re.match(r"([A-Za-z_]\w*)\s*=(?!=)", statement.text) or re.search(r"\sas\s+([A-Za-z_]\w*)(?!.*\sas\s)", statement.text)
    if name and name[1] not in scope.results and name[1] not in scope.values:
        scope.undefined.setdefault(name[1], _cause(error, statement.line))


def _cause(error: BaseException | None, line: int) -> int:
    """The line whose failure made the one at ``line`` fail: that itself, unless it uses a name that is undefined since another failed."""
    while error is not None and not isinstance(error, DependsError):
        error = error.__context__  # an error at a column is raised from that of the name
    return line if error is None else error.on


def _require_few_layers(keywords: Mapping[str, str]) -> None:
    """Raise ``BadInputError`` for too many layers, since some steps are traced layer by layer. ``Decimal`` reads 1e999999999 cheaply."""
    for name in ("L", "layers"):
        with contextlib.suppress(InvalidOperation):  # whoever reads the size refuses what is not a number
            if Decimal(keywords.get(name, "0")) > MOST_LAYERS:
                raise BadInputError(f"{name} = {keywords[name][:40]}: a model in a document has at most {MOST_LAYERS:,} layers: give fewer")


@dataclass(frozen=True, slots=True)
class ModelValues:
    """The quantities and sizes of a derivation, by name."""

    word: str
    derivation: Any

    def value(self, path: str) -> UnitValue:
        """The size or quantity at ``path``, with its unit. Raises ``BadInputError`` if there is none or it is unknown."""
        if path in self.derivation.sizes:
            return UnitValue(Fraction(self.derivation.sizes[path]))
        if path not in self.derivation:
            near = _near(path, (*self.derivation, *self.derivation.sizes))
            raise BadInputError(f"{self.word[:40]} has no quantity {path[:60]!r}: {near}see napkin list quantities")
        quantity = self.derivation[path]
        if quantity.value is None:
            raise BadInputError(f"{path} of {self.word[:40]} is unknown: {quantity.unknown}")
        return UnitValue(Fraction(quantity.value), _KINDS[str(quantity.unit)])


def _near(name: str, names: Iterable[str]) -> str:
    """``did you mean 'memory.peak'? ``, also for another case and for one part of a name; empty if nothing is near."""
    every = list(names)
    close = (
        [candidate for candidate in every if candidate.lower() == name.lower()]
        or difflib.get_close_matches(name[:60], every, n=1)
        or [candidate for candidate in every if name and name in candidate.split(".")]
    )
    return f"did you mean {close[0][:60]!r}? " if close else ""


def _answered(answer: Any) -> dict[str, UnitValue]:
    """The values of an answer by letter and by key, with _ for -, which an expression reads as minus; the result also as ``answer``."""
    values: dict[str, UnitValue] = {}
    for line in (*answer.calculation.inputs, *answer.calculation.steps, *answer.beside):
        scaled = units.per_word(line.unit) or (units.NUMBER, Fraction(1))
        values[line.symbol] = UnitValue(line.value * scaled[1], scaled[0])
    for input_ in answer.inputs:
        if input_.symbol in values:
            values[input_.key] = values[input_.symbol]
    scaled = units.per_word(answer.unit) or (units.NUMBER, Fraction(1))
    values[answer.key] = values["answer"] = UnitValue(answer.value * scaled[1], scaled[0])
    return {name.replace("-", "_"): value for name, value in values.items()}
