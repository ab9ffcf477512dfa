"""Results as Python prints them, and sizes set in closed forms: a screen, units, and no silent no-op."""

from __future__ import annotations

import json
import pickle
import pkgutil
import pydoc
from dataclasses import replace

import pytest

import calc
from calc.derive.compare import compare
from calc.derive.result import Derivation
from calc.errors import BadInputError, DimensionError
from calc.symbolic.algebra import maximum, symbol
from calc.units import QuantityValue, Unit

sympy = pytest.importorskip("sympy")


@pytest.fixture(scope="module")
def result() -> Derivation:
    return calc.derive(calc.load("mlp"), {"B": 2, "d": 3, "f": 5, "K": 7})


def test_every_result_prints_a_screen(result: Derivation) -> None:
    """At most 40 lines of 120 characters, and one title."""
    results = (
        result,
        result["memory.peak"],
        calc.load("mlp"),
        calc.trace(calc.load("mlp")),
        calc.ask("training-time", parameters=70e9, tokens=15e12, gpu="h100-sxm", gpus=1024, mfu=0.5),
        calc.sweep("two-layer", {"B": list(range(1, 100))}, ["memory.peak", "parameters"]),
        compare(result, calc.derive(calc.load("mlp"), {"B": 2, "d": 3, "f": 11, "K": 7})),
        calc.gradients(calc.load("two-layer")),
        calc.check(result),
    )
    for each in results:
        title, *lines = repr(each).splitlines()
        assert len(title) <= 400
        assert len(lines) <= 41
        assert all(len(line) <= 120 for line in lines)


def test_an_answer_prints_the_value_of_a_long_formula() -> None:
    """The formula of a peak is longer than the line; its value and unit are not cut off."""
    _, *lines = repr(calc.ask("largest-batch", model="gpt2", memory="80GB")).splitlines()

    assert len(lines) == 2
    assert all("= 7.88976e+10 bytes" in line for line in lines)


def test_what_evaluates_other_sizes_prints_no_model(result: Derivation) -> None:
    """It holds every trace: half a million characters for GPT-2."""
    assert len(repr(result.other_sizes)) < 100


def test_a_size_among_options_is_told_where_it_goes() -> None:
    """``derive`` takes sizes as a dictionary, ``at`` and ``check`` by name."""
    with pytest.raises(BadInputError, match=r"^unknown option 'B': .*; sizes are a dictionary, \{'B': 8\}$"):
        calc.derive(calc.load("mlp"), B=8)


def test_gradients_print_a_line_for_each_parameter() -> None:
    """With its shape, below the FLOPs of the matmuls: 2 B D (D + K) of the forward; dW₁, dW₂ and dH of the gradients."""
    assert repr(calc.gradients(calc.load("two-layer"))).splitlines() == [
        "two-layer: matmuls of the forward 2*B*D**2 + 2*B*D*K FLOP, of the gradients 2*B*D**2 + 4*B*D*K FLOP",
        "∂ℒ/∂w1  (D, D)",
        "∂ℒ/∂w2  (D, K)",
    ]


def test_a_derivation_prints_every_quantity_of_its_step(result: Derivation) -> None:
    """3·5 + 5 + 5·7 + 7 = 62 parameters; fp32 keeps no master weights, so none are listed."""
    text = repr(result)

    assert text.startswith("mlp: B = 2, d = 3, f = 5, K = 7\n")
    assert "parameters                   62 elements  " in text
    assert "master_weights" not in text


def test_names_of_a_user_do_not_act_on_the_terminal(result: Derivation) -> None:
    """They are printed escaped."""
    assert repr(replace(result, model="a\x1b[31mb")).startswith("a\\x1b[31mb: ")


def test_a_value_has_its_unit_and_is_an_integer(result: Derivation) -> None:
    """Printed with it; digits in format strings and in JSON."""
    value = result["parameters.bytes"].at(d=4)

    assert (value, value.unit, repr(value)) == (4 * (4 * 5 + 5 + 5 * 7 + 7), Unit.BYTE, "268 bytes")
    assert (str(value), f"{value}", json.dumps(value), f"{value:,}") == ("268 bytes", "268 bytes", "268", "268")
    assert repr(pickle.loads(pickle.dumps(value))) == "268 bytes"
    assert repr(QuantityValue(1, Unit.BYTE)) == "1 byte"
    assert repr(QuantityValue(2, Unit.FLOP)) == "2 FLOP"


def test_sizes_are_set_by_name_or_symbol(result: Derivation) -> None:
    """Whatever is assumed of a symbol: d f + f + f K + K."""
    quantity, (d, f) = result["parameters"], sympy.symbols("d f")
    symbols = {each.name: each for each in quantity.expr.free_symbols}
    expected = quantity.expr.xreplace({symbols["d"]: sympy.Integer(8)})

    assert quantity.subs("d", 8) == quantity.subs(d, 8) == quantity.subs(symbols["d"], 8) == quantity.subs({"d": 8}) == expected
    assert quantity.subs(d=8) == expected
    assert quantity.subs({d: 3, f: 5, "K": 7}) == quantity.subs({d: 3, f: 5}, K=7) == quantity.at({"d": 3, "f": 5}, K=7) == 62
    assert quantity.subs("f", "d").subs({"d": 3, "K": 7}) == quantity.subs("f", d).subs({"d": 3, "K": 7}) == 3 * 3 + 3 + 3 * 7 + 7
    assert result["memory.peak"].subs({"B": 2, "d": 3, "f": 5, "K": 7}) == result["memory.peak"].value


