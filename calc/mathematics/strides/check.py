"""Compares a chain of operations, or the forward of a model, with torch's own tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calc.errors import BadInputError
from calc.mathematics.dtypes.layouts import named
from calc.mathematics.strides.expression import MethodCall, StrideStep
from calc.mathematics.strides.operations import StridedTensor
from calc.mathematics.strides.walk import ALLOCATES, ModelStrides, StrideRow, storage
from calc.options import Options
from calc.pipeline.verdict import EXACT, FAILED, Verdict, judged
from calc.spec import Spec
from calc.symbolic.assignments import TYPED, sizes_text

_LARGEST = 2**28


def check(x: StridedTensor, steps: Sequence[StrideStep]) -> tuple[Verdict[str], ...]:
    """Runs the same chain on a real tensor: one verdict per operation, on shape, strides, offset, dtype, storage and its bytes, or on
    both raising an error."""
    copied = max([x.nbytes, *(s.result.allocated for s in steps if s.result is not None)])
    if copied > _LARGEST:
        raise BadInputError(f"a run would allocate {copied:,} bytes at once, more than {_LARGEST:,}: check at smaller sizes")
    from calc.measure.layouts import run

    real = run(x.layout.shape, x.dtype, [(step.call.name, _given(step.call)) for step in steps])[1:]
    return tuple(_judged(step, theirs) for step, theirs in zip(steps, real, strict=True))


def _given(call: MethodCall) -> tuple[Any, ...]:
    return (named(call.arguments[0]).stored,) if call.name == "to" else call.arguments


def _judged(step: StrideStep, theirs: Any) -> Verdict[str]:
    if step.result is None or theirs.refused:
        both = step.result is None and bool(theirs.refused)
        return Verdict(step.call.text, step.refused or "made", theirs.refused or "made", "", EXACT if both else FAILED)
    t = step.result.tensor
    ours = (t.layout.shape, t.layout.strides, t.layout.offset, t.dtype, t.nbytes, not step.result.allocated)
    real = (theirs.shape, theirs.strides, theirs.offset, theirs.dtype, theirs.nbytes, theirs.shared)
    return judged(step.call.text, _said(*ours), _said(*real))


def _said(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: str, nbytes: int, shared: bool) -> str:
    return f"{shape} strides {strides} offset {offset} {dtype}, {'the same' if shared else 'other'} storage of {nbytes:,} bytes"


def check_forward(spec: Spec, traced: ModelStrides, options: Options | None = None) -> Verdict[str]:
    """Runs the forward at the spec's small sizes: a verdict on whether every result and every allocation is the same."""
    from calc.measure.layouts import forward_results

    options = options or Options()
    small = spec.sizes(dict(spec.check_at))
    ours = [_row(row) for row in (traced if traced.sizes == small else storage(spec, spec.check_at, options)).rows]
    real = [(g.operator, g.shape, g.strides, g.offset, g.dtype, g.nbytes if g.fresh else 0) for g in forward_results(spec, small, options)]
    at = sizes_text(small, TYPED)
    if ours == real:
        return judged(f"the forward at {at}", _total(ours), _total(real))
    first = next((k for k, (a, b) in enumerate(zip(ours, real, strict=False)) if a != b), min(len(ours), len(real)))
    derived, measured = (str(rows[first]) if first < len(rows) else "nothing more" for rows in (ours, real))
    return Verdict(f"result {first + 1} of the forward at {at}", derived, measured, "", FAILED)


def _row(row: StrideRow) -> tuple[Any, ...]:
    return (row.operator, *row.at, row.dtype, row.allocated if row.kind == ALLOCATES else 0)


def _total(rows: Sequence[tuple[Any, ...]]) -> str:
    return f"{len(rows):,} results, {sum(1 for row in rows if row[-1]):,} allocate {sum(row[-1] for row in rows):,} bytes"
