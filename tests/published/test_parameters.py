"""Parameters of published language models, from modules of their architecture at their sizes."""

from __future__ import annotations

from fractions import Fraction

import calc
from calc.derive.rules_of_thumb import RULES, compare
from calc.memory.inference import cache, layers_of
from calc.models.load import load
from calc.symbolic.algebra import evaluate_text
from tests.published.decoder import Choices
from tests.published.derived import decoded, of, part, value
from tests.published.figures import FIGURES, assert_reproduced, reproduces

PFLOPS_DAY = 10**15 * 24 * 60 * 60
MILLION = 10**6
BILLION = 10**9


def gpt(L: int, d: int, h: int, V: int = 50257, C: int = 1024) -> dict[str, int]:
    return {"L": L, "d": d, "h": h, "f": 4 * d, "V": V, "C": C, "T": 64}


GPT2 = {"small": gpt(12, 768, 12), "medium": gpt(24, 1024, 16), "large": gpt(36, 1280, 20)}
GPT3 = {
    "small": gpt(12, 768, 12, C=2048),
    "medium": gpt(24, 1024, 16, C=2048),
    "large": gpt(24, 1536, 16, C=2048),
    "xl": gpt(24, 2048, 16, C=2048),
    "6.7b": gpt(32, 4096, 32, C=2048),
    "13b": gpt(40, 5120, 40, C=2048),
    "175b": gpt(96, 12288, 96, C=2048),
}
MEGATRON = {
    "1.7b": gpt(24, 2304, 24, 51200, 2048),
    "3.6b": gpt(30, 3072, 32, 51200, 2048),
    "7.5b": gpt(36, 4096, 32, 51200, 2048),
    "18.4b": gpt(40, 6144, 48, 51200, 2048),
    "39.1b": gpt(48, 8192, 64, 51200, 2048),
    "76.1b": gpt(60, 10240, 80, 51200, 2048),
    "310.1b": gpt(96, 16384, 128, 51200, 2048),
    "529.6b": gpt(105, 20480, 128, 51200, 2048),
}

# Devices, and TFLOP/s that each of them achieved.
ACHIEVED = {
    "1.7b": (32, 137), "3.6b": (64, 138), "7.5b": (128, 142), "18.4b": (256, 135), "39.1b": (512, 138), "76.1b": (1024, 140),
    "310.1b": (1920, 155), "529.6b": (2520, 163),
}  # fmt: skip


