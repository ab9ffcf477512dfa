"""Symbolic sizes: torch's ``SymInt`` over SymPy, with a ``ShapeEnv`` that evaluates guards at the hints.

Torch's own ``ShapeEnv`` reasons over value ranges and may silently specialize a symbol. ``SizeEnv`` evaluates every guard at the hints and
notes it as an assumption of the derivation. It never specializes: a size that is read as a number (``range(n)``, ``int(n)``) raises
``SpecializationError`` with the line that read it. Only trip counts may be read, and polynomials in them: their values are numbers in each
run.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import sympy as sp
import torch

from calc.errors import DataDependentError, Failure, ReadByTorchError, RoundedShareError, SizesError, SpecializationError
from calc.graph.step import Guard
from calc.platform.replaced import replaced
from calc.platform.torch_private import ConstantSource, DimDynamic, FloorDiv, ShapeEnv, SymNode, current_node
from calc.trace.size_text import guard_text, has_other_text, simplified, size_text
from calc.trace.source_lines import running_line, user_line

# Autograd nodes that read sizes as numbers without effect on other operators or sizes. One reads the number of elements
# to enumerate, and the recorder enumerates as many as there are symbols for; the other divides by a number of elements
# (as_strided_backward and batchnorm_double_backward in torch/csrc/autograd/FunctionsManual.cpp).
NUMBERING, DIVIDING = "AsStridedBackward0", "NativeBatchNormBackwardBackward0"
_DIVISIONS = {"FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod"}

# Evaluated expressions of sizes, each with its value and the line that evaluated it.
Evaluations = Mapping[Any, tuple[Any, str]]

_runs = itertools.count()


# Where torch's C++ code, after 2.13, reads the sizes of a tensor as numbers (TensorImpl::sizes); earlier it dispatches aten.size.
_OF_TENSORS = "SymbolicShapeMeta.cpp"
# Methods of a symbolic double that give a plain number.
_TO_PLAIN = frozenset({"__float__", "__hash__", "as_integer_ratio", "hex", "is_integer"})


def read_by_torch() -> ReadByTorchError:
    """The error for a step in which torch's C++ code reads sizes as numbers."""
    line = running_line()
    unseen = "a trace cannot see what depends on them, so no closed form follows"
    statement = f"torch reads the sizes of a tensor as numbers at {line}: {unseen}"
    return ReadByTorchError(Failure(statement, advice="write that part with other operators", where=str(line), about=line.source))


def refuse_undivided(env: SizeEnv | None) -> None:
    """Raise SizesError if torch's C++ code, which reads sizes as numbers, has just asked for a division that leaves a remainder: they are
    for the message of its own error."""
    line = running_line()
    remainders = tuple(env.last_remainders(str(line))) if env is not None else ()
    if remainders and type(current_node()).__name__ not in (NUMBERING, DIVIDING):
        error = SizesError(Failure(f"torch raises an error about sizes at {line}", details=remainders, where=str(line), about=line.source))
        error.said = "; ".join(remainders)
        raise error


@contextlib.contextmanager
def refusing_torch_reads(env: SizeEnv | None) -> Iterator[None]:
    """Context that refuses a step if torch's C++ code reads sizes as numbers, except in autograd nodes whose results do not depend on them.
    Lines that read a double computed from sizes are noted in ``env``."""
    if env is None:
        yield
        return
    guard, guard_double = SymNode.guard_int, SymNode.guard_float

    def guard_int(node: Any, file: str, line: int) -> int:
        if file.endswith(_OF_TENSORS) and env.is_tracing() and type(current_node()).__name__ not in (NUMBERING, DIVIDING):
            refuse_undivided(env)
            raise read_by_torch()
        return int(guard(node, file, line))

    def guard_float(node: Any, file: str, line: int) -> float:
        if _is_read_outside_torch(sys._getframe(1)):
            env.note_number_read(node.expr)
        return float(guard_double(node, file, line))

    with replaced(SymNode, guard_int=guard_int, guard_float=guard_float):
        yield


def _is_read_outside_torch(frame: FrameType | None) -> bool:
    """Whether Python code outside torch converts a symbolic double to a plain one. Torch itself only computes scales and bounds from it."""
    if frame is None or frame.f_code.co_name not in _TO_PLAIN:
        return False  # an operator takes it as a scalar argument
    while frame is not None and frame.f_code.co_filename == torch.__file__:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] != "torch"


