"""Every error that Napkin raises for a user, each with its cause and what to do.

An error of this module is for the user: the command line prints its one line and exits with status 2.
Of anything else that escapes the command line prints one line as well: whose code raised it, or that it is a bug of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Self

_FEW = 8  # names that a suggestion lists
# What frameworks call a name, for a name whose letters are close to a wrong one: "gpu" is closer to "cpu" than to "cuda".
_SYNONYMS = {
    "gpu": "cuda", "nvidia": "cuda", "float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16",
    "training": "train", "evaluation": "eval", "inference": "infer", "bf16-mixed": "bf16-autocast", "16-mixed": "fp16-autocast",
    "fp16-mixed": "fp16-autocast", "peak": "memory.peak",
}  # fmt: skip
_LINE = re.compile(r"\S+\.py:\d+")


class NapkinError(Exception):
    """A refusal. ``str(error)`` is one line: what is wrong, where, and what to do about it."""

    def __str__(self) -> str:
        """The message on one line: names in it are the user's text and may hold line breaks or invisible characters."""
        return "".join(c if c.isprintable() else _shown(c) for c in super().__str__()).strip()


def _shown(c: str) -> str:
    """A character that is not printable: a blank for white space such as a line break, else its escape."""
    return " " if c in "\n\t\r\v\f\u00a0" else c.encode("unicode_escape").decode("ascii")


def text_of(error: BaseException) -> str:
    """The message of an error; empty if computing it fails."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error).strip()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


def suggestion(name: object, names: Iterable[str]) -> str:
    """What a message suggests in place of an unknown ``name``: the closest of ``names``, with all of them where they are few, or ``one_of``
    them if none is close."""
    options = tuple(names)
    near = _nearest(name, options) if isinstance(name, str) else ""
    few = f" ({', '.join(options)})" if len(options) <= _FEW else ""
    return f"did you mean {near}?{few}" if near else one_of(options)


def _nearest(name: str, options: Sequence[str]) -> str:
    """The option that ``name`` is another word for, else the one closest in letters; empty if there is none."""
    import difflib  # takes 1 ms, which every start would pay

    synonym = _SYNONYMS.get(name.lower(), "")
    close = (near for text in (name, name.lower()) for near in difflib.get_close_matches(text, options, n=1))
    return synonym if synonym in options else next(close, "")


def needs(subject: str, missing: Sequence[str], example: str) -> str:
    """That ``subject`` needs ``missing`` inputs, with an ``example`` to type if there is one."""
    give = f": give {'them' if len(missing) > 1 else 'it'}, e.g. {example}" if example else ""
    return f"{subject} needs {listed(missing)}{give}"


def listed(items: Iterable[str]) -> str:
    """``a, b and c``."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def one_of(names: Iterable[str]) -> str:
    """``use one of sgd, adam``."""
    return f"use one of {', '.join(names)}"


def words_of(error: BaseException) -> str:
    """The type of an error and the first line of what it says."""
    name, text = type(error).__name__, shortened(text_of(error).partition("\n")[0])
    return f"{name}: {text}" if text else name


_LONGEST = 200  # characters


def shortened(text: str) -> str:
    """The text, cut to 200 characters with an ellipsis where it is longer."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


class BadInputError(NapkinError):
    """A value, a name or a file given by the user cannot be used as it is."""


class DimensionError(BadInputError):
    """A dimension is unknown, not a positive integer below 2**63, or breaks a divisibility of the model."""


class SpecError(BadInputError):
    """A model's specification is malformed: what it builds, feeds or returns has the wrong type or form."""


class ConfigError(BadInputError):
    """A Hugging Face configuration is missing, malformed, or of a kind that is refused."""


class MissingExtraError(BadInputError):
    """An optional dependency is not installed; the message holds the command that installs it."""


class TorchVersionError(BadInputError):
    """The torch installed lacks a private name that Napkin needs."""


class UnitError(NapkinError):
    """Two amounts of different units were added or compared."""


class RefusedOperatorError(NapkinError):
    """The step runs operators that cannot be counted. ``ledger`` is the ``Ledger`` of all of its operators, where a
    step was traced (typed ``Any``, since this module imports nothing); ``at`` is this refusal at other sizes."""

    def __init__(self, message: str, ledger: Any = None, at: Callable[[Mapping[str, int]], NapkinError] | None = None) -> None:
        super().__init__(message)
        self.ledger = ledger
        self.at = at


class UnknownOperatorError(RefusedOperatorError):
    """The step runs an operator that has neither a cost rule nor a reason to be free."""


class DuplicateRuleError(NapkinError):
    """Two rules claim the same operator."""


class UnknownQuantityError(BadInputError):
    """A requested quantity is not in the derivation."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed in a trace, in parts: ``str`` is the message, ``gpt2 raised ValueError at m.py:3: …; details; advice``.

    ``subject`` is the model, with the sign behind it. ``where`` is the line of the model as ``statement`` has it. ``about``: the part of
    the statement in which the search for divisors looks for sizes, if not all of it.
    """

    statement: str
    subject: str = ""
    details: tuple[str, ...] = ()
    advice: str = ""
    where: str = ""
    about: str = ""

    def __str__(self) -> str:
        return self.subject + "; ".join(filter(None, (self.statement, *self.details, self.advice)))

    @property
    def why(self) -> str:
        """What failed, without the model's name and without advice."""
        return "; ".join((self.statement, *self.details))

    @property
    def searched(self) -> str:
        """What names the sizes that are at fault."""
        return "; ".join((self.about or self.statement, *self.details))


