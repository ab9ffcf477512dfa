"""Closed forms by cases: which case is in force at given sizes, and what each case is.

A step that runs otherwise at some sizes (B = 1) has ``Piecewise((special, Eq(B, 1)), (general, True))`` for its text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from calc.errors import NapkinError
from calc.symbolic.exact import evaluate_text


def at_hand(text: str, sizes: Mapping[str, int]) -> str:
    """``text`` with the case that is in force at ``sizes`` in place of each choice between cases."""
    return _chosen(text, sizes)[0]


def equalities_at(texts: Iterable[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The equalities under which closed forms are cases of their own that are in force at ``sizes``, such as ``B = 1``. None: the
    general forms are."""
    equalities = (equality for text in texts for condition in _chosen(text, sizes)[1] for equality in _equalities(condition))
    return tuple(dict.fromkeys(equalities))


def _chosen(text: str, sizes: Mapping[str, int]) -> tuple[str, list[ast.expr]]:
    """The form that is in force at ``sizes``, and the conditions of the choices that led to it."""
    if "Piecewise" not in text:
        return text, []
    conditions: list[ast.expr] = []

    class Choose(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            if not _is_choice(node):
                node.args = [self.visit(a) for a in node.args]
                return node
            for expr, condition in _cases(node):
                if _holds(condition, sizes):
                    conditions.append(condition)
                    chosen: ast.expr = self.visit(expr)
                    return chosen
            raise NapkinError(f"no case of {ast.unparse(node)[:80]!r} holds at {dict(sizes)}")

    return ast.unparse(Choose().visit(ast.parse(text, mode="eval").body)), conditions


def _equalities(condition: ast.expr) -> Iterator[str]:
    for node in ast.walk(condition):
        match node:
            case ast.Call(func=ast.Name(id="Eq"), args=[left, right]):
                yield f"{ast.unparse(left)} = {ast.unparse(right)}"


def value(text: str, sizes: Mapping[str, int]) -> Fraction:
    """Exact value of a closed form, by cases or not."""
    return evaluate_text(at_hand(text, sizes), sizes)


def other_cases(text: str, sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """``(expression, condition)`` of the cases not in force, outermost choice only; the last condition is ``"True"``."""
    node = _choice(text)
    if node is None:
        return []
    cases = _cases(node)
    here = next(i for i, (_, condition) in enumerate(cases) if _holds(condition, sizes))
    return [(ast.unparse(expr), ast.unparse(condition)) for i, (expr, condition) in enumerate(cases) if i != here]


def condition_at(text: str, sizes: Mapping[str, int]) -> str:
    """The condition of the case in force: ``"Eq(B, 1)"``; empty where the form is not by cases, or is the general one."""
    node = _choice(text)
    if node is None:
        return ""
    case_condition = next(condition for _, condition in _cases(node) if _holds(condition, sizes))
    return "" if isinstance(case_condition, ast.Constant) else ast.unparse(case_condition)


def _choice(text: str) -> ast.Call | None:
    """The choice that a closed form is, if it is one."""
    if not text.startswith("Piecewise"):
        return None
    node = ast.parse(text, mode="eval").body
    return node if isinstance(node, ast.Call) and _is_choice(node) else None


def _is_choice(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Piecewise"


def _cases(node: ast.Call) -> list[tuple[ast.expr, ast.expr]]:
    return [(a.elts[0], a.elts[1]) for a in node.args if isinstance(a, ast.Tuple) and len(a.elts) == 2]


def _holds(condition: ast.expr, sizes: Mapping[str, int]) -> bool:
    match condition:
        case ast.Constant(value=bool() as truth):
            return truth
        case ast.Call(func=ast.Name(id="And"), args=args):
            return all(_holds(a, sizes) for a in args)
        case ast.Call(func=ast.Name(id="Eq"), args=[a, b]):
            return evaluate_text(ast.unparse(a), sizes) == evaluate_text(ast.unparse(b), sizes)
        case ast.Call(func=ast.Name(id="Ne"), args=[a, b]):
            return evaluate_text(ast.unparse(a), sizes) != evaluate_text(ast.unparse(b), sizes)
    raise NapkinError(f"cannot read the condition {ast.unparse(condition)!r} of a closed form by cases")
