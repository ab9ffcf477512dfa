"""The ledger of operators: what it adds up to, and a refusal in words."""

from __future__ import annotations

from fractions import Fraction

from calc.graph.coverage import CoverageRow, Ledger, Place, refusal

MM = CoverageRow("aten.mm.default", "2*L", 6, "counted", "C = A B", "2*B*d**2*L", 300)
VIEW = CoverageRow("aten.view.default", "3", 3, "free", "moves nothing", "0", 0)
TANH = CoverageRow("aten.tanh.default", "L", 3, "refused", "", None, None, True, (Place("h.*.act", "self (B, d) float32", "L", 3),))
HINT = (
    "An operator without a rule is never counted as zero: state its cost with @calc.rules.rule('aten.tanh.default', …), or, if it truly"
    " costs nothing, state the reason with calc.rules.free('aten.tanh.default', because=…)."
)


def test_an_accepted_ledger_has_nothing_refused() -> None:
    """6 + 3 calls, none of them refused, and all FLOPs."""
    ledger = Ledger((MM, VIEW))

    assert ledger.accepted
    assert (9, 300, 0) == (ledger.calls, ledger.flops, ledger.calls_of("refused"))
    assert Fraction(0) == ledger.share_of_calls(*ledger.of("refused"))


def test_shares_are_exact_parts_of_the_whole() -> None:
    """6 of 9 calls, and all of the FLOPs; the parts add up to one."""
    ledger = Ledger((MM, VIEW))

    assert (Fraction(2, 3), Fraction(1, 3)) == (ledger.share_of_calls(MM), ledger.share_of_calls(VIEW))
    assert (1, 0) == (ledger.share_of_flops(MM), ledger.share_of_flops(VIEW))


def test_flops_are_unknown_while_an_operator_is_refused() -> None:
    """Not the sum of the others: what a refused one adds is not 0."""
    ledger = Ledger((MM, VIEW, TANH))

    assert not ledger.accepted
    assert None is ledger.flops
    assert None is ledger.share_of_flops(MM)
    assert Fraction(3, 12) == ledger.share_of_calls(TANH)


def test_a_step_without_calls_or_flops_has_no_shares() -> None:
    """Nothing is divided by zero."""
    assert None is Ledger(()).share_of_calls()
    assert None is Ledger((VIEW,)).share_of_flops(VIEW)


def test_the_refusal_of_one_operator_names_place_shapes_calls_and_the_way_out() -> None:
    """All of it in one line."""
    expected = (
        "no cost rule for operator aten.tanh.default at h.*.act, inputs: self (B, d) float32, L times (3)."
        f" Not counted: 3 of 9 calls (33.3%). Nearest known: aten.tan.default. {HINT}"
    )

    assert expected == refusal(Ledger((MM, TANH)), ["aten.tan.default"])


def test_a_refusal_names_every_operator_without_a_rule() -> None:
    """Two of them, the second in three places and at the top level first."""
    places = (Place("", "", "1", 1), Place("a", "x (B) int64", "1", 1), Place("b", "x (B) int64", "2", 2))
    own = CoverageRow("my.own", "4", 4, "refused", "", None, None, True, places)
    expected = (
        "no cost rule for 2 operators: aten.tanh.default at h.*.act, inputs: self (B, d) float32, L times (3);"
        " my.own at the top level, inputs: none, once, and at 2 more module paths, 4 times in all."
        f" Not counted: 7 of 13 calls (53.8%). {HINT}"
    )

    assert expected == refusal(Ledger((MM, TANH, own)), [])


def test_a_call_that_its_rule_does_not_fit_is_refused_with_the_rules_own_reason() -> None:
    """No hint to state a rule: there is one."""
    row = CoverageRow("aten.index.Tensor", "1", 1, "refused", "it selects by a mask", places=(Place("pick", "self (B) bool", "1", 1),))
    expected = "it selects by a mask (at pick, inputs: self (B) bool, once). Not counted: 1 of 7 calls (14.3%)."

    assert expected == refusal(Ledger((MM, row)), ["aten.index.Tensor"])