class SizeEnv(ShapeEnv):
    """The symbols of one basis, and every guard that the current run evaluates.

    ``answers``         evaluated expression → its value, and the line that evaluated it.
    ``trip_counts``     symbols that may be read as numbers.
    ``number_reads``    line → the symbols whose values it uses: it hashes a size, or reads a double computed from sizes.
    ``rounded_shares``  reads of a trip count that is divided and rounded: the reason if the step is not a polynomial in it.
    """

    def __init__(self, hint_of: Mapping[str, int], trip_counts: Collection[str] = ()) -> None:
        super().__init__()
        self.hint_of = dict(hint_of)
        self.arithmetic: dict[Any, Any] = {}
        self.is_tracing: Callable[[], bool] = lambda: False
        self.trip_counts = trip_counts
        self._collected: dict[Any, tuple[Any, str]] | None = None
        self.names: dict[sp.Symbol, str] = {}
        self._unrecorded: dict[Any, tuple[Any, str]] | None = None
        self._unrecorded_answers: dict[Any, tuple[Any, str]] = {}
        self._at: dict[sp.Symbol, sp.Integer] = {}
        self._texts: dict[sp.Expr, int | str] = {}
        self.begin_run()
        self.symbols: dict[str, torch.SymInt] = {name: self._make(name, hint) for name, hint in hint_of.items()}

    def _make(self, name: str, hint: int) -> torch.SymInt:
        source = ConstantSource(f"napkin_{name}")
        made = self.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        self.names[made] = name
        self._at[made] = sp.Integer(hint)
        node = self.create_symintnode(made, hint=hint)
        assert isinstance(node, torch.SymInt)
        return node

    def _get_user_frame(self) -> None:
        """No frame: torch only logs it, and imports its exporter and compiler to find it."""

    # -- runs -----------------------------------------------------------------------------------------------------

    def matches(self, hint_of: Mapping[str, int], trip_counts: Collection[str]) -> bool:
        """Whether a run with these symbols can use this environment. Readable trip counts differ in every run."""
        return not trip_counts and not self.trip_counts and self.hint_of == hint_of

    def begin_run(self) -> None:
        """Start a run: clear the guards of the previous run."""
        self.answers: dict[Any, tuple[Any, str]] = {}
        self._guards_by_expr: dict[Any, Guard | None] = {}
        self.number_reads: dict[str, frozenset[str]] = {}
        self.rounded_shares: list[SpecializationError] = []
        self._hash = hash((SizeEnv, next(_runs)))

    def hash_of_sizes(self, size: torch.SymInt) -> int:
        """The hash of all sizes in this run, so that no dictionary returns a result of another run for them. Notes the line that hashes a
        size: the entry that it finds may depend on the size."""
        self.note_number_read(size.node.expr)
        return self._hash

    def note_number_read(self, expr: Any) -> None:
        """Note that the running line uses the value of ``expr``, which differs at other sizes."""
        if self._unrecorded is None and expr.free_symbols:
            self._note(user_line(), expr)

    def _note(self, line: str, expr: Any) -> None:
        self.number_reads[line] = self.number_reads.get(line, frozenset()) | self._names(expr)

    # -- guards ---------------------------------------------------------------------------------------------------

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        return self._answer(sym_node.expr, as_number=sym_node.pytype is int)

    def evaluate_expr(self, orig_expr: Any, *_: Any, **__: Any) -> Any:
        return self._answer(orig_expr, as_number=False)

    def _maybe_evaluate_static(self, expr: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]  # torch wraps its own in a cache
        """Torch calls this where it avoids a guard (is this slice the whole?). A real run takes the branch, so this is a guard too."""
        return self._answer(expr, as_number=False)

    def _answer(self, expr: Any, as_number: bool) -> Any:
        expr = simplified(expr)
        answers = self.answers if self._unrecorded is None else self._unrecorded
        entry = answers.get(expr)
        if entry is None:
            if not expr.free_symbols:
                return expr
            if not expr.free_symbols <= self._at.keys():
                raise DataDependentError(
                    f"a size depends on the values in a tensor at {user_line()}, so it has no closed form: make it depend on sizes only"
                )
            if as_number and type(current_node()).__name__ in (NUMBERING, DIVIDING):
                return expr.xreplace(self._at)
            if as_number and not (self._names(expr) <= {*self.trip_counts} and _is_polynomial(expr)):
                if self._is_nearly_constant(expr):
                    self._answer(sp.Eq(expr, expr.xreplace(self._at)), as_number=False)
                elif self._is_share_of_trip_count(expr):
                    self.rounded_shares.append(self._specialization_error(expr))
                else:
                    raise self._specialization_error(expr)
            entry = answers[expr] = (expr.xreplace(self._at), user_line())
        if self._collected is not None and self._unrecorded is None:
            self._collected[expr] = entry
        return entry[0]

    def _is_share_of_trip_count(self, expr: Any) -> bool:
        """Whether a size is one trip count, divided by numbers and rounded: a number in this run, as the trip count is."""
        parts = expr.atoms(FloorDiv)
        return (
            len(expr.free_symbols) == 1
            and self._names(expr) <= {*self.trip_counts}
            and all(part.args[1].is_Integer for part in parts)
            and (bool(parts) and _is_polynomial(expr.xreplace({part: sp.Integer(1) for part in parts})))
        )

    def assume(self, guard: Any) -> None:
        """Note a guard that is true at the hints. Raises ``SpecializationError`` where it cannot be written as text."""
        if guard_text(guard, self.names) is None:
            raise self._specialization_error(guard.lhs)
        self._answer(guard, as_number=False)

    @contextlib.contextmanager
    def collecting_answers(self) -> Iterator[dict[Any, tuple[Any, str]]]:
        """Context that yields a dictionary of the expressions evaluated inside, including those evaluated before."""
        outer, self._collected = self._collected, {}
        try:
            yield self._collected
        finally:
            self._collected = outer

    def add_answers(self, evaluations: Evaluations) -> None:
        """Note those ``evaluations`` of an earlier run that this run makes as well."""
        for expr, entry in evaluations.items():
            self.answers.setdefault(expr, entry)

    @contextlib.contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Context in which evaluated expressions are not noted: Napkin evaluates them, not the step."""
        self._unrecorded = self._unrecorded_answers
        try:
            yield
        finally:
            self._unrecorded = None

    def _is_nearly_constant(self, expr: Any) -> bool:
        """Whether an integer expression has one value at most sizes: the number of chunks of a quarter each is 4 except for few elements.
        It is then replaced by that value under a guard."""
        generator = random.Random(0)
        points = [{s: sp.Integer(generator.randint(2, 10**6)) for s in self._at} for _ in range(8)]
        return all(expr.xreplace(at) == expr.xreplace(self._at) for at in points)

    def _specialization_error(self, expr: Any) -> SpecializationError:
        names = self._names(expr)
        name = min(names - {*self.trip_counts} or names)
        where = running_line()
        counts = len(expr.free_symbols) == 1 and _is_polynomial(expr)
        self.text(expr)  # raises where it is not a function of sizes
        said = Failure(f"the size {size_text(expr, self.names)} was read as one number at {where}", about=where.source)
        return SpecializationError(name, str(where), said, counts, self._pairs(expr) if expr.atoms(FloorDiv) else None)

    def refuse_nested(self, expr: Any) -> None:
        """Raises ``RoundedShareError`` for a quotient that is divided by quotients of quotients: a padded length, cut and joined in
        every layer, whose text would double with each. For multiples of what divides the dimensions, it is one of their products."""
        if not any(_is_nested(division) for division in expr.atoms(FloorDiv)):
            return
        divisions = [part.args for part in expr.atoms(sp.Function) if type(part).__name__ in _DIVISIONS]
        rounded = {(*self._names(whole), by) for whole, by in divisions if len(whole.free_symbols) == 1 and by.is_Integer}
        pairs = sorted(((name, int(by)) for name, by in rounded), key=lambda pair: (-pair[1], pair[0]))
        where = running_line()
        said = Failure(f"sizes at {where} are divided and rounded again and again", where=str(where), about=where.source)
        raise RoundedShareError(said, pairs).of_causes({name for name, _ in pairs} or self._names(expr))

    def _pairs(self, expr: Any) -> list[tuple[str, str | int]]:
        """(dimension, divisor) of each rounded quotient in ``expr``: where the dimension is a multiple, rounding changes nothing. Of a
        quotient of a quotient the divisor is the product: for its multiples neither is rounded. The largest divisors come first."""
        pairs: list[tuple[str, str | int]] = []
        for whole, part in (call.args for call in sorted(expr.atoms(FloorDiv), key=str)):
            if part.is_Integer:
                pairs += [(name, int(part) * self._divisor(whole, name)) for name in sorted(self._names(whole))]
            elif part in self.names:
                pairs += [(name, self.names[part]) for name in sorted(self._names(whole)) if name != self.names[part]]
        return sorted(pairs, key=lambda pair: -pair[1] if isinstance(pair[1], int) else 0)

    def _divisor(self, expr: Any, name: str) -> int:
        """The largest product of the numbers by which ``expr`` divides the dimension ``name``, one after the other."""
        inner = [self._divisor(arg, name) for arg in expr.args if name in self._names(arg)]
        by = int(expr.args[1]) if isinstance(expr, FloorDiv) and expr.args[1].is_Integer else 1
        return by * max(inner, default=1)

    def symbols_of(self, value: Any) -> frozenset[str]:
        """The names of the symbols in a symbolic value; none in others."""
        return frozenset(self._names(value.node.expr)) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else frozenset()

    def _names(self, expr: Any) -> set[str]:
        return {self.names.get(s, str(s)) for s in expr.free_symbols}

    def size_guards(self) -> list[Guard]:
        """The guards of this run: every comparison of sizes with its outcome and the line that evaluated it."""
        if len(self._guards_by_expr) != len(self.answers):
            self._guards_by_expr = {}
            for expr, (answer, line) in self.answers.items():
                text = guard_text(expr, self.names) if answer in (sp.true, sp.false) else None
                self._guards_by_expr[expr] = None if text is None else Guard(text, bool(answer), line)
                if text is None and answer in (sp.true, sp.false):
                    self._note(line, expr)
        return [guard for guard in self._guards_by_expr.values() if guard is not None]

    def divided(self) -> dict[str, Guard]:
        """Those guards of this run, by their text, in which something is divided by a trip count, with trip counts replaced by their values
        in this run; without a text where that makes them true. The trip count of the loop itself is replaced too: ``(3*k)//g`` is k in 3
        iterations."""
        self.size_guards()
        guards = {}
        for expr, (answer, line) in self.answers.items():
            guard = self._guards_by_expr[expr]
            whole = self._divided(expr)
            if guard is not None and whole != expr:
                text = "" if whole == answer else guard_text(whole, self.names)
                if text is not None:
                    guards[guard.expr] = Guard(text, guard.outcome, line)
        return guards

    # -- writing sizes --------------------------------------------------------------------------------------------

    def size(self, value: Any) -> int | str:
        """A size as traces store it: an ``int``, or the text of its expression in the basis symbols."""
        if isinstance(value, int):
            return value
        return self.text(value.node.expr)

    def named(self, message: str) -> str:
        """A message of torch with its symbols (``s0``) replaced by the basis symbols."""
        for symbol, name in self.names.items():
            message = re.sub(rf"\b{symbol}\b", name, message)
        return message

    def remainders(self, lines: Collection[str]) -> list[str]:
        """The divisions that leave a remainder where one of ``lines`` asked whether they do, as ``(h*k)//16 leaves a remainder``; what both
        sides of a division have in common is left out, and so are terms of a sum that leave none."""
        return self._remainders((expr, bool(value)) for expr, (value, where) in self.answers.items() if where in lines)

    def last_remainders(self, line: str) -> list[str]:
        """The same of the comparison that was evaluated last, if ``line`` did. Sizes that were read since compare nothing."""
        comparisons = (item for item in reversed(self.answers.items()) if isinstance(item[0], sp.logic.boolalg.Boolean))
        expr, (value, where) = next(comparisons, (sp.true, (True, "")))
        return self._remainders([(expr, bool(value))] if where == line else ())

    def _remainders(self, evaluated: Iterable[tuple[Any, bool]]) -> list[str]:
        each = ((part, holds) for expr, holds in evaluated for part in (expr.args if isinstance(expr, sp.Or) and not holds else (expr,)))
        equations = ((expr, holds is isinstance(expr, sp.Eq)) for expr, holds in each if isinstance(expr, sp.Eq | sp.Ne))
        left = (expr for expr, equal in equations if equal is not (expr.rhs == 0) and expr.rhs.is_Integer)
        divisions = (part for expr in left for part in expr.atoms(sp.Function) if type(part).__name__ in ("Mod", "PythonMod"))
        reduced = (_with_remainder(*part.args) for part in divisions)
        texts = ([size_text(argument, self.names) for argument in arguments] for arguments in reduced)
        return [f"({whole})//{by} leaves a remainder" for whole, by in texts]

    def last_compared(self, lines: Collection[str]) -> set[str]:
        """The names of the symbols in the comparison that ``lines`` evaluated last."""
        expr, _ = self._last_answer(lines)
        return self._names(expr)

    def last_equation(self, lines: Collection[str]) -> str:
        """That comparison, if it says which number a size must be and the size is not: ``h == 8``; empty for any other. A number that a
        trip count has in this run may be that count."""
        expr, answer = self._last_answer(lines)
        equations = expr.args if isinstance(expr, sp.Or) else (expr,)
        counts = {self._at[s] for s, name in self.names.items() if name in self.trip_counts and s in self._at}
        numbers = [part.rhs for part in equations if isinstance(part, sp.Eq) and part.rhs.is_Integer and part.rhs not in counts]
        if answer or len(numbers) < len(equations) or expr.atoms(sp.Function):
            return ""
        return guard_text(expr, self.names) or ""

    def _last_answer(self, lines: Collection[str]) -> tuple[Any, Any]:
        """What ``lines`` evaluated last, and the answer."""
        return next(((expr, answer) for expr, (answer, where) in reversed(self.answers.items()) if where in lines), (sp.true, True))

    def text(self, expr: sp.Expr) -> int | str:
        written = self._texts.get(expr)
        if written is None:
            written = size_text(self._divided(simplified(expr)), self.names)
            if isinstance(written, str) and has_other_text(written):
                name = min(self.names[s] for s in expr.free_symbols if s in self.names)
                where = running_line()
                said = Failure(f"the size {written}, made at {where}, has no closed form", about=where.source)
                raise SpecializationError(name, str(where), said)
            self._texts[expr] = written
        return written

    def _divided(self, expr: sp.Expr) -> sp.Expr:
        """``expr`` with trip counts inside divisions replaced by their values in this run: a size that is a multiple of a trip count may be
        divided by the number that was read (groups of channels)."""
        numbers = {s: self._at[s] for s, name in self.names.items() if name in self.trip_counts}
        if not numbers or not expr.free_symbols & numbers.keys():
            return expr
        return expr.replace(lambda e: type(e).__name__ in _DIVISIONS, lambda e: e.xreplace(numbers))

    def at_hints(self, expr: sp.Expr) -> int:
        """The value of an expression at the hints."""
        return int(expr.xreplace(self._at))

    def hint(self, value: Any) -> Any:
        """The value of a symbolic value at the hints; other values unchanged."""
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            answer = value.node.expr.xreplace(self._at)
            return int(answer) if isinstance(value, torch.SymInt) else bool(answer) if isinstance(value, torch.SymBool) else float(answer)
        return value


def _is_nested(division: Any) -> bool:
    """Whether the divisor of a quotient has a quotient whose own divisor has one."""
    return any(part.args[1].atoms(FloorDiv) for part in division.args[1].atoms(FloorDiv))


def _is_polynomial(expr: Any) -> bool:
    return bool(expr.is_polynomial(*expr.free_symbols))


def _with_remainder(whole: Any, by: Any) -> tuple[Any, Any]:
    """The two sides of a division without what they have in common; of a sum divided by a number, its terms that leave a remainder."""
    if by.free_symbols:
        common: tuple[Any, Any] = sp.fraction(sp.cancel(whole / by))
        return common
    return sp.Add(*(term for term in sp.Add.make_args(sp.expand(whole)) if term.as_coeff_Mul()[0] % by)), by
