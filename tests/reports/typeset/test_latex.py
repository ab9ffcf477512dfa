"""Display trees as LaTeX and as text: few commands, nothing lost, and the same value as the tree."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calc
from calc.symbolic import latex, marks
from calc.symbolic import tree as display
from calc.symbolic.algebra import evaluate_text
from calc.symbolic.expression import Expression, Labelled, Name, Negative, Number, OverLayers, Power, Product, Quotient, Sum
from calc.symbolic.marks import as_latex
from calc.symbolic.parser import parse
from calc.symbolic.tree import maximum
from reports.page.model import FormulaPieces, TypesetFormula
from reports.typeset import expressions, mathml, plain
from reports.writers import tex
from tests.reports import allowed, sample


def power(base: Expression, exponent: int) -> Power:
    return Power(base, Number(exponent))


SIZES = {"B": 2, "T": 7, "d": 12, "L": 3}

names = st.sampled_from(sorted(SIZES)).map(Name)
numbers = st.integers(1, 10**7).map(Number)
trees = st.recursive(
    names | numbers,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda items: Sum(tuple(items))),
        st.lists(inner, min_size=2, max_size=4).map(lambda items: Product(tuple(items))),
        inner.map(Negative),
        st.tuples(inner, st.integers(2, 3)).map(lambda pair: power(*pair)),
        st.tuples(inner, numbers).map(lambda pair: Quotient(*pair)),
        st.tuples(inner, st.text(max_size=20)).map(lambda pair: Labelled(*pair)),
        inner.map(lambda body: OverLayers("l", Name("L"), body)),
        st.lists(inner, min_size=1, max_size=3).map(maximum),
    ),
    max_leaves=12,
)


@given(trees)
def test_every_tree_uses_allowed_commands_only(tree):
    """GitHub refuses others, and a converter would print them as text."""
    assert allowed.commands_in(" ".join(map(as_latex, latex.pieces(tree)))) <= allowed.COMMANDS


@given(trees)
def test_every_tree_converts_to_mathml_core(tree):
    """No piece fails to convert, and none needs an element outside the core."""
    html = mathml.formula(map(as_latex, latex.pieces(tree)))

    assert set(re.findall(r"<(\w+)", html)) <= allowed.ELEMENTS | {"wbr"}


@given(trees)
def test_numbers_put_in_do_not_change_the_value(tree):
    """The substituted row evaluates to what the tree is worth."""
    put = expressions.substituted(tree, SIZES)

    assert evaluate_text(display.text(tree), SIZES) == evaluate_text(display.text(put), {})


@given(trees)
def test_parsing_the_text_of_a_tree_keeps_its_value(tree):
    """A closed form printed from its text is the closed form."""
    text = display.text(tree)

    assert evaluate_text(text, SIZES) == evaluate_text(display.text(expressions.parse(text)), SIZES)


@given(trees)
def test_brackets_balance_over_all_pieces(tree):
    """A long sum may be cut inside a bracket, but never loses one."""
    whole = re.sub(r"\\text\{(?:[^{}\\]|\\.)*\}", "", " ".join(map(as_latex, latex.pieces(tree))))

    assert whole.count("(") == whole.count(")")
    assert whole.count("{") == whole.count("}")


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (Product((Number(12), Name("L"), power(Name("d"), 2))), r"12\,L\,d^{2}"),
        (Product((Number(2), Product((Name("B"), Name("T"))), Name("d"))), r"2(B\,T)d"),
        (Product((Number(2), Number(768))), r"2 \cdot 768"),
        (power(Number(1024), 2), r"{1{,}024}^{2}"),
        (Name("d_model"), r"\mathrm{d\_model}"),
        (Product((Number(4), Name("B"), Name("kv_lora_rank"))), r"4\,B\,\mathrm{kv\_lora\_rank}"),
        (Product((Name("q_lora_rank"), Name("kv_lora_rank"))), r"\mathrm{q\_lora\_rank} \cdot \mathrm{kv\_lora\_rank}"),
        (power(Name("kv_lora_rank"), 2), r"{\mathrm{kv\_lora\_rank}}^{2}"),
        (power(Name("S / P"), 2), r"\left(\frac{S}{P}\right)^{2}"),
        (power(Name("T % 2"), 2), r"(T \bmod 2)^{2}"),
        (Product((Number(3), Name("T % 2"))), r"3(T \bmod 2)"),
        (Name("n1"), "n_{1}"),
        (Name("floor(T/2)"), r"\left\lfloor \frac{T}{2} \right\rfloor"),
        (Name("floor((255 + T)/256)"), r"\left\lceil \frac{T}{256} \right\rceil"),
        (Name("floor((255 + 2**T)/256)"), r"\left\lfloor \frac{255 + {2}^{T}}{256} \right\rfloor"),
        (Name("ceiling(log(T, 2))"), r"\left\lceil \log_2 T \right\rceil"),
        (Name("ceiling(log(2*T, 2))"), r"\left\lceil \log_2(2\,T) \right\rceil"),
        (Labelled(Name("d"), "c_attn"), r"\underbrace{d}_{\text{c\_attn}}"),
        (OverLayers("l", Name("L"), Product((Number(13), Name("d")))), r"\sum_{\ell=1}^{L} 13\,d"),
        (Negative(Product((Number(2), Name("d")))), r"-2\,d"),
        (maximum((Name("B"), Name("T"))), r"\max(B, T)"),
        (Quotient(Product((Number(7), Name("B"), Name("T"))), Number(2)), r"\frac{7}{2}\,B\,T"),
        (Quotient(Name("T"), Number(2)), r"\frac{T}{2}"),
    ],
)
def test_latex_of(tree, expected):
    """Each kind of node as a reader expects it."""
    assert expected == latex.latex(tree)


def test_a_sum_is_cut_before_each_operator():
    """Lines may break before + and −, and nowhere else."""
    tree = Sum((Name("d"), Product((Number(2), Name("B"))), Negative(Name("T"))))

    assert ["d", "+2\\,B", "-T"] == [as_latex(piece) for piece in latex.pieces(tree)]


@pytest.mark.parametrize(("label", "written"), [("[a = b](c)", "(a = b)(c)"), ("x[i]", "x(i)")])
def test_brackets_of_a_label_are_parentheses(label, written):
    """With brackets it could be a link of Markdown."""
    assert latex.text(label) == rf"\text{{{written}}}"


@pytest.mark.parametrize("label", ["a_b $x$ \\evil{} `|` <b> [l](u) ~^#%&", "\x1b[31m", "a" * 500, "\u202e"])
def test_a_hostile_label_stays_text(label):
    """Nothing in a label ends the text, the formula, a code span or a table cell; length is bounded."""
    written = latex.text(label)

    assert allowed.commands_in(written) <= allowed.COMMANDS
    assert not set("`|<>[]~^\x1b\u202e") & set(written)
    assert len(written) < 120
    assert mathml.piece(written).startswith("<math><mtext>")


def _own_texts() -> Iterator[str]:
    """Every string of the modules whose words stand as labels under terms: rules, steps and rules of thumb."""
    for folder in ("rules", "derive", "textbook", "sharding"):
        for path in sorted((Path(calc.__file__).parent / folder).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_no_sign_of_our_own_texts_is_lost_in_a_label():
    """√, ⋆ and the hat of x̂ stand in rules; none becomes a question mark."""
    texts = list(_own_texts())

    lost = {c for text in texts for before, c in itertools.pairwise(f" {text}") if c != "?" and latex.text(before + c).endswith("?}")}
    assert {c for text in texts for c in text} > {"√", "⋆", "\u0302"}
    assert set() == lost
    assert r"\text{1/√(x + ε) · (g - x̂)}" == latex.text("1/√(x + ε) · (g - x̂)")


def test_a_hat_without_a_letter_or_on_a_hat_is_not_set():
    """Signs heaped on one another would leave their line."""
    assert r"\text{x̂? ?}" == latex.text("x\u0302\u0302 \u0302")


def test_a_hatted_letter_in_a_label_is_one_accent_for_a_stock_latex():
    """Its hat is a character of its own in the text, and in front of the letter in LaTeX."""
    formula = TypesetFormula(("",), lambda: FormulaPieces((latex.marked(Labelled(Name("B"), "dy x̂ √2")),)))

    written = str(tex._maths(formula.pieces))
    assert r"$\underbrace{B}_{\text{dy \text{\^{x}} \text{\ensuremath{\surd}}2}}$" == written


def test_the_longest_label_of_our_own_is_not_cut():
    """Query, key and value saved for a fused attention; a longer one ends behind a word."""
    own = "float32 saved for the backward of aten._scaled_dot_product_flash_attention_for_cpu.default (query, key, value)"

    assert latex.text(own).replace("\\_", "_") == rf"\text{{{own}}}"
    assert latex.text("forty words " * 40) == rf"\text{{{'forty words ' * 9}…}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Eq(Mod(d, h), 0)", r"d \bmod h = 0"),
        ("T <= C", r"T \le C"),
        ("Ne(B*T, 1)", r"B\,T \ne 1"),
        ("relu(B)", None),
    ],
)
def test_conditions_are_typeset_where_they_can_be(text, expected):
    """What has no sign is left to words."""
    written = latex.relation(parse(text))

    assert expected == (written and as_latex(written))


def test_a_dimension_with_a_long_name_is_one_upright_name_in_every_format():
    """An identifier in MathML, which neither breaks nor reads as a product of its letters; itself on a terminal."""
    tree = Product((Number(2), Name("B"), power(Name("moe_intermediate_size"), 2)))

    made = mathml.piece(latex.latex(tree))
    assert "<mi>moe_intermediate_size</mi>" in made
    assert set(re.findall(r"<(\w+)", made)) <= allowed.ELEMENTS
    assert "2·B·moe_intermediate_size²" == plain.plain(tree)
    assert allowed.commands_in(latex.latex(tree)) <= allowed.COMMANDS


def test_powers_and_quotients_inside_labels_keep_their_brackets_on_a_terminal():
    """A label around them changes nothing; neither does one around a label."""
    assert "(B²)³" == plain.plain(power(Labelled(Labelled(power(Name("B"), 2), "a"), "b"), 3))
    assert "2·(T // 2)" == plain.plain(Product((Number(2), Name("T // 2"))))


def test_thousands_are_one_number_in_mathml():
    """124,439,808 is one <mn>: it reads, copies and breaks as one."""
    assert "<math><mn>124,439,808</mn></math>" == mathml.piece(as_latex(marks.number(124_439_808)))


def test_a_minus_twelve_times_is_minus_a_product():
    """Python reads -12*d as (-12)*d; a reader should not."""
    assert "−12·B·d" == plain.plain(expressions.parse("-12*B*d"))


def test_plain_text_shows_labels_and_layers():
    """The terminal's form of a step."""
    total = next(s for s in sample.derivation().steps if s.id == "parameters.total")

    assert ("V·d [wte]", "+ C·d [wpe]", "+ Σ[l = 1…L] (4·d² + 2·d·f + 9·d + f) [h.*]", "+ 2·d [ln_f]") == plain.terms(total.before)
