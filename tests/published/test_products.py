"""Published counts of products, as expressions and as numbers, from what a step of such a model executes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import sympy as sp

from calc.derive.result import Derivation
from calc.symbolic.algebra import to_sympy
from tests.published.decoder import Choices
from tests.published.derived import decoded, decoder_trained, part, value
from tests.published.figures import assert_reproduced, assert_same, printed, reproduces

BARE = Choices(norm="none")
B, T, L = (to_sympy(letter) for letter in "BTL")


@reproduces("kaplan-table1-params", slow=True)
def test_parameters_of_kaplan(row: str) -> None:
    """Without biases and norms; attention a = h k may be narrower than the model."""
    derivation = decoded(Choices(positions="learned", norm="none"), C=128)

    def ours(*sites: str) -> sp.Expr:
        return part(derivation, "parameters", *sites)

    attention = "blocks.*.attention"
    assert_same(printed(row, "embed", T="C"), ours("words", "places"))
    assert_same(printed(row, "attn_qkv", a="h*k"), ours(*(f"{attention}.{name}" for name in ("query", "key", "value"))))
    assert_same(printed(row, "attn_project", a="h*k"), ours(f"{attention}.project"))
    assert_same(printed(row, "feedforward"), ours("blocks.*.feed_forward"))
    assert_same(printed(row, "total_non_embedding_N", a="h*k"), ours("blocks"))


@reproduces("chinchilla-appendixF", slow=True)
def test_products_of_chinchilla(row: str) -> None:
    """Each printed line is for one sequence and one layer. A lookup is no product here, and softmax also subtracts the maximum."""
    derivation = decoder_trained(BARE)

    def ours(*sites: str) -> sp.Expr:
        return part(derivation, "flops.forward.matmul", *sites) / B

    attention = "blocks.*.attention"
    assert_same(printed(row, "qkv", s="T"), ours(*(f"{attention}.{name}" for name in ("query", "key", "value"))) / L)
    assert_same(printed(row, "final_linear", s="T"), ours(f"{attention}.project") / L)
    assert_same(printed(row, "dense_block", s="T"), ours("blocks.*.feed_forward") / L)
    assert_same(printed(row, "final_logits", s="T"), ours("head"))
    assert_same(printed(row, "embeddings", s="T"), ours("head"))  # as a product with one-hot rows it would be the head's
    assert not [term for term in derivation["flops.forward.matmul"].terms if term.module_path == "words"]
    products = [term for term in derivation["flops.forward.matmul"].terms if term.module_path == attention]
    both = printed(row, "key_query_logits", s="T") + printed(row, "softmax_times_v", s="T")
    assert_same(both, sp.Add(*(to_sympy(term.expr) for term in products)) / B / L)
    forward, backward = (derivation[f"flops.{phase}.matmul"].expr for phase in ("forward", "backward"))
    assert_same(printed(row, "backward").subs(to_sympy("forward"), forward), backward)


@reproduces("megatron-eq3-symbolic", slow=True)
def test_products_of_an_iteration_of_megatron(row: str) -> None:
    """A step, and a step in which every block is recomputed in the backward pass: the head does not."""
    letters = {"s": "T", "l": "L", "h": "d"}
    as_gpt = {to_sympy("f"): to_sympy("4*d"), to_sympy("k"): to_sympy("d/h")}
    plain, checkpointed = (decoder_trained(choices) for choices in (BARE, replace(BARE, checkpointed=True)))

    def step(derivation: Derivation) -> sp.Expr:
        return (derivation["flops.forward.matmul"].expr + derivation["flops.backward.matmul"].expr).subs(as_gpt)

    assert_same(printed(row, "without_recompute", **letters), step(plain))
    assert_same(printed(row, "with_full_recompute", **letters), step(checkpointed))


@reproduces("palm-mfu-symbolic", slow=True)
def test_products_per_token_of_palm(row: str) -> None:
    """6 N + 12 L H Q T, where every parameter multiplies every token: one key and value head, a tied head, no norms."""
    derivation = decoder_trained(Choices(gated=True, norm="none"), g=3)
    per_token = (derivation["flops.forward.matmul"].expr + derivation["flops.backward.matmul"].expr) / (B * T)
    formula = printed(row, "mfu", H="h", Q="k").subs(to_sympy("N"), derivation["parameters"].expr)

    assert_same(formula, to_sympy("tokens_per_s/P") * per_token)


CS336 = {"B": 1, "d": 1600, "h": 25, "k": 64, "f": 6400, "L": 48, "V": 50257}


@reproduces("cs336-a1-gpt2xl-2025", slow=True)
def test_the_assignments_gpt2_xl(row: str) -> None:
    """An untied head, three feed-forward matrices, root-mean-square norms, no biases; fp32 is 4 bytes."""
    derivation = decoded(Choices(gated=True, tied=False))
    count = value(derivation["parameters"].expr, **CS336)
    flops = value(derivation["flops.forward.matmul"].expr, T=1024, **CS336)

    assert_reproduced(row, {"params": count, "bytes_fp32": 4 * count, "forward_flops": flops})


@reproduces("cs336-a1-gpt2xl-16k", slow=True)
def test_the_assignments_gpt2_xl_at_sixteen_times_the_length(row: str) -> None:
    """Scores and weighted values grow with the square of it: from 7 % to 55 % of all products."""
    derivation = decoded(Choices(gated=True, tied=False))
    products = derivation["flops.forward.matmul"]
    (attention,) = (term for term in products.terms if term.module_path == "blocks.*.attention")
    flops, of_attention = (value(e, T=16384, **CS336) for e in (products.expr, to_sympy(attention.expr)))

    assert_reproduced(row, {"forward_flops": flops, "attention_share": Fraction(100 * of_attention, flops)})
