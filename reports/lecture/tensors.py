"""Claims on memory of tensors, storage and strides, and on code that the notes print."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from calc.derive.cuda_allocator import rounded
from calc.hardware.accelerators import accelerator
from reports.lecture.claim import Topic
from reports.lecture.lab import Lab
from reports.lecture.largest import state
from reports.lecture.runs import experiment
from reports.lecture.verdicts import MISLEADING, SOURCE, ClaimFinding, number, numbers, readings, same, true, yes

TENSORS = Topic("Memory of tensors, storage and code")
_FFN = (12288 * 4, 12288)
_GPT2 = {"B": 8, "T": 1024}


@TENSORS.claim("mem-128", "A 4 × 8 tensor in fp32 takes 128 bytes.")
def _(_: Lab) -> ClaimFinding:
    return number("128", experiment("memory", 4, 8), "4 · 8 elements of 4 bytes", "the storage of torch.empty(4, 8)", unit="bytes")


@TENSORS.claim("mem-gpt3-ffn", "GPT-3's feed-forward matrix, (12288 · 4) × 12288 in fp32, takes 2304 · 1024 · 1024 bytes, 2.3 GB.")
def _(_: Lab) -> ClaimFinding:
    nbytes = experiment("memory", *_FFN)
    because = f"the bytes are exact, {nbytes / 1024**2:g} MiB; {nbytes / 1e9:.3f} GB; 2.3 is {nbytes / 1024**3:g} GiB rounded up"
    pairs = (str(2304 * 1024 * 1024), nbytes), ("2.3e9", nbytes)
    return numbers(pairs, nbytes, because, "the storage of torch.empty(49152, 12288)", unit="bytes")


@TENSORS.claim("mem-004-2.3", "That is 2.3 gigabytes.")
def _(_: Lab) -> ClaimFinding:
    gigabytes = Fraction(experiment("memory", *_FFN), 10**9)
    because = f"{float(gigabytes):.3f} GB, or {float(gigabytes) * 1e9 / 1024**3:g} GiB; 2304 MiB over 1000 is neither"
    return number("2.3", gigabytes, because, "the storage of torch.empty(49152, 12288)", unit="GB")


def on_device() -> int:
    """Bytes that the CUDA allocator reserves for two 32 × 32 matrices in fp32, by its rounding."""
    return sum(rounded(experiment("memory", 32, 32)) for _ in ("x", "y"))


@TENSORS.claim("mem-8192", "Two 32 × 32 matrices in fp32 take 2 · (32 · 32 · 4) bytes of a device.")
def _(_: Lab) -> ClaimFinding:
    because = "2 · 32 · 32 · 4; each is a multiple of the allocator's 512 bytes, so nothing is rounded up"
    return number("8192", on_device(), because, "the CUDA allocator's rounding of both requests (stated, not measured)", unit="bytes")


@TENSORS.claim("mem-004-192", "The device's memory grows by 192 bytes.")
def _(_: Lab) -> ClaimFinding:
    return number(
        "192",
        on_device(),
        "a digit of the number was lost in the transcript",
        "the CUDA allocator's rounding of both requests (stated, not measured)",
        unit="bytes",
    )


@TENSORS.claim("mem-004-32x32", "What was added is two matrices of 30 by 32 numbers of 4 bytes.")
def _(_: Lab) -> ClaimFinding:
    claimed = 2 * experiment("memory", 30, 32)
    because = f"30 by 32 would be {claimed:,} bytes; the transcript lost a digit of 32 by 32"
    return number(str(claimed), on_device(), because, "the CUDA allocator's rounding of both requests (stated, not measured)", unit="bytes")


@TENSORS.claim("mem-004-180gb", "An H100 has 180 GB of high-bandwidth memory.")
def _(_: Lab) -> ClaimFinding:
    h100, b200 = accelerator("h100-sxm"), accelerator("b200-hgx")
    because = f"{h100.source}; {b200.memory / 1e9:g} GB is a B200"
    return number("180e9", h100.memory, because, "hardware: h100-sxm", unit="bytes", rests_on=SOURCE)


@TENSORS.claim("mem-003-act13", "Activations take about 1 to 3 times the memory of the parameters.")
def _(lab: Lab) -> ClaimFinding:
    weights = lab.value("gpt2", "parameters.bytes", _GPT2)
    ratios = {b: Fraction(lab.value("gpt2", "activations.bytes", {"B": b, "T": 1024}), weights) for b in (1, 2, 8)}
    because = (
        "GPT-2 at T = 1024: "
        + ", ".join(f"{float(r):.1f} at B = {b}" for b, r in ratios.items())
        + "; they grow with the batch, and parameters do not"
    )
    inside = [1 <= r <= 3 for r in ratios.values()]
    return readings(any(inside), all(inside), ratios[8], because, "derive gpt2: activations.bytes over parameters.bytes", unit="times")


@TENSORS.claim("mem-003-act-growth", "Activations grow linearly or with the square, with the length of the sequence.")
def _(lab: Lab) -> ClaimFinding:
    growth = {}
    for attention in ("fused", "math"):
        short, long = (lab.value("gpt2", "activations.bytes", {"B": 2, "T": t}, attention=attention) for t in (512, 1024))
        growth[attention] = Fraction(long, short)
    because = (
        f"twice the length takes {float(growth['fused']):.2f} times the bytes with fused attention and {float(growth['math']):.2f} "
        "times where scores are kept (GPT-2)"
    )
    holds = abs(growth["fused"] - 2) < Fraction(1, 20) and 2 < growth["math"] < 4
    return true(
        holds, "fused linear, math quadratic", because, "derive gpt2 with fused and math attention: activations.bytes at T = 512 and 1024"
    )


@TENSORS.claim("mem-003-grad-eq", "Gradients take about the memory of the parameters.")
def _(lab: Lab) -> ClaimFinding:
    weights, gradients = (lab.value("gpt2", f"{name}.bytes", _GPT2) for name in ("parameters", "gradients"))
    return number(
        str(weights), gradients, "one for each, in the same format", "derive gpt2: gradients.bytes and parameters.bytes", unit="bytes"
    )


@TENSORS.claim("mem-003-sgd-1x", "Optimizer state is 1 times the parameters for SGD and about 2 times for Adam.")
def _(lab: Lab) -> ClaimFinding:
    ratios = {}
    for name in ("sgd", "momentum", "adam"):
        state_bytes, weights = (lab.value("two-layer", f"{q}.bytes", {}, optimizer=name) for q in ("optimizer_state", "parameters"))
        ratios[name] = round(Fraction(state_bytes, weights), 3)
    because = (
        f"plain SGD keeps {float(ratios['sgd']):g} times the parameters, with momentum {float(ratios['momentum']):g}, Adam "
        f"{float(ratios['adam']):g}"
    )
    return readings(
        ratios["momentum"] == 1 and round(ratios["adam"]) == 2,
        ratios["sgd"] == 1,
        f"{ratios['sgd']}, {ratios['momentum']}, {round(ratios['adam'])}",
        because,
        "derive two-layer with sgd, momentum, adam: optimizer_state.bytes over parameters.bytes",
    )


@TENSORS.claim("mem-003-stage", "When a model has just been loaded, its parameters are all that is in memory.")
def _(_: Lab) -> ClaimFinding:
    counts = experiment("state_before_training")
    because = (
        f"before the first step there are {counts['before']} further elements, of gradients and AdamW's state; after it {counts['after']} "
        f"for {counts['parameters']} parameters"
    )
    return same(
        0, counts["before"], because, "a real model and its optimizer, before and after a step", value=counts["parameters"], unit="elements"
    )


@TENSORS.claim("mem-001-q-act-note", "The accounting of 16 bytes leaves out activations and gradients.")
def _(lab: Lab) -> ClaimFinding:
    quantities = [term.quantity for term in state(lab).terms]
    parts = {"activations": "activations.bytes" not in quantities, "gradients": "gradients.bytes" not in quantities}
    because = f"left out are activations ({yes(parts['activations'])}), but gradients are in it, 4 of the 16 bytes"
    mixed = any(parts.values()) and not all(parts.values())
    finding = true(all(parts.values()), "activations only", because, "per_parameter of gpt2 with adamw: its terms")
    return finding if not mixed else ClaimFinding(MISLEADING, finding.value, finding.unit, finding.because, finding.computed_by)


@TENSORS.claim("stride-6", "Element [1, 2] of a 4 × 4 tensor is number 6 of its storage.")
def _(_: Lab) -> ClaimFinding:
    first, second, place = experiment("stride_index")
    return number("6", place, f"1 · {first} + 2 · {second}", "strides of a real tensor, and the number at that index")


@TENSORS.claim("stride-transpose", "In the transpose of ((1, 2, 3), (4, 5, 6)) element [0, 1] is 4, 3 numbers further.")
def _(_: Lab) -> ClaimFinding:
    strides, value, shared = experiment("transposed")
    because = f"strides {strides} on the same storage ({yes(shared)})"
    return numbers((("4", value), ("3", strides[1])), value, because, "a real transpose: its strides and element")


@TENSORS.claim("stride-view-fail", "view of a transpose fails for its strides.")
def _(_: Lab) -> ClaimFinding:
    message = experiment("viewed_transpose")
    return true(
        "view size is not compatible" in message,
        message.partition(":")[0],
        message.partition(" (")[0],
        "view(2, 3) of a transposed 2 × 3 tensor",
    )


@TENSORS.claim("stride-slice-view", "Slices and operations in place change a tensor's attributes only, not its memory.")
def _(_: Lab) -> ClaimFinding:
    views: Mapping[str, bool] = experiment("views")
    slices = all(views[name] for name in ("x[0]", "x[:, 1]", "x[1:3]"))
    same_place, same_numbers = experiment("changed_in_place")
    because = (
        f"slices share the storage ({yes(slices)}); an operation in place keeps the address too ({yes(same_place)}), but writes"
        f" the numbers there (unchanged: {yes(same_numbers)})"
    )
    return readings(slices and same_place, same_numbers, "views share storage", because, "storages of real slices, and of x.mul_(2)")


@TENSORS.claim("elementwise-contig", "Elementwise operations usually need contiguous tensors.")
def _(_: Lab) -> ClaimFinding:
    contiguous, right = experiment("elementwise_of_transposes")
    because = f"sums and products of transposes (contiguous: {yes(contiguous)}) come out right ({yes(right)}): strides are all they need"
    return true(contiguous or not right, "any strides", because, "x + y and x * y of transposed tensors")


@TENSORS.claim("contig-makes", "transpose and permute change the order of the numbers in storage.")
def _(_: Lab) -> ClaimFinding:
    views: Mapping[str, bool] = experiment("views")
    shared = views["x.transpose(1, 0)"] and views["x.permute(1, 0)"]
    because = (
        f"both share the storage of their argument ({yes(shared)}) and change strides; it is contiguous() that copies then "
        f"({yes(not views['x.transpose(1, 0).contiguous()'])})"
    )
    return true(not shared, "strides only", because, "storages of real results")


@TENSORS.claim("code-randn-invalid", "torch.randn([1., 2, 3]) makes a tensor.")
def _(_: Lab) -> ClaimFinding:
    message = experiment("float_shape")
    return true(not message, message.partition(":")[0] or "a tensor", message or "it runs", "torch.randn([1., 2, 3])")


@TENSORS.claim("code-loader-async", "x.cuda(async=True) copies without waiting.")
def _(_: Lab) -> ClaimFinding:
    message = ""
    try:
        compile("x.cuda(async=True)", "note", "eval")
    except SyntaxError as error:
        message = f"{type(error).__name__}: {error.msg}"
    because = f"async is a keyword since Python 3.7 ({message}); the argument is non_blocking=True, and pinned memory"
    return true(not message, "non_blocking=True", because, "Python's own parser")


@TENSORS.claim("einops-sum", 'reduce(x, "... hidden -> ...", "sum") is the mean over the last dimension, with that dimension named.')
def _(_: Lab) -> ClaimFinding:
    mean, reduced = experiment("reduced_last")
    because = f'it is the sum: over a last dimension of four ones, x.mean(dim=-1) is {mean:g} and the reduction {reduced:g}; write "mean"'
    return true(mean == reduced, "x.sum(dim=-1)", because, "einops.reduce and x.mean(dim=-1) of torch.ones(2, 3, 4)")


@TENSORS.claim("lit-4x4", "A 16 by 32 matrix is multiplied by a 30 by 2 matrix.")
def _(_: Lab) -> ClaimFinding:
    message, right = experiment("product_shape", (16, 32), (30, 2)), experiment("product_shape", (16, 32), (32, 2))
    because = f"{message}; 16 by 32 times 32 by 2 gives {right}: the transcript lost a digit"
    return true(message.startswith("("), "32 by 2", because, "both products run")


@TENSORS.claim("reshape-copies", "Of a transpose, y.reshape(2, 3) can be used where view cannot.")
def _(_: Lab) -> ClaimFinding:
    shape, shared = experiment("reshaped_transpose")
    failed = experiment("viewed_transpose")
    because = f"it gives {shape} where view raises {failed.partition(':')[0]}, by a copy (same storage: {yes(shared)})"
    return true(shape == (2, 3) and bool(failed) and not shared, "a copy", because, "reshape and view of a transposed 2 × 3 tensor")


@TENSORS.claim("view-023", "A 2 by 3 tensor can be seen the other way around, as 3 by 2.")
def _(_: Lab) -> ClaimFinding:
    shape = experiment("viewed")
    return same((3, 2), shape, "view gives that shape without a copy", "x.view(3, 2) of a 2 × 3 tensor", value=str(shape))
