"""Views and copies: every operation gives the strides, offset and memory that torch's own tensors have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import BadInputError
from calc.mathematics.strides import layouts, operations
from calc.mathematics.strides.check import check
from calc.mathematics.strides.expression import carried_out, place_of, read, shape_of
from calc.mathematics.strides.layouts import StridedLayout, fresh
from calc.mathematics.strides.operations import StridedResult, tensor


def chain(shape: str, text: str, dtype: str = "fp32") -> Any:
    return carried_out(tensor(shape_of(shape), dtype), read(text))


def assert_as_torch(shape: str, text: str, dtype: str = "fp32") -> None:
    x = tensor(shape_of(shape), dtype)
    wrong = [v for v in check(x, carried_out(x, read(text))) if v.verdict != "exact"]

    assert not wrong, (shape, text, wrong)


CHAINS = (
    ("4x4", "x.view(16)"), ("4x4", "x.view(2, -1, 2)"), ("4x4", "x.T.view(16)"), ("4x4", "x.T.reshape(16)"), ("2x3", "x.transpose(0, 1)"),
    ("2x3x5", "x.permute(2, 0, 1).contiguous()"), ("3x1", "x.expand(3, 7)"), ("3", "x.expand(2, 1, 3)"), ("4x6", "x[1:3, ::2]"),
    ("4x6", "x[1]"), ("4x6", "x[..., -1]"), ("4x6", "x[None, 2, None, 1:]"), ("4x6", "x[:, 1:5].to(bf16)"), ("4x6", "x.to(fp32)"),
    ("4x6", "x.T.half()"), ("4x6", "x.T + 1"), ("4x6", "x[:, ::2].clone()"), ("4x1", "x.expand(4, 5).clone()"), ("4x6", "x.mul_(2)"),
    ("4x1", "x.expand(4, 5).add_(1)"), ("2x3x5", "x.flatten(1)"), ("2x3x5", "x.transpose(1, 2).flatten(1)"), ("2x3", "x.unsqueeze(-1)"),
    ("2x1x3", "x.squeeze(1)"), ("2x1x3", "x.squeeze()"), ("2x3x5", "x.narrow(1, 1, 2).view(2, 10)"),
    ("2", "x.reshape(1, -1)[0::2].flatten(1)"),
    ("2x3x5", "x.narrow(0, 1, 1).view(5, 3)"),
    ("4x4", "x.view(3, 5)"), ("4x4", "x.transpose(0, 2)"), ("4", "x.expand(3)"), ("2x3x4", "x[:, :, 1:3].view(6, 2)"),
)  # fmt: skip


MORE = (
    ("2x3", "x.add(1)"), ("2x3", "x.T.mul(2)"), ("2x3", "x.relu()"), ("2x3", "x.exp()"), ("2x3", "x.add_(1)"), ("2x3", "x.relu_()"),
    ("2x3", "x.detach()"), ("2x3", "x.t()"), ("2x3", "x.reshape(6)"), ("2x3", "x.contiguous()"), ("2x3", "x.clone()"),
    ("2x3", "x.to(bf16)"),
)  # fmt: skip


@pytest.mark.parametrize(("shape", "text"), CHAINS + MORE)
def test_a_chain_has_the_strides_offset_and_memory_of_torch(shape: str, text: str) -> None:
    """Or is refused by both."""
    assert_as_torch(shape, text)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("int64", "x + 1.5"), ("int8", "x * 2"), ("int32", "x.T.exp()"), ("bf16", "x + 1.5"), ("fp16", "x[:, 1:3] * 2"),
        ("fp8-e4m3", "x + 1"), ("fp8-e5m2", "x.T.contiguous()"), ("int8", "x.to(bf16)"), ("uint8", "x.add_(1)"), ("int16", "x.relu_()"),
    ],
)  # fmt: skip
def test_a_chain_has_the_format_and_bytes_of_torch(dtype: str, text: str) -> None:
    """Whole numbers become fp32 where a fraction comes in; fp8 has no arithmetic."""
    assert_as_torch("4x6", text, dtype)


def operation(data: st.DataObject, shape: tuple[int, ...]) -> str:
    """One that fits a shape."""
    dims = st.integers(-len(shape), len(shape) - 1)
    a, b = data.draw(dims), data.draw(dims)
    whole = layouts.math.prod(shape)
    divisors = [n for n in range(1, whole + 1) if whole % n == 0]
    n = data.draw(st.sampled_from(divisors))
    begin = data.draw(st.integers(0, shape[0] - 1))
    return data.draw(
        st.sampled_from(
            [
                f".transpose({a}, {b})", f".reshape({n}, -1)", f".view(-1, {n})", f".view({n}, 1, -1)", f"[{begin}:]", f"[{begin}::2]",
                f"[..., {begin % shape[-1]}:]", f".unsqueeze({a})", ".squeeze()", ".contiguous()", ".clone()", ".half()", ".relu()",
                "[None]", f".expand(2, {', '.join('-1' for _ in shape)})", " * 2", ".mul_(2)",
                f".flatten({min(a % len(shape), b % len(shape))})",
            ]
        )
    )  # fmt: skip


@given(data=st.data())
@settings(max_examples=200)
def test_any_chain_of_operations_is_as_torch_does_it(data: st.DataObject) -> None:
    """Up to five, drawn one after another so that each fits what the one before gave."""
    x = tensor(tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))))
    text = "x"
    for _ in range(data.draw(st.integers(1, 5))):
        steps = carried_out(x, read(text))
        last = steps[-1].result if steps else None
        if steps and last is None:
            break
        shape = last.tensor.layout.shape if last is not None else x.layout.shape
        if not 1 <= len(shape) <= 6:
            break
        part = operation(data, shape)
        text = f"({text}){part}" if part.startswith(" ") else f"{text}{part}" if not text.endswith("2") else f"({text}){part}"
    verdicts = check(x, carried_out(x, read(text)))

    assert verdicts
    assert all(v.verdict == "exact" for v in verdicts), (x.layout.shape, text, verdicts)


@pytest.mark.parametrize("plant", ["row_major", "view without a look at strides", "a slice without its offset"])
def test_an_error_planted_in_a_rule_is_noticed(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the chains above is then not what torch does."""
    if plant == "row_major":
        monkeypatch.setattr(operations, "fresh", lambda shape: StridedLayout(tuple(shape), tuple(reversed(layouts.row_major(shape[::-1])))))
    elif plant == "view without a look at strides":
        monkeypatch.setattr(
            operations, "viewed", lambda layout, shape: StridedLayout(tuple(shape), layouts.row_major(shape), layout.offset)
        )
    else:
        right = operations._view
        monkeypatch.setattr(operations, "_view", lambda x, of, because: right(x, StridedLayout(of.shape, of.strides), because))
    actual = []
    for shape, text in CHAINS:
        x = tensor(shape_of(shape))
        actual += [v for v in check(x, carried_out(x, read(text))) if v.verdict == "failed"]

    assert actual


