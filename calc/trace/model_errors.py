"""Reports an exception of a model while its step is traced as one line that says where; Napkin's own errors pass unchanged."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import traceback
from collections.abc import Iterator

from calc.errors import DataDependentError, Failure, NapkinError, SizesError, TraceError, ZeroQuotientError, shortened, text_of
from calc.experiment.composite_operators import decomposed, python_name
from calc.platform.torch_private import DataDependentOutputException, DynamicOutputShapeException, untried
from calc.spec import Spec
from calc.trace.source_lines import is_foreign, raising_line, raising_lines
from calc.trace.symbolic_sizes import SizeEnv


@contextlib.contextmanager
def refusing(spec: Spec, env: SizeEnv | None) -> Iterator[None]:
    """Context that converts any exception of the model to one line with the source line that raised it."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of any type: a model's own code may raise SystemExit or GeneratorExit
        napkin_error = _napkin_error(error)
        if napkin_error is not None:
            raise napkin_error from None
        where = raising_line(error)
        if isinstance(error, DataDependentOutputException | DynamicOutputShapeException) or "data-dependent" in text_of(error).lower():
            raise DataDependentError(
                f"{spec.name} takes a size or a branch from the data in a tensor at {where}: no closed form follows; "
                "make it depend on sizes only"
            ) from None
        if isinstance(error, LookupError | AttributeError) and "FakeTensor(" in text_of(error):
            raise DataDependentError(
                f"{spec.name} looks up a name that it makes of the value in a tensor, at {where}: what runs depends on the data, so no"
                " closed form follows"
            ) from None
        if "saved tensor hooks" in text_of(error):
            raise TraceError(
                f"{spec.name} calls torch.func.grad, vjp or the like at {where}: torch does not report which tensors autograd saves"
                " there; take the gradient with torch.autograd.grad, or leave that part out"
            ) from None
        higher = _HIGHER_ORDER.search(text_of(error))
        if higher:
            raise TraceError(
                f"{spec.name} runs the higher-order operator {higher[1]} at {where}: no rule counts what it calls; write that part with"
                " ordinary operators (an attention with a mask: scaled_dot_product_attention)"
            ) from None
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        if any("/torch/distributed/" in file for file in itertools.takewhile(is_foreign, reversed(files))):
            raise TraceError(
                f"{spec.name} communicates between processes at {where}: a step is of one process; build the module without"
                " torch.distributed and its wrappers (DDP, FSDP), and see napkin shard for a step on several devices"
            ) from None
        if any(file.endswith("/torch/_dynamo/convert_frame.py") for file in files):
            raise TraceError(
                f"{spec.name} runs a function at {where} that was compiled when its file was imported: what a compiler makes of it has no"
                " closed form; call torch.compile in build, where Napkin leaves it out, or leave out the decorator"
            ) from None
        if os.environ.get("NAPKIN_DEBUG"):
            traceback.print_exc()
        first, lines = _first_words(error), raising_lines(error)
        first, remainders = (env.named(first), tuple(env.remainders(lines))) if env is not None else (first, ())
        message = "; ".join((first, *remainders))
        advice = _MULTIPLES if env is not None and _DIVIDES.search(message) else _of_python(error)
        kind = ZeroQuotientError if isinstance(error, ZeroDivisionError) else SizesError
        shown, advised = where.before_message, "; ".join(filter(None, (advice, untried())))
        raised = kind(
            Failure(f"raised {type(error).__name__} at {shown}: {first}", f"{spec.name} ", remainders, advised, shown, where.then(first))
        )
        raised.said, raised.equation = message, env.last_equation(lines) if env is not None else ""
        raise raised.of_causes(env.last_compared(lines) if env is not None else ()) from None


_HIGHER_ORDER = re.compile(r"no rule registered for (?:HigherOrderOperator|HOP) (\w+)")
# Raised where a size does not divide another: a symbolic size is divisible only by its declared divisors.
_DIVIDES = re.compile(r"divisib|\bdivide|is invalid for input of size|split_with_sizes expects")
_MULTIPLES = 'declare what a size must be a multiple of: "d": Dim(64, multiple_of="h"), or multiple_of=8'


def _of_python(error: BaseException) -> str:
    """What to do about an operator written in Python that raised ``error``; empty if none did."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [name for frame in frames if frame.f_code is decomposed.__code__ and (name := python_name(frame.f_locals["func"]))]
    return f"state what {names[-1]} costs as a whole, with @calc.rules.rule({names[-1]!r}, …)" if names else ""


def _first_words(error: BaseException) -> str:
    """The first line of a message, with the next one where the first only introduces it, and with the line that says what does not match.
    """
    lines = [line.strip() for line in text_of(error).splitlines()] or ["no message"]
    first = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    mismatch = next((line for line in lines[1:] if "mismatch" in line and line not in first), "")
    return f"{shortened(first)} {shortened(mismatch)}".rstrip()


def _napkin_error(error: BaseException | None) -> NapkinError | None:
    while error is not None:
        if isinstance(error, NapkinError):
            return error
        error = error.__cause__ or error.__context__
    return None