class TraceError(NapkinError):
    """The training step could not be traced with symbolic sizes.

    ``failures``: the quantities that have no closed form, each with the reason, where the step itself could be traced.
    """

    failures: Mapping[str, str] = MappingProxyType({})

    def __init__(self, message: str | Failure) -> None:
        super().__init__(str(message))
        self.failure = message if isinstance(message, Failure) else Failure(message)

    @property
    def line(self) -> str:
        """``file:line`` of the model's code that failed; empty where that is not known."""
        match = _LINE.match(self.failure.where)
        return match[0] if match else ""


class SizesError(TraceError):
    """The step raises with symbols for sizes: a divisibility may be missing. ``causes`` are the symbols in the comparison that it
    followed; ``equation`` is that comparison if it is of sizes with numbers, ``h == 8``; ``said`` is what the failing operator says, in
    sizes."""

    causes: frozenset[str] = frozenset()
    equation: str = ""
    said: str = ""

    def of_causes(self, causes: Iterable[str]) -> Self:
        """This error, with the sizes that caused it."""
        self.causes = frozenset(causes)
        return self


class RoundedShareError(SizesError):
    """A rounded quotient was read as one number. It may be a trip count where it need not be rounded: where the first of one of
    ``pairs`` is a multiple of the second."""

    def __init__(self, message: str | Failure, pairs: Sequence[tuple[str, str | int]]) -> None:
        super().__init__(message)
        self.pairs = pairs


class ZeroQuotientError(SizesError):
    """The step divides by a quotient of sizes that is rounded to zero at those of the trace."""


class OtherPathError(SizesError):
    """At the requested sizes the step fails, or runs other operators than in the trace. ``divides``: the guard that fails is about
    divisibility. ``compared`` are the symbols of an inequality that has the other outcome."""

    def __init__(self, message: str | Failure, divides: bool, compared: Collection[str] = ()) -> None:
        super().__init__(message)
        self.divides, self.compared = divides, frozenset(compared)


class ReadByTorchError(TraceError):
    """Torch's own code reads sizes of tensors as numbers, as it also does to raise an error about them."""


def _at(message: str | Failure, where: str) -> Failure:
    return replace(message if isinstance(message, Failure) else Failure(message), where=where)


class SpecializationError(TraceError):
    """A dimension was read as a concrete number, so the trace has no closed form in it.

    ``counts``: the expression that was read is a polynomial in it alone, so that it may be a trip count. ``divided``: pairs of dividend
    and divisor, where the expression is a rounded quotient.
    """

    def __init__(
        self,
        dimension: str,
        where: str,
        message: str | Failure,
        counts: bool = False,
        divided: Sequence[tuple[str, str | int]] | None = None,
    ) -> None:
        super().__init__(_at(message, where))
        self.dimension = dimension
        self.where = where
        self.counts, self.divided = counts, divided


class OtherIterationsError(SpecializationError):
    """At the requested sizes the step takes another path than at the numbers of iterations that were traced. Nobody declared that
    ``dimension`` is a number of iterations: it may be a number."""


class DataDependentError(TraceError):
    """The step branches on, or takes a size from, the data in a tensor."""


class UnbackedSizeError(DataDependentError):
    """A data-dependent (unbacked) size that is not a dimension yet.

    ``place`` identifies it, ``where`` is the line for readers. It is at most the product of ``shape``; its expected value is that times
    ``share`` over the product of ``ways``, unknown if ``share`` is 0. All sizes are in basis symbols. Where it ``adds_up`` with those of
    the other ways, it is at most its expected value, rounded up.
    """

    def __init__(
        self, place: str, where: str, shape: tuple[int | str, ...], ways: tuple[int | str, ...], share: Fraction, adds_up: bool = False
    ) -> None:
        statement = f"a size depends on the data in a tensor at {where}: it has no closed form in the model's sizes"
        super().__init__(Failure(statement, where=where))
        self.place, self.where, self.shape, self.ways, self.share, self.adds_up = place, where, shape, ways, share, adds_up


class UnequalIterationsError(TraceError):
    """The operators of a loop have different sizes in each iteration: the number of equal ones has no closed form, though sums have."""


class CertificateError(TraceError):
    """A closed form disagrees with a trace at ``sizes`` (of the basis symbols) outside its derivation.

    ``further`` are other quantities whose closed forms disagree, with the message for each.
    """

    def __init__(
        self, quantity: str, message: str, sizes: Mapping[str, int] | None = None, further: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.quantity, self.sizes = quantity, sizes or {}
        self.failures = {quantity: message, **(further or {})}

    def without_values(self) -> CertificateError:
        """The same error for quantities whose values no trace determines either."""
        error = CertificateError(self.quantity, str(self), self.sizes)
        error.failures = {}
        return error


class NegativeCountError(NapkinError):
    """A count of elements, bytes or operations came out below 0: an error of Napkin's own."""


class MeasurementError(NapkinError):
    """The real run failed, or could not be instrumented."""


class FreeMemoryError(MeasurementError):
    """The real run needs more memory than is free. ``needs`` says how much, as text: unlike the free bytes, the same on every machine."""

    def __init__(self, needs: str, free: int, advice: str) -> None:
        super().__init__(f"{needs} and {free:,} are free{advice}")
        self.needs = needs