@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_an_error_planted_in_an_operation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offset one too far; and what it allocates given as nothing, or nothing as something."""
    right, least, most = operations.OPERATIONS[name]
    chains = [(shape, text) for shape, text in (*CHAINS, *MORE) if f".{name}(" in text or (name == "t" and ".T" in text)]

    def shifted(x: Any, *words: Any) -> StridedResult:
        made = right(x, *words)
        layout = made.tensor.layout
        return StridedResult(
            replace(made.tensor, layout=StridedLayout(layout.shape, layout.strides, layout.offset + 1)), made.allocated, ""
        )

    def other(x: Any, *words: Any) -> StridedResult:
        made = right(x, *words)
        return StridedResult(made.tensor, 0 if made.allocated else 4, "")

    for wrong in (shifted, other):
        monkeypatch.setitem(operations.OPERATIONS, name, (wrong, least, most))
        actual = []
        for shape, text in chains:
            x = tensor(shape_of(shape))
            actual += [v for v in check(x, carried_out(x, read(text))) if v.verdict == "failed"]

        assert actual, wrong


# -- the lecture's tensors -------------------------------------------------------------------------------------------------------------


def test_the_element_1_2_of_a_4_by_4_matrix_lies_at_6() -> None:
    """1·4 + 2·1 with strides (4, 1)."""
    x = tensor((4, 4))

    assert (4, 1) == x.layout.strides
    assert 6 == 1 * 4 + 2 * 1 == x.layout.place(place_of("1,2", x))


def test_the_next_element_of_a_transposed_row_is_three_further() -> None:
    """(2, 3) transposed has strides (1, 3): y[0, 1] lies 3 elements after y[0, 0], and is x[1, 0]."""
    (step,) = chain("2x3", "x.transpose(0, 1)")
    y = step.result.tensor.layout

    assert ((3, 2), (1, 3), 3) == (y.shape, y.strides, y.place((0, 1)) - y.place((0, 0)))
    assert 0 == step.result.allocated


def test_a_view_of_a_transposed_matrix_is_refused_and_a_reshape_copies() -> None:
    """Where torch says that view size is not compatible with input tensor's size and stride."""
    *_, last = chain("2x3", "x.transpose(0, 1).view(6)")
    *_, copied = chain("2x3", "x.transpose(0, 1).reshape(6)")

    assert last.result is None
    assert ("view(6,) of strides (1, 3): no strides give these elements in that shape; use reshape, which copies") == last.refused
    assert 6 * 4 == copied.result.allocated