def test_sizes_are_set_in_the_expression_by_name_or_symbol(result: Derivation) -> None:
    """SymPy alone would return it unchanged for "d" and a symbol without assumptions: 8 f + f + f K + K."""
    expr, d = result["parameters"].expr, sympy.Symbol("d")
    expected = result["parameters"].subs("d", 8)

    assert expr.subs("d", 8) == expr.subs(d, 8) == expr.subs({d: 8}) == expr.subs([("d", 8)]) == expected != expr
    assert expr.subs({"d": 3, "f": 5, "K": 7}) == 62


def test_a_misspelled_name_is_refused_in_the_expression(result: Derivation) -> None:
    """Of a sum and of a maximum, also after a size is set; a symbol that is absent changes nothing, as everywhere in SymPy."""
    for name, symbols in (("parameters", "K, d, f"), ("memory.peak", "B, K, d, f")):
        expr = result[name].expr
        for arguments in (("Z", 8), ({"Z": 8},), ([("d", 2), ("Z", 8)],)):
            with pytest.raises(BadInputError, match=rf"^this expression has no 'Z': it has {symbols}$"):
                expr.subs(*arguments)
        with pytest.raises(BadInputError, match=r"^this expression has no 'd': it has "):
            expr.subs("d", 2).subs("d", 2)
        assert expr.subs(sympy.Symbol("Z"), 8) == expr


@pytest.mark.parametrize("name", ["parameters", "memory.peak", "flops.step.total"])
def test_an_expression_is_one_of_sympy(result: Derivation, name: str) -> None:
    """Equal to the same expression of SymPy's classes, with its hash; what SymPy makes from it is SymPy's."""
    expr = result[name].expr
    plain = expr.func(*expr.args)
    d = next(symbol for symbol in expr.free_symbols if symbol.name == "d")

    assert type(plain) is not type(expr)
    assert expr == plain == pickle.loads(pickle.dumps(expr)) == sympy.sympify(expr)
    assert {plain: 1}[expr] == {expr: 1}[plain] == 1
    assert (expr - plain, 2 * expr, expr.diff(d), expr.expand()) == (0, 2 * plain, plain.diff(d), plain.expand())
    assert (str(expr), sympy.latex(expr), sympy.srepr(expr)) == (str(plain), sympy.latex(plain), sympy.srepr(plain))


def test_a_maximum_is_not_compared_pair_by_pair() -> None:
    """SymPy takes minutes for thirty closed forms after each ``subs``; here none is compared until all are numbers."""
    sizes = sympy.symbols("a:30", positive=True, integer=True)
    peak = maximum([symbol("B") * size + size**2 for size in sizes])

    assert len(peak.subs("B", 8).args) == 30
    assert peak.subs({"B": 2} | {size: number for number, size in enumerate(sizes)}) == 2 * 29 + 29**2
    assert maximum([symbol("B") + 1, symbol("B")]) == symbol("B") + 1


def test_a_value_at_the_sizes_of_a_derivation_has_its_unit(result: Derivation) -> None:
    assert (result["parameters"].value, repr(result["parameters"].value)) == (62, "62 elements")


def test_a_name_that_the_closed_form_does_not_have_is_refused(result: Derivation) -> None:
    """Nothing is returned unchanged."""
    with pytest.raises(BadInputError, match=r"^parameters has no 'B': its closed form has K, d, f$"):
        result["parameters"].subs("B", 8)
    with pytest.raises(BadInputError, match=r"^give a name and a size, or a dictionary of them: parameters\.subs\(\"B\", 8\)$"):
        result["parameters"].subs("d")
    with pytest.raises(DimensionError, match=r"^this model has no dimension 'X': it has B, d, f, K$"):
        result["parameters"].at(X=8)


@pytest.mark.parametrize("size", [0, -1, 1.5, "2/3"])
def test_what_is_no_size_is_not_substituted(result: Derivation, size: object) -> None:
    """As ``at`` refuses it."""
    with pytest.raises(DimensionError, match=r"^d = .* is not a size: sizes are integers from 1 to 2\*\*63 - 1$"):
        result["parameters"].subs("d", size)


def test_a_step_prints_as_a_line(result: Derivation) -> None:
    """All of a derivation's steps fit a few screens."""
    assert "<parameters, 0.weight: 15>" == repr(result.steps[0])


def test_the_example_of_the_package_runs() -> None:
    """Every line of ``help(calc)``, of a model that is quick to trace."""
    lines = [line.strip() for line in (calc.__doc__ or "").splitlines() if line.startswith("    ")]
    values = {"calc": calc}

    assert len(lines) == 8
    for line in lines:
        exec(line.replace("gpt2", "mlp").replace("T=", "f="), values)


def test_the_help_of_the_package_has_its_public_names_only() -> None:
    """The submodules, which are internal, are found by everything else."""
    text = pydoc.render_doc(calc)

    assert not {"SUBMODULES", "PACKAGE CONTENTS"} & {line.strip() for line in text.splitlines()}
    assert "pipeline" in {module.name for module in pkgutil.iter_modules(calc.__path__)}
    assert {name for name in dir(calc) if not name.startswith("__")} == set(calc.__all__)
