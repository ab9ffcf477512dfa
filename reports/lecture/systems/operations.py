"""Systems about tensors and single operations: number formats, storage, einsum, matmuls, MFU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from calc.capacity.utilization import utilization
from calc.errors import BadInputError
from calc.hardware.accelerators import accelerator
from calc.mathematics.dtypes.layouts import FORMATS, Float, IntegerFormat, element_bytes
from calc.mathematics.dtypes.limits import limit
from calc.mathematics.dtypes.numbers import written
from calc.mathematics.einsum.check import check as check_named
from calc.mathematics.einsum.operation import operation
from calc.mathematics.einsum.pattern import read as read_pattern
from calc.mathematics.einsum.pattern import sizes_of
from calc.mathematics.strides.check import check as check_storage
from calc.mathematics.strides.expression import StrideStep as Done
from calc.mathematics.strides.expression import demonstration
from reports.lecture.flops import arithmetic
from reports.lecture.formats import bits, encoded, like_torch
from reports.lecture.lab import Lab
from reports.lecture.mfu import product
from reports.lecture.runs import experiment
from reports.lecture.system import LectureSystem, SystemAnswer, SystemResult, SystemVerdict, equal, from_run, steps_of, unmeasured
from reports.lecture.tensors import on_device

_LISTED = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "int8", "int4")
_ENCODED = ("0.15625", "0.01", "1e-8", "1e8")
_FINFO = {"largest": "max", "smallest normal": "tiny", "epsilon": "eps"}


def _formats(_: Lab) -> SystemResult:
    rows: list[SystemAnswer] = []
    checks: list[SystemVerdict] = []
    for name in _LISTED:
        dtype = FORMATS[name]
        rows.append(SystemAnswer(name, dtype.bits, "bits", _limits_of(dtype)))
        if isinstance(dtype, Float) and dtype.stored and name != "tf32":
            info = experiment("limits", dtype.stored)
            checks += [equal(f"{name}: {ours}", float(limit(dtype, ours)), info[theirs], "torch.finfo") for ours, theirs in _FINFO.items()]
    for name in ("fp32", "bf16", "fp16"):
        for text in _ENCODED:
            value = written(encoded(name, text).value)
            rows.append(SystemAnswer(f"{text} in {name}", value, "", bits(name, text)))
            checks.append(
                equal(f"{text} in {name} as torch rounds it", value, value if like_torch(name, text) else "another", "torch.tensor")
            )
    return SystemResult(
        tuple(rows), checks=tuple(checks), notes=("tf32 takes 4 bytes in memory; its 19 bits are those that a product reads",)
    )


def _limits_of(dtype: Float | IntegerFormat) -> str:
    if isinstance(dtype, IntegerFormat):
        size = element_bytes(dtype)
        return f"{size} byte{'' if size <= 1 else 's'}, from {-(2 ** (dtype.bits - 1))} to {2 ** (dtype.bits - 1) - 1}"
    names = ("largest", "smallest normal", "smallest subnormal", "epsilon")
    values = ", ".join(f"{n} {float(limit(dtype, n)):.5g}" for n in names)
    return f"{dtype.exponent} exponent and {dtype.fraction} fraction bits, bias {limit(dtype, 'bias')}, {values}"


def _memory(_: Lab) -> SystemResult:
    ffn = experiment("memory", 12288 * 4, 12288)
    x, chains = demonstration()
    rows = [
        SystemAnswer("GPT-3's feed-forward matrix, fp32", 4 * 12288 * 4 * 12288, "bytes", f"49152 · 12288 · 4 = {ffn / 2**20:g} MiB"),
        SystemAnswer("two 32 × 32 matrices on a device", on_device(), "bytes", "2 · 4096, both multiples of the allocator's 512"),
    ]
    checks = [
        equal("bytes of torch.empty(49152, 12288)", 4 * 12288 * 4 * 12288, ffn, "its storage"),
        unmeasured("two 32 × 32 matrices on a device", on_device(), "needs a CUDA device; the allocator's rounding is stated"),
    ]
    for text, steps in chains:
        rows.append(_chain(text, steps))
        checks += [replace(v, quantity=f"{text}: {v.quantity}", instrument="torch's own tensors") for v in check_storage(x, steps)]
    note = (
        f"x is a 4 × 4 tensor in fp32, {x.nbytes} bytes with strides {x.layout.strides}: element [1, 2] is number {x.layout.place((1, 2))}"
    )
    return SystemResult(tuple(rows), checks=tuple(checks), notes=(note,))


def _chain(text: str, steps: Sequence[Done]) -> SystemAnswer:
    """The bytes that a chain of tensor operations allocates, and why the last operation allocates or not."""
    last = steps[-1]
    if last.result is None:
        return SystemAnswer(text, "refused", "", last.refused)
    allocated = sum(step.result.allocated for step in steps if step.result is not None)
    layout = last.result.tensor.layout
    return SystemAnswer(
        text, allocated or "nothing", "bytes" if allocated else "", f"shape {layout.shape}, strides {layout.strides}: {last.result.because}"
    )


_PATTERNS = (
    ("b s d, d f -> b s f", "b=2 s=3 d=5 f=7"),
    ("b q h d, b k h d -> b h q k", "b=2 q=3 h=5 d=7 k=11"),
    ("b h q k, b k h d -> b q h d", "b=2 h=5 q=3 k=11 d=7"),
    ("b s d -> b s", "b=2 s=3 d=5"),
    ("b s (h k) -> b h s k", "b=2 s=3 h=5 k=7"),
)


def _named(_: Lab) -> SystemResult:
    rows: list[SystemAnswer] = []
    checks: list[SystemVerdict] = []
    for text, sizes in _PATTERNS:
        pattern = read_pattern(text)
        einsum = operation(pattern, sizes_of(pattern, sizes.split()))
        intensity = "" if einsum.intensity is None else f", intensity {float(einsum.intensity):.2f} FLOP/byte"
        gradients = "; ".join(g.equation for g in einsum.gradients)
        moved = einsum.bytes.at(einsum.sizes)
        because = f"{einsum.equation}, at {sizes}; {moved} bytes{intensity}; gradients: {gradients}"
        rows.append(SystemAnswer(text, einsum.flops.at(einsum.sizes) or 0, "FLOP", because))
        checks += [replace(v, quantity=f"{text}: {v.quantity}", instrument=v.because or "torch", because="") for v in check_named(einsum)]
    note = "patterns are einops': several operands are contracted, a missing name is summed over, brackets take dimensions apart"
    return SystemResult(tuple(rows), checks=tuple(checks), notes=(note,))


def _product(lab: Lab) -> SystemResult:
    b, d, k = 3, 7, 5
    counted = arithmetic(b, d, k)
    at = {"B": 16384, "D": 32768, "K": 8192}
    shares = {width: _elementwise_share(lab, width) for width in (4, 16, 64, 256, 1024)}
    width = next(w for w in sorted(shares) if shares[w] < Fraction(1, 20))
    rows = (
        SystemAnswer("a product of (16384, 32768) by (32768, 8192)", lab.value("linear", "flops.forward.matmul", at), "FLOP", "2·B·D·K"),
        SystemAnswer(
            "strictly, at B = 3, D = 7, K = 5",
            sum(counted.values()),
            "FLOP",
            f"B·K·(2·D − 1): {counted['multiplications']} multiplications, {counted['additions']} additions",
        ),
        SystemAnswer(
            "elementwise part of a small network's forward",
            ", ".join(f"{float(s):.1%} at d = {w}" for w, s in shares.items()),
            "",
            "the network is linear, GELU, linear, cross-entropy",
        ),
        SystemAnswer(
            "the smallest of these widths d at which the elementwise part is below 5 %",
            width,
            "",
            "FLOPs of matmuls grow with d², those of elementwise operators with d",
        ),
    )
    checks = (
        *from_run(lab.check("linear", {"B": 3, "D": 7, "K": 5}), "flops.forward.matmul"),
        equal("multiplications and additions", b * k * (2 * d - 1), sum(counted.values()), "numpy.dot of numbers that count"),
        equal(
            "adding two matrices of (11, 13)",
            11 * 13,
            experiment("elementwise_flops", 11, 13),
            "torch's reference decomposition, run and counted",
        ),
    )
    return SystemResult(rows, (), steps_of(lab, "linear", at, "flops.forward.matmul"), checks)


def _elementwise_share(lab: Lab, width: int) -> Fraction:
    at = {"B": 64, "d": width, "f": 4 * width}
    elementwise, total = (lab.value("mlp", f"flops.forward.{kind}", at) for kind in ("elementwise", "total"))
    return Fraction(elementwise, total)


def _mfu(_: Lab) -> SystemResult:
    card = accelerator("rtx3090")
    fp32 = utilization(product(), Fraction("0.3723490708041936"), card.peak("fp32"), "fp32")
    bf16 = utilization(Fraction("70332313733350.195"), 1, card.peak("bf16"), "bf16")
    refusal = "accepted"
    try:
        utilization(Fraction("70332313733350.195"), 1, card.peak("fp32"), "fp32")
    except BadInputError as error:
        refusal = str(error)
    rows = (
        SystemAnswer("MFU of the notes' product on an RTX 3090, fp32", fp32.value, "1", "their time, the dense fp32 peak"),
        SystemAnswer(
            "MFU of their rate in bf16", bf16.value, "1", "over the dense bf16 peak; the notes divide by that of fp32 and get 1.98"
        ),
        SystemAnswer("the same over the peak of fp32", "refused", "", refusal),
    )
    checks = (unmeasured("MFU on an H100", "below 1", "needs the device; a CPU's peak is not published"),)
    return SystemResult(rows, (fp32, bf16), (), checks)


SYSTEMS = (
    LectureSystem(
        3,
        "number_formats",
        "Number formats",
        "the limits of each format from its layout, which equal those of torch.finfo, and the bits of a few numbers",
        _formats,
    ),
    LectureSystem(
        4, "tensor_memory", "Memory of tensors", "the bytes of tensors, and which operations return views and which copy", _memory
    ),
    LectureSystem(5, "named_dimensions", "Named dimensions", "shapes, FLOPs, bytes and gradients of einsums over named dimensions", _named),
    LectureSystem(
        6,
        "matrix_product",
        "Matrix multiplication",
        "2·B·D·K and the strict count of a matmul, and the width from which elementwise work is a small part",
        _product,
    ),
    LectureSystem(7, "mfu", "Model FLOPs utilization", "the achieved FLOP/s over the peak of the format; a ratio above 1 is refused", _mfu),
)