def test_two_matrices_of_32_by_32_take_8192_bytes() -> None:
    """2 · 32 · 32 · 4."""
    assert 8192 == 2 * tensor((32, 32)).nbytes


def test_gpt3_s_feed_forward_matrix_takes_2304_mib() -> None:
    """12288·4 by 12288 in fp32."""
    assert 2304 * 2**20 == tensor((12288 * 4, 12288)).nbytes


@pytest.mark.parametrize(
    ("text", "allocated"),
    [
        ("x.view(16)", 0), ("x.reshape(2, 8)", 0), ("x.T", 0), ("x.T.reshape(16)", 64), ("x[None].expand(3, 4, 4)", 0), ("x[1:3]", 0),
        ("x.contiguous()", 0), ("x.T.contiguous()", 64), ("x.to(bf16)", 32), ("x.to(fp32)", 0), ("x + 1", 64), ("x.add_(1)", 0),
    ],
)  # fmt: skip
def test_what_allocates(text: str, allocated: int) -> None:
    """Of a 4 by 4 matrix in fp32, 64 bytes."""
    assert allocated == sum(step.result.allocated for step in chain("4x4", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x.foo()", r"^cannot read 'x\.foo\(\)': use x\[…\], .*$"),
        ("__import__('os')", r"^cannot read .*: use x\[…\], .*$"),
        ("x.view(*y)", r"^cannot read '\*y' in 'x\.view\(\*y\)': write a whole number$"),
        ("x.view(", r"^cannot read 'x\.view\(': write a chain of operations on x, e\.g\. x\.transpose\(0, 1\)\.contiguous\(\)$"),
        ("x.view(2.5)", r"^cannot read '2\.5' in 'x\.view\(2\.5\)': write a whole number$"),
        ("x.transpose(0)", r"^transpose takes 2 arguments, not 1$"),
        ("x.to(0)", r"^to takes a number format, not 0$"),
        ("x" * 500, r"^an expression of 500 characters is too long: at most 400$"),
    ],
)
def test_what_is_no_chain_is_refused_in_one_line(text: str, message: str) -> None:
    """And nothing of it is executed."""
    with pytest.raises(BadInputError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4x-4", r"^size 2 of the shape = -4 is not positive: .*$"),
        ("", r"^cannot read the shape '': write 1 to 8 sizes, e\.g\. 4x4$"),
        ("4xx4", "^cannot read the shape '4xx4': write 1 to 8 sizes, e.g. 4x4$"),
        ("9" * 30, r"^size 1 of the shape is too large .*$"),
    ],
)
def test_what_is_no_shape_is_refused_in_one_line(text: str, message: str) -> None:
    """With what it should be."""
    with pytest.raises(BadInputError, match=message):
        shape_of(text)


def test_a_new_tensor_is_contiguous_and_dense() -> None:
    """And one with gaps, or seen again and again, is not."""
    assert fresh((2, 3)).contiguous
    assert not StridedLayout((2, 3), (6, 2)).dense
    assert not StridedLayout((2, 3), (0, 1)).dense
