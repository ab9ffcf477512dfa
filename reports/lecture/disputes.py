"""Contradictions among the notes: the claims that exclude each other. Their findings show which are right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dispute:
    """Claims that cannot all be right. ``settled``: the fact that decides; it does not name the right claim."""

    about: str
    claims: tuple[str, ...]
    settled: str


DISPUTES: tuple[Dispute, ...] = (
    Dispute(
        "What 1979 TFLOP/s of an H100 are, and why they are halved",
        ("h100-1979-sparse", "q1-h100-1979-half", "q1-div2-reason"),
        "1979 is bf16 with 2:4 sparsity, and dense fp8 has the same rate; the lecture halves it because of sparsity",
    ),
    Dispute(
        "Whether the 6 is counted or empirical, and what is in it",
        ("q1-source-papers", "q1-six-times", "total-6", "q1-6-empirical", "q1-six-includes-1", "q1-six-includes-2", "q1-six-includes-3"),
        "three matmuls of 2 FLOP for each weight and token: one forward, two backward; nothing else",
    ),
    Dispute(
        "What 16 bytes are bytes of",
        ("q2-16bytes", "q2-003-param-mem", "mem-001-q-act-note"),
        "weights, gradients and two moments in fp32; activations come on top",
    ),
    Dispute(
        "FLOPs: an amount or a rate",
        ("flop-case", "flop-def-sec"),
        "an amount; a rate is FLOP/s",
    ),
    Dispute(
        "Exact additions of a matmul, or a multiply-add as 2",
        ("flop-2bdk", "flop-2d-1", "flop-matmul-2size"),
        "2·B·D·K by the convention, B·K less in strict arithmetic, and both are right; twice the matrix's elements, 2·D·K, is the count"
        " of one row",
    ),
    Dispute(
        "Whether a step should have few matmuls or many",
        ("mfu-0.5-good", "flop-reduce-matmul"),
        "fewer FLOPs are less work, whatever the number of matmuls; of the FLOPs that remain, a larger share in matmuls is a higher MFU",
    ),
    Dispute(
        "How long eight H100 take for 4.7e21 FLOP",
        ("8h100-week", "8h100-two-weeks"),
        "a week at the dense peak, or two weeks at half of it",
    ),
    Dispute(
        "Whether fp32 runs on tensor cores",
        ("tensor-core-default", "fp32-is-tensor"),
        "bf16, fp16 and TF32 do, fp32 does not unless TF32 is asked for",
    ),
    Dispute(
        "The MFU in bf16",
        ("mfu-bf16-suspect", "mfu-bf16-val"),
        "each format has its own peak; a share above 1 shows that the wrong peak was used",
    ),
    Dispute(
        "Whether the input gets a gradient",
        ("grad-xnone", "grad-x-must"),
        "hidden values do, data do not",
    ),
    Dispute(
        "On which side the transpose is",
        ("grad-w2-shape", "grad-h1", "grad-xbdd"),
        "for Y = X W: dW = Xᵀ dY and dX = dY Wᵀ; the shapes leave no other order",
    ),
    Dispute(
        "How many parameters the deep linear network has",
        ("cruncher-8256", "cruncher-params", "cruncher-d2d"),
        "D² for each layer, and D for the last",
    ),
    Dispute(
        "How close bf16 comes to 1.001",
        ("bf16-res-worse", "bf16-digits", "bf16-1001"),
        "its numbers near 1 lie 2^-7 apart",
    ),
    Dispute(
        "0.01 in fp16, and its exponents",
        ("fp16-bias", "fp16-maxexp", "fp16-0.01-exp", "fp16-0.01-bits", "fp16-0.01-value", "fp16-subnormal", "fp16-subnormal-exp"),
        "the rules of the note are right, and its worked example breaks them",
    ),
    Dispute(
        "In which format the backward runs",
        ("mp-002", "mp-001-fp32grad", "mp-000"),
        "its matmuls run in bf16 like those of the forward; parameters and their gradients are fp32",
    ),
    Dispute(
        "Whether outputs lie within ±128",
        ("init-var", "init-rescale", "init-128"),
        "128 is the standard deviation, beyond which a third of them lies",
    ),
    Dispute(
        "How much memory was added on the device",
        ("mem-8192", "mem-004-192", "mem-004-32x32"),
        "two matrices of 32 by 32",
    ),
)