def llama(L: int, d: int, h: int, g: int, f: int, V: int = 32000) -> dict[str, int]:
    return {"L": L, "d": d, "h": h, "g": g, "k": d // h, "f": f, "V": V}


LLAMA = {
    "llama1-7b": llama(32, 4096, 32, 32, 11008),
    "llama1-13b": llama(40, 5120, 40, 40, 13824),
    "llama1-33b": llama(60, 6656, 52, 52, 17920),
    "llama2-70b": llama(80, 8192, 64, 8, 28672),
    "llama3-8b": llama(32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": llama(80, 8192, 64, 8, 28672, 128256),
    "llama3-405b": llama(126, 16384, 128, 8, 53248, 128256),
    "k40": llama(40, 5120, 40, 40, 13824),
    "k8": llama(40, 5120, 40, 8, 13824),
}


def of_llama(name: str) -> int:
    """The closed form is a polynomial in all of them, so it also holds where g is h."""
    return value(of("llama3-8b")["parameters"].expr, **LLAMA[name])


@reproduces(*(f"gpt2-{size}-params" for size in GPT2))
def test_gpt2(row: str) -> None:
    """Learned positions, biases, a tied head."""
    assert_reproduced(row, {"params_exact": of("gpt2")["parameters"].at(**GPT2[row.split("-")[1]])})


@reproduces(*(f"gpt3-{size}-params" for size in GPT3))
def test_gpt3(row: str) -> None:
    """GPT-2 with 2048 positions, rounded as printed and to the last parameter."""
    count = of("gpt2")["parameters"].at(**GPT3[row.split("-")[1]])

    assert_reproduced(row, {"params": count, "params_exact_from_torch": count})


@reproduces(*(f"megatron-t1-{size}" for size in MEGATRON))
def test_megatron(row: str) -> None:
    """GPT-2 with a vocabulary padded to 51,200. Rates achieved are of the hardware, recomputation included, and of the dense peak."""
    size = row.split("-")[2]
    count = of("gpt2")["parameters"].at(**MEGATRON[size])
    devices, achieved = ACHIEVED[size]
    answer = calc.ask("hfu", achieved=f"{achieved}TFLOP/s", gpu="a100-sxm-80", gpus=devices)

    assert_reproduced(row, {"params": count, "percent_of_peak": 100 * answer.value, "aggregate": answer.also[0].value / 10**15})


@reproduces(*(f"{name}-params" for name in ("llama1-7b", "llama1-13b", "llama1-33b", "llama2-70b", "llama3-8b", "llama3-70b")))
def test_llama(row: str) -> None:
    """An untied head and the weights of the norms are counted."""
    count = of_llama(row.removesuffix("-params"))

    assert_reproduced(row, {"params_published": count, "params_exact": count})


@reproduces(*(row for row in FIGURES if row.startswith("cs336-l10-")))
def test_llama2_13b_as_the_lecture_counts_it(row: str) -> None:
    """The lecture leaves the norms out, which is 3 parts in 100,000. Memory: 2 bytes a parameter, and 2·2·B·T·L·g·k of keys and values
    of T = 1024 tokens, both in bf16. A token takes as long as reading both from an H100's memory, once for all sequences."""
    batch, model = row.split("-")[-2:]
    spec = load("llama3-8b")
    sizes = {**spec.sizes(), **LLAMA[model], "B": int(batch[1:]), "T": 1024}
    value = cache(layers_of(spec, sizes), sizes, "bf16").value

    heads = {"layers": sizes["L"], "kv_heads": sizes["g"], "head_width": sizes["k"], "sequence": sizes["T"], "batch": sizes["B"]}
    answer = calc.ask("tokens-per-second", parameters=of_llama(model), **heads, gpu="h100-sxm")

    bytes_ = {"params": of_llama(model), "memory": 2 * of_llama(model) + value}
    assert answer["m"] == Fraction(bytes_["memory"], 3350 * 10**9) == answer["s"]
    assert_reproduced(row, {**bytes_, "latency": answer["s"], "throughput": answer.value})


@reproduces("sb-llama3-70b-params")
def test_llama3_70b_by_part(row: str) -> None:
    """Feed-forward, embedding and head, attention: each rounded in the book."""
    derivation, sizes = of("llama3-8b"), LLAMA["llama3-70b"]

    def of_sites(*names: str) -> int:
        actual = [term for term in derivation["parameters"].terms if any(name in term.module_path for name in names)]
        return sum(value(part(derivation, "parameters", term.module_path), **sizes) for term in actual)

    parts = {"ffw": of_sites("mlp."), "vocab": of_sites("embed_tokens", "lm_head"), "attn": of_sites("self_attn.")}
    assert_reproduced(row, {**parts, "total": of_llama("llama3-70b")})


@reproduces("nanogpt-124m-params-nobias", slow=True)
def test_nanogpt_without_biases(row: str) -> None:
    """Norms without biases too: a block has 12 d² + 2 d."""
    derivation = decoded(Choices(positions="learned", norm="layer without bias"), C=128)
    sizes = {"d": 768, "h": 12, "k": 64, "f": 3072, "L": 12, "V": 50257, "C": 1024}
    words, places, blocks = (value(part(derivation, "parameters", site), **sizes) for site in ("words", "places", "blocks"))

    total = value(derivation["parameters"].expr, **sizes)

    assert_reproduced(row, {"total_incl_wpe": total, "wpe": places, "wte": words, "block": Fraction(blocks, 12)})


@reproduces("chinchilla-gopher-params", slow=True)
def test_chinchilla_and_gopher(row: str) -> None:
    """Relative positions have a projection of their own in every block: without it both would be 8 % smaller."""
    derivation = decoded(Choices(positions="relative"))
    chinchilla = {"d": 8192, "h": 64, "k": 128, "f": 4 * 8192, "L": 80, "V": 32000}
    gopher = {"d": 16384, "h": 128, "k": 128, "f": 4 * 16384, "L": 80, "V": 32000}

    assert_reproduced(
        row, {name: value(derivation["parameters"].expr, **n) for name, n in (("chinchilla", chinchilla), ("gopher", gopher))}
    )


@reproduces("palm-8b-params", "palm-62b-params", slow=True)
def test_palm(row: str) -> None:
    """One key and value head, three feed-forward matrices, a tied head, no biases."""
    sizes = {
        "palm-8b-params": {"d": 4096, "h": 16, "k": 256, "f": 4 * 4096, "L": 32, "V": 256000},
        "palm-62b-params": {"d": 8192, "h": 32, "k": 256, "f": 4 * 8192, "L": 64, "V": 256000},
    }
    derivation = decoded(Choices(gated=True, norm="layer without bias"), g=3)

    assert_reproduced(row, {"params": value(derivation["parameters"].expr, g=1, **sizes[row])})


# -- 6 N D ----------------------------------------------------------------------------------------------------------------------


def compute(N: int | str, tokens: int, **sizes: int) -> int:
    """The rule of thumb, at that many tokens."""
    (rule,) = (rule for rule in RULES if rule.name == "6ND")
    return int(evaluate_text(rule.expr.format(A=N), {**sizes, "B": tokens, "T": 1}))


@reproduces(*(f"gpt3-{size}-train-flops" for size in GPT3))
def test_compute_of_gpt3(row: str) -> None:
    """300 billion tokens, with the parameters of the model rather than the printed ones."""
    flops = compute(int(of("gpt2")["parameters"].at(**GPT3[row.split("-")[1]])), 300 * BILLION)

    assert_reproduced(row, {"train_flops": flops, "pf_days": Fraction(flops, PFLOPS_DAY)})


@reproduces("llama3-405b-flops")
def test_compute_of_llama3_405b(row: str) -> None:
    """15.6 trillion tokens."""
    assert_reproduced(row, {"train_flops": compute(of_llama("llama3-405b"), 15_600 * BILLION)})


@reproduces("gpt3-tableD1-others")
def test_compute_of_others_in_the_table_of_gpt3(row: str) -> None:
    """Its own columns, millions of parameters and billions of tokens: a token of T5 passes one of two halves, so half the rule."""
    t5 = {"t5-small": 60, "t5-base": 220, "t5-large": 770, "t5-3b": 3000, "t5-11b": 11000}
    bert = {"bert-base": (109, 250), "bert-large": (355, 250), "roberta-base": (125, 2000), "roberta-large": (355, 2000)}
    flops = {name: Fraction(compute(N * MILLION, 1000 * BILLION), 2) for name, N in t5.items()}
    flops |= {name: Fraction(compute(N * MILLION, D * BILLION)) for name, (N, D) in bert.items()}
    days = {f"{name}_pf_days": count / PFLOPS_DAY for name, count in flops.items()}

    assert_reproduced(row, {**{f"{name}_flops": count for name, count in flops.items()}, **days})


@reproduces("kaplan-pfday")
def test_a_petaflops_day(row: str) -> None:
    """10^15 FLOP/s for 24 hours."""
    assert_reproduced(row, {"pf_day": PFLOPS_DAY})


@reproduces("cs336-l2-cruncher")
def test_the_lectures_deep_linear_network(row: str) -> None:
    """Parameters, gradients and AdaGrad's state are those of the model; the others are the lecture's rules on it, which simplify."""
    derivation = calc.derive(calc.load("cruncher"), {"B": 2, "D": 4, "L": 2}, cache=False, optimizer="spec")
    rules = {comparison.rule.name: comparison.value for comparison in compare(derivation)}

    assert_reproduced(
        row,
        {
            "params": derivation["parameters"].value,
            "gradients": Fraction(derivation["gradients.bytes"].value, 4),
            "optimizer_states": Fraction(derivation["optimizer_state.bytes"].value, 4),
            "activations": rules["BDL activations"],
            "total_memory": rules["4 bytes per value"],
            "flops": rules["6BN"],
        },
    )
