"""What a traced run allocates for an operator is what a real CPU kernel allocates, in the same layout."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from calc.errors import DataDependentError
from calc.trace.kernels import fake_kernels
from calc.trace.symbolic_sizes import SizeEnv
from calc.trace.tracing import fake_tensors
from tests.rules.cases import CASES
from tests.rules.operators import Case, overload

# Autograd makes the input plain before the first one runs; elsewhere the fake kernel raises. The other refuses views.
NEVER_GIVEN = {"aten.native_group_norm_backward.default", "aten.detach_.default", "aten.set_.source_Storage_storage_offset"}
DATA = {"aten._local_scalar_dense.default", "aten.equal.default"}  # their results depend on the data
# Of transposed inputs only, and rare: what comes next copies one time too many or too few. Known, and left.
KNOWN = {"aten.addr.default", "aten.index.Tensor", "aten._unsafe_index.Tensor", "aten._reshape_alias.default"}
# With symbolic sizes, torch takes these apart before they reach a kernel.
TAKEN_APART = {"aten.mean.default", "aten.mean.dim", "aten.unsafe_split.Tensor"}
# The size of their results is data-dependent: traces make those separately, and the zoo checks them.
DECIDED = {"aten._unique2.default", "aten.masked_select.default", "aten.unique_consecutive.default"}
DECIDED |= {"aten._pack_padded_sequence.default", "aten._ctc_loss.Tensor"}


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def transposed(tensor: Tensor) -> Tensor:
    """The same shape, laid out column after column."""
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else tensor


def channels_last(tensor: Tensor) -> Tensor:
    """The same shape, laid out with the second axis last."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.dim() >= 3 else tensor


def mapped(change: Callable[[Tensor], Any], values: Any) -> Any:
    return tree_map(lambda value: change(value) if isinstance(value, Tensor) else value, values)


