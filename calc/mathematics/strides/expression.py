"""Chains of operations on a tensor x as they are written in Python, ``x.transpose(0, 1)[1:3].contiguous()``; nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calc.dimensions import parse_size
from calc.errors import BadInputError
from calc.mathematics.strides.operations import OPERATIONS, StridedResult, StridedTensor, index, tensor

_LONGEST = 400
_MOST_DIMENSIONS = 8
_CASTS = {"half": "fp16", "bfloat16": "bf16", "float": "fp32", "double": "fp64"}
_NUMBER = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, slots=True)
class MethodCall:
    """One operation: the name of a method with its arguments, or ``[]`` with its indices. ``text`` is how it is written."""

    name: str
    arguments: tuple[Any, ...]
    text: str


@dataclass(frozen=True, slots=True)
class StrideStep:
    """The result of a call, or in ``refused`` the reason why it fails, which ends the chain."""

    call: MethodCall
    result: StridedResult | None
    refused: str = ""


def shape_of(text: str) -> tuple[int, ...]:
    """``"4x4"`` or ``"2,3,5"`` → sizes."""
    parts = re.split(r"[x,]", text) if text else []
    if not all(part.strip() for part in parts or [""]) or len(parts) > _MOST_DIMENSIONS:
        raise BadInputError(f"cannot read the shape {text[:40]!r}: write 1 to {_MOST_DIMENSIONS} sizes, e.g. 4x4")
    return tuple(parse_size(f"size {at + 1} of the shape", part.strip()) for at, part in enumerate(parts))


def place_of(text: str, of: StridedTensor) -> tuple[int, ...]:
    """``"1,2"`` → the indices of an element."""
    parts = [part.strip() for part in text.split(",")]
    shape = of.layout.shape
    if len(parts) != len(shape) or not all(_NUMBER.fullmatch(part) for part in parts):
        raise BadInputError(f"cannot read the index {text[:40]!r} of a tensor of shape {shape}: write {len(shape)} numbers, e.g. 1,2")
    indices = tuple(map(int, parts))
    if not all(0 <= i < size for i, size in zip(indices, shape, strict=True)):
        raise BadInputError(f"the index {text[:40]} is outside the shape {shape}: indices begin at 0")
    return indices


def read(text: str) -> tuple[MethodCall, ...]:
    """The calls of a chain that begins with x, in order."""
    if len(text) > _LONGEST:
        raise BadInputError(f"an expression of {len(text)} characters is too long: at most {_LONGEST}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise BadInputError(f"cannot read {_clip(text)!r}: write a chain of operations on x, e.g. x.transpose(0, 1).contiguous()") from None
    return tuple(_calls(tree, text))


def _calls(node: ast.expr, text: str) -> list[MethodCall]:
    match node:
        case ast.Name(id="x"):
            return []
        case ast.Attribute(value=inner, attr="T"):
            return [*_calls(inner, text), MethodCall("t", (), "T")]
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=args, keywords=[]) if name in OPERATIONS or name in _CASTS:
            arguments = tuple(_argument(a, text) for a in args)
            if name in _CASTS and not arguments:
                return [*_calls(inner, text), MethodCall("to", (_CASTS[name],), f"{name}()")]
            if name in OPERATIONS:
                _, least, most = OPERATIONS[name]
                _require_arguments(name, arguments, least, most)
                return [*_calls(inner, text), MethodCall(name, arguments, f"{name}({', '.join(ast.unparse(a) for a in args)})")]
        case ast.Subscript(value=inner, slice=part):
            parts = part.elts if isinstance(part, ast.Tuple) else [part]
            return [
                *_calls(inner, text),
                MethodCall("[]", tuple(_index(p, text) for p in parts), f"[{', '.join(map(ast.unparse, parts))}]"),
            ]
        case ast.BinOp(left=inner, op=ast.Add() | ast.Mult() as sign, right=ast.Constant(value=int() | float() as number)) if (
            type(number) is not bool
        ):
            name = "add" if isinstance(sign, ast.Add) else "mul"
            return [*_calls(inner, text), MethodCall(name, (number,), f"{'+' if name == 'add' else '*'} {ast.unparse(node.right)}")]
    names = ", ".join([*OPERATIONS, *_CASTS])
    raise BadInputError(f"cannot read {_clip(ast.unparse(node))!r}: use x[…], x.T, x + 1, x * 2 or a method: {names}")


def _require_arguments(name: str, arguments: Sequence[Any], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise BadInputError(f"{name} takes {least if least == most else f'{least} to {most}'} arguments, not {len(arguments)}")
    texts = [a for a in arguments if isinstance(a, str)]
    if bool(texts) != (name == "to"):
        raise BadInputError(f"{name} takes {'a number format' if name == 'to' else 'numbers'}, not {', '.join(map(repr, arguments))[:60]}")
    nested = [a for a in arguments if isinstance(a, tuple)]
    if nested and (len(arguments) > 1 or name not in ("permute", "expand", "view", "reshape", "squeeze")):
        raise BadInputError(f"{name} takes its sizes one by one, or as one tuple")


def _argument(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_integer(part, text) for part in parts)
    return _integer(node, text)


def _index(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=value) if value is Ellipsis:
            return Ellipsis
        case ast.Slice(lower=lower, upper=upper, step=step):
            return slice(*(None if part is None else _integer(part, text) for part in (lower, upper, step)))
    return _integer(node, text)


def _integer(node: ast.expr, text: str) -> int:
    sign = -1 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else 1
    inner = node.operand if isinstance(node, ast.UnaryOp) and sign < 0 else node
    if isinstance(inner, ast.Constant) and type(inner.value) is int and inner.value < 2**62:
        return sign * inner.value
    raise BadInputError(f"cannot read {_clip(ast.unparse(node))!r} in {_clip(text)!r}: write a whole number")


def carried_out(x: StridedTensor, calls: Sequence[MethodCall]) -> tuple[StrideStep, ...]:
    """The result of each call, applied to that of the one before; a call that fails ends the chain."""
    steps: list[StrideStep] = []
    for call in calls:
        try:
            result = index(x, call.arguments) if call.name == "[]" else OPERATIONS[call.name][0](x, *call.arguments)
            if len(result.tensor.layout.shape) > _MOST_DIMENSIONS:
                raise BadInputError(f"{call.text} gives more than {_MOST_DIMENSIONS} dimensions")
        except BadInputError as error:
            steps.append(StrideStep(call, None, str(error)))
            break
        steps.append(StrideStep(call, result))
        x = result.tensor
    return tuple(steps)


def _clip(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}…{text[-12:]}"


# -- examples ---------------------------------------------------------------------------------------------------------
# Eight operations on one small matrix: which return views, and which allocate.


SHAPE = (4, 4)
# What is asked of each: an operation, where the layout allows it and where it does not.
CHAINS = (
    "x.view(2, 8)",
    "x.transpose(0, 1)",
    "x.transpose(0, 1).view(16)",
    "x.reshape(16)",
    "x.transpose(0, 1).reshape(16)",
    "x[1:3]",
    "x.unsqueeze(0).expand(3, 4, 4)",
    "x.contiguous()",
    "x.transpose(0, 1).contiguous()",
    "x.to(bf16)",
    "x + 1",
)


def demonstration(dtype: str = "fp32") -> tuple[StridedTensor, tuple[tuple[str, tuple[StrideStep, ...]], ...]]:
    """The matrix, and each chain carried out on it."""
    x = tensor(SHAPE, dtype)
    return x, tuple((text, carried_out(x, read(text))) for text in CHAINS)