def every(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    return mapped(change, values)


def the_first(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    """The first tensor alone is changed."""
    first = next((v for v in tree_leaves(values) if isinstance(v, Tensor)), None)
    return mapped(lambda tensor: change(tensor) if tensor is first else tensor, values)


def all_others(change: Callable[[Tensor], Tensor], values: Any) -> Any:
    first = next((v for v in tree_leaves(values) if isinstance(v, Tensor)), None)
    return mapped(lambda tensor: tensor if tensor is first else change(tensor), values)


def taken(func: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """What the real kernel gives, alone; nothing where it does not take this layout."""
    try:
        return (func(*args, **kwargs),)
    except RuntimeError:
        return ()


def results(op: str, case: Case, layout: Callable[[Tensor], Tensor], which: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(real, traced): each fresh result of the call as text."""
    func = overload(op)
    given = which(layout, (tuple(case.args), dict(case.kwargs)))
    args, kwargs = mapped(torch.clone, given)
    real = taken(func, args, kwargs)
    if not real:
        return
    with FakeTensorMode() as mode:
        fake_args, fake_kwargs = mapped(mode.from_tensor, given)
        try:
            traced = fake_kernels.run(func, fake_args, fake_kwargs)
        except DynamicOutputShapeException:
            return  # its size is data-dependent: traces make its result separately, and the zoo checks it
        size = fake_kernels.storage_bytes(func, fake_args, fake_kwargs, traced)
    old = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
    for one, other in zip(tree_leaves(real), tree_leaves(traced), strict=True):
        if isinstance(one, Tensor) and one.untyped_storage()._cdata not in old:
            yield described(one, None), described(other, size)


def described(tensor: Tensor, size: int | None) -> str:
    strides = [stride for stride, length in zip(tensor.stride(), tensor.shape, strict=True) if length > 1]
    return f"{tensor.dtype} {tuple(tensor.shape)} by {strides} in {size or tensor.untyped_storage().nbytes()} bytes"


def on_a_device(case: Case) -> bool:
    return any(isinstance(t, Tensor) and t.device.type == "meta" for t in tree_leaves((case.args, case.kwargs)))


def calls(layout: Callable[[Tensor], Tensor], left_out: set[str]) -> Iterator[tuple[str, Case]]:
    """Every call of the cases that makes something on the CPU, but for those known to be otherwise."""
    left_out = NEVER_GIVEN | DATA | (KNOWN if layout is not as_it_is else set()) | left_out
    for op, makes in CASES.items():
        if op not in left_out and not overload(op).is_view:
            yield from ((op, case) for case in (make() for make in makes) if not on_a_device(case))


# Each layout with the quick tests, and each choice of what has it.
QUICK = [(as_it_is, every), (transposed, the_first), (channels_last, all_others)]
LAYOUTS = [
    *QUICK,
    *(
        pytest.param(layout, which, marks=pytest.mark.slow)
        for layout in (transposed, channels_last)
        for which in (every, the_first, all_others)
        if (layout, which) not in QUICK
    ),
]


@pytest.mark.parametrize(("layout", "which"), LAYOUTS, ids=lambda f: f.__name__)
def test_a_traced_operator_allocates_what_the_real_one_does(layout: Callable[[Tensor], Tensor], which: Callable[..., Any]) -> None:
    """Shape, format, strides and bytes of storage of every result of every call in the cases."""
    pairs = [(op, pair) for op, case in calls(layout, set()) for pair in results(op, case, layout, which)]

    assert len(pairs) > 100
    assert {} == {op: pair for op, pair in pairs if pair[0] != pair[1]}


def masked(op: str, case: Case) -> Iterator[Case]:
    """The call with every choice of the gradients that may be requested."""
    at = [argument.name for argument in overload(op)._schema.arguments].index("output_mask")
    for mask in itertools.product([True, False], repeat=len(case.args[at])):
        if any(mask):
            yield replace(case, args=(*case.args[:at], list(mask), *case.args[at + 1 :]))


def given(tensors: Any) -> list[int | None]:
    """Bytes of each result, or nothing where none is given."""
    return [None if t is None else t.untyped_storage().nbytes() for t in tensors]


@pytest.mark.parametrize("op", sorted(op for op in CASES if "output_mask" in {a.name for a in overload(op)._schema.arguments}))
def test_the_gradients_that_a_kernel_returns_are_traced_whatever_is_requested(op: str) -> None:
    """Some return more than is requested, and some of torch's fake ones do where the real ones do not."""
    compared = 0
    for make in CASES[op]:
        for asked in masked(op, make()):
            with contextlib.suppress(RuntimeError):  # what a bare gradient of a bias would take is not in every case
                real = overload(op)(*mapped(torch.clone, tuple(asked.args)))
                with FakeTensorMode() as mode:
                    traced = fake_kernels.run(overload(op), mapped(mode.from_tensor, tuple(asked.args)), {})
                assert given(real) == given(traced)
                compared += 1
    assert compared


def symbolic(env: SizeEnv, given: Any) -> Any:
    """The tensors of a call with a symbol for each size but one, in the layout that they have."""
    symbol = {int(name[1:]): size for name, size in env.symbols.items()}

    def made(tensor: Tensor) -> Tensor:
        shape: list[Any] = [symbol.get(size, size) for size in tensor.shape]
        strides: list[Any] = [0] * tensor.dim()
        elements = 1
        for axis in sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), -axis)):
            if tensor.stride(axis):
                strides[axis] = elements
                elements = elements * shape[axis]
        return torch.empty_strided(shape, strides, dtype=tensor.dtype)

    return mapped(made, given)


def laid(tensor: Tensor, number: Callable[[Any], Any]) -> str:
    """Format, shape and strides in numbers."""
    shape, strides = ([number(size) for size in sizes] for sizes in (tensor.shape, tensor.stride()))
    return f"{tensor.dtype} {shape} by {[stride for stride, length in zip(strides, shape, strict=True) if length > 1]}"


def symbolic_results(op: str, case: Case, layout: Callable[[Tensor], Tensor], which: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(real, traced with symbolic sizes): each result of the call as text."""
    func = overload(op)
    given = which(layout, (tuple(case.args), dict(case.kwargs)))
    real = taken(func, *mapped(torch.clone, given))
    if not real:
        return
    env = SizeEnv({f"s{n}": n for t in tree_leaves(given) if isinstance(t, Tensor) for n in t.shape if n > 1})
    with fake_tensors(env):
        try:
            traced = fake_kernels.run(func, *symbolic(env, given))
        except (DynamicOutputShapeException, DataDependentError):
            return
        for one, other in zip(tree_leaves(real), tree_leaves(traced), strict=True):
            if isinstance(one, Tensor):
                yield laid(one, int), laid(other, env.hint)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "which"), LAYOUTS, ids=lambda f: f.__name__)
def test_symbolic_sizes_do_not_change_the_layout_of_a_result(layout: Callable[[Tensor], Tensor], which: Callable[..., Any]) -> None:
    """Torch's own decompositions, which stand in where a fake kernel wants plain sizes, lay some results out otherwise."""
    pairs = [(op, pair) for op, case in calls(layout, TAKEN_APART | DECIDED) for pair in symbolic_results(op, case, layout, which)]

    assert len(pairs) > 100
    assert {} == {op: pair for op, pair in pairs if pair[0] != pair[1]}
