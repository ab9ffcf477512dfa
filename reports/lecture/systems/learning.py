"""Systems about training: initialization, optimizers, the loop, data, checkpoints, mixed precision, randomness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from calc.hardware.times import TransferPlan
from calc.mathematics.initialization.comparison import compare as compare_moments
from calc.mathematics.initialization.comparison import percent as allowance
from calc.mathematics.updates.check import check as check_update
from calc.mathematics.updates.cost import as_written, executed
from calc.mathematics.updates.table import UpdateRule, rule
from calc.memory.checkpoint import interval, progress_parts, saving
from calc.memory.fp8 import RUN_AT, SCALINGS, fp8_checks, fp8_layer, fp8_offered
from calc.models.load import load
from calc.performance.transfers import ahead, batch_bytes
from calc.pipeline.verdict import FAILED, WITHIN, Verdict
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.exact import evaluate_text
from calc.symbolic.readable import readable
from reports.lecture.lab import Lab
from reports.lecture.largest import state
from reports.lecture.learning import variance
from reports.lecture.runs import experiment, moments, resumed, variances
from reports.lecture.system import LectureSystem, SystemAnswer, SystemResult, SystemVerdict, equal, from_run, near, unmeasured
from reports.typeset.plain import plain_text
from reports.views.optimizers import shown

_DRAWS = 100
_SUBNORMAL = 2.0**-24  # fp16's smallest number, and the step between its subnormals
_OPTIMIZERS = ("sgd", "momentum", "adagrad-lecture", "adagrad", "rmsprop", "adam", "adamw")


def _sampled(quantity: str, expected: float, sample: Mapping[str, float], instrument: str) -> SystemVerdict:
    return near(quantity, expected, sample["variance"], 3 * sample["error"], instrument, "a sample: three standard errors")


def _initialization(lab: Lab) -> SystemResult:
    rows: list[SystemAnswer] = []
    checks: list[SystemVerdict] = []
    for width, scale in ((256, Fraction(1)), (16384, Fraction(1)), (256, Fraction(1, 16)), (16384, Fraction(1, 128))):
        expected = variance(width, scale**2)
        quantity = f"variance of an output, D = {width}, weights of deviation {scale}"
        rows.append(SystemAnswer(quantity, expected, "", "D · deviation²: a sum of D independent products"))
        checks.append(
            _sampled(quantity, float(expected), experiment("output_variance", width, float(scale)), "64 × 64 outputs of a real product")
        )
    std = 1 / math.sqrt(16384)
    remaining = 1 - 6 * math.exp(-4.5) / math.sqrt(2 * math.pi) / math.erf(3 / math.sqrt(2))
    for bound, variance_left, because in (
        (3 * std, remaining, "of the variance: the normal distribution within ±3 deviations"),
        (3.0, 1.0, "of the variance: bounds are absolute, and ±3 lies at 384 deviations"),
    ):
        quantity = f"variance left by a cut at ±{bound:.4g}, deviation 1/128"
        rows.append(SystemAnswer(quantity, variance_left, "", because))
        checks.append(
            _sampled(quantity, variance_left, experiment("output_variance", 16384, std, cut=bound), "torch.nn.init.trunc_normal_")
        )
    form = variances("two-layer")["w2"]
    because = "in sizes, from the calls of xavier_normal_ when two-layer is built; the lecture's is 1/D"
    rows.append(SystemAnswer("variance of Xavier's weights, D → K", form, "", because))
    for fan_in, fan_out in ((1024, 1024), (1024, 256)):
        expected_x = float(evaluate_text(form, {"D": fan_in, "K": fan_out}))
        drawn = {"variance": experiment("xavier_variance", fan_in, fan_out), "error": expected_x * math.sqrt(2 / (fan_in * fan_out))}
        checks.append(_sampled(f"{form} at D = {fan_in}, K = {fan_out}", expected_x, drawn, "torch.nn.init.xavier_normal_"))
    for depth in (1, 2, 4):
        for scale_of, name, after in ((1.0, "1", 128.0**depth), (128**-0.5, "1/√128", 1.0)):
            quantity = f"variance after {depth} {'layer' if depth == 1 else 'layers'} of 128, weights of deviation {name}"
            rows.append(SystemAnswer(quantity, after, "", "each layer multiplies it by 128 · deviation²"))
            checks.append(_sampled(quantity, after, experiment("depth_variance", 128, depth, scale_of), "64 networks drawn anew"))
    for model, sizes in (
        ("mlp", {"B": 3, "d": 64, "f": 256, "K": 10}),
        ("gpt2", {"B": 2, "T": 16, "L": 2, "d": 48, "h": 4, "V": 211, "C": 64}),
    ):
        lab.progress(f"moments of {model} at initialization")
        _propagated(model, sizes, rows, checks)
    notes = ("PATH #1 is a value inside the module PATH", "E[x²] of every module's result: napkin initialization MODEL --draws 200")
    return SystemResult(tuple(rows), checks=tuple(checks), notes=notes)


def _propagated(model: str, sizes: Mapping[str, int], rows: list[SystemAnswer], checks: list[SystemVerdict]) -> None:
    """Adds the derived second moments of a model at initialization, and checks against freshly drawn modules."""
    derived, samples = moments(model, sizes, _DRAWS)
    for line in compare_moments(derived, samples):
        if line.part.second is None or line.part.equation is None or line.low is None or line.sampled is None or line.high is None:
            continue
        quantity = f"E[x²] of {model}'s {line.part.module_path}"
        because = plain_text(line.part.closed) if line.part.closed else readable(line.part.equation)
        rows.append(SystemAnswer(quantity, line.part.second, "", because))
        verdict = FAILED if line.verdict == "failed" else WITHIN
        tolerance = f"{line.low:.4g} to {line.high:.4g}, 99.9 %"
        if line.because:
            tolerance += f", and {allowance(line.allowed)} beyond: {line.because}"
        checks.append(
            Verdict(quantity, line.part.second, float(f"{line.sampled:.4g}"), f"{_DRAWS} modules drawn and run", verdict, because=tolerance)
        )


def _optimizers(lab: Lab) -> SystemResult:
    rows: list[SystemAnswer] = []
    checks: list[SystemVerdict] = []
    for name in _OPTIMIZERS:
        update = rule(name)
        rows.append(_update_row(update))
        lab.progress(f"ten steps of {name}")
        update_check = check_update(update)
        quantity = f"ten steps of {name}: largest difference"
        agreement = "equal" if update_check.difference == 0 else "equal to rounding" if update_check.ok else "different"
        checks.append(
            Verdict(
                quantity,
                "equal to rounding",
                agreement,
                "the optimizer of torch, or the lecture's class, in fp64",
                update_check.verdict.verdict,
                because=f"256 units of the last place: {update_check.verdict.because}",
            )
        )
    for name in ("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"):
        checks += from_run(
            lab.check("two-layer", {"B": 3, "D": 7, "K": 5}, optimizer=name), "optimizer_state.bytes", "flops.optimizer.total"
        )
    return SystemResult(
        tuple(rows), checks=tuple(checks), notes=("equations are in the letters of napkin optimizer, which prints them in full",)
    )


def _update_row(update: UpdateRule) -> SystemAnswer:
    """The FLOPs of a rule's equations as written, with the equations and the count of torch's kernels."""
    counts = as_written(update)
    equations = ", ".join(f"{shown(e.target)} ← {shown(e.text)}" for e in counts.equations)
    kernels = f"; torch's kernels: {readable(executed(update.name).flops)} FLOP for n elements" if update.kind else ""
    because = f"{equations}; {counts.state} bytes of state and {counts.least_moved} bytes moved at least, per parameter in fp32{kernels}"
    return SystemAnswer(update.name, counts.operations, "FLOP per parameter, of the equations as written", because)


def _loop(lab: Lab) -> SystemResult:
    run = experiment("trained", width=16, steps=200)
    first, last = run["losses"][0], run["losses"][-1]
    error = max(abs(w - i) for i, w in enumerate(run["weights"]))
    rows = (
        SystemAnswer("parameters", run["parameters"], "elements", "one map from 16 to 1, without hidden layers"),
        SystemAnswer("loss at first", float(f"{first:.3g}"), "", "mean squared error on 8 points"),
        SystemAnswer("loss after 200 steps", float(f"{last:.1g}"), "", "data are made by weights 0, 1, …, 15"),
        SystemAnswer("matmul FLOPs per step", 2 * 8 * 16 * 2, "FLOP", "2·B·D forward, as many for the weight's gradient; x needs none"),
    )
    counted = experiment("step_flops", 16, 8)
    derived = sum(lab.value("cruncher", f"flops.{phase}.matmul", {"B": 8, "D": 16, "L": 2}) for phase in ("forward", "backward"))
    checks = (
        equal("loss falls", "falls", "falls" if last < first / 100 else "does not", "200 real steps"),
        equal(
            "weights learned",
            "those that made the data",
            "those that made the data" if error < 0.5 else "others",
            "200 real steps, to a half",
        ),
        equal("FLOPs of a step", 2 * 8 * 16 * 2, counted, "torch.utils.flop_counter, around a real step"),
        equal("FLOPs of a step with two hidden layers", derived, experiment("step_flops", 16, 8, 2), "torch.utils.flop_counter"),
        *from_run(
            lab.check("cruncher", {"B": 2, "D": 4, "L": 2}, optimizer="sgd"), "flops.step.total", "memory.peak", "optimizer_state.bytes"
        ),
    )
    notes = ("what torch.cuda.memory_summary() would print in such a loop, simulated: napkin derive MODEL --memory-summary",)
    return SystemResult(rows, checks=checks, notes=notes)


def _data(_: Lab) -> SystemResult:
    tokens, batch, length = 10_007, 4, 129
    file = experiment("token_file", tokens, batch, length)
    loader = ahead(2, 3, batch_bytes(batch, length).value)
    rows = (
        SystemAnswer(
            "a file of 10,007 tokens of 2 bytes",
            2 * tokens,
            "bytes",
            "16-bit integers; the file is memory-mapped, so only the pages in use are read",
        ),
        SystemAnswer("read of it for a batch", 2 * 2 * batch * length, "bytes", "inputs and targets, B · T tokens of 2 bytes each"),
        SystemAnswer(
            "a batch in int64", 2 * 8 * batch * length, "bytes", "torch's embeddings and losses take 8-byte ids; four times what is read"
        ),
        SystemAnswer(
            "batches that 2 workers load ahead, prefetch_factor 3",
            int(loader["a"]),
            "batches",
            "W·p; a worker gets another index only when a batch is taken",
        ),
        SystemAnswer("memory of batches on the host then", int(loader.value), "bytes", "(W·p + 1) batches: those ahead and the one in use"),
    )
    copied, plan = experiment("pinned_copy"), TransferPlan(2**17, batch, length, workers=2, prefetch=3)
    on_gpu = unmeasured("copies from pinned memory, without waiting", "faster than from pageable memory", "needs a CUDA device")
    if copied is not None:
        faster = copied["pinned"] < copied["pageable"]
        on_gpu = equal("copies from pinned memory", "faster", "faster" if faster else "not faster", "256 MiB copied five times each")
    checks = (
        equal("bytes of the file", 2 * tokens, file["file"], "the file's size"),
        equal("bytes of a batch", 2 * 8 * batch * length, file["batch"], "storages of inputs and targets"),
        equal("targets are the inputs one place on", "yes", "yes" if file["shifted"] else "no", "compared element by element"),
        equal("batches loaded ahead", int(loader["a"]), experiment("loaded_ahead", plan), "a count in two real workers"),
        equal("the file is mapped", "yes", "yes" if file["mapped"] else "no", "numpy.memmap"),
        on_gpu,
    )
    notes = ("times of copies, of loaders with and without workers, and of pinned memory on a GPU: napkin transfers",)
    return SystemResult(rows, calculations=(loader,), checks=checks, notes=notes)


def _checkpoint(lab: Lab) -> SystemResult:
    lab.progress("a checkpoint written and read")
    checkpoint = saving(load("llama3-8b"), schedule="cosine")
    every = interval(60.0, 3600.0 * 24)
    rows = (
        SystemAnswer(
            "a checkpoint of Llama 3 8B with AdamW, fp32",
            checkpoint.file.total,
            "bytes",
            "safetensors: model, two moments, step counters, iteration, and the header",
        ),
        SystemAnswer(
            "how often to save, if it takes 60 s and a failure comes once a day",
            every.seconds / 60,
            "minutes",
            "√(2 · 60 s · 1 day), Young 1974",
        ),
        SystemAnswer("time lost then", every.lost, "1", "to saving, and to half an interval at each failure"),
        *(SystemAnswer(f"progress: {name}", size, "bytes", because) for name, size, because in progress_parts("cosine")),
    )
    checks: list[SystemVerdict] = [
        Verdict(v.quantity, "unknown" if v.derived is None else v.derived, v.measured, v.because, v.verdict) for v in checkpoint.verdicts
    ]
    for part, whose in (("optimizer", "the optimizer's state"), ("scheduler", "the scheduler's state")):
        outcome = "differs" if resumed(part) else "is the same"
        checks.append(equal(f"without {whose} training differs", "differs", outcome, "a real training resumed from a file"))
    return SystemResult(rows, checks=tuple(checks))


def _mixed(lab: Lab) -> SystemResult:
    formats = experiment("autocast_dtypes")
    rows = [
        SystemAnswer(
            f"bytes per parameter, {p}",
            s.per_parameter,
            "bytes",
            " + ".join(f"{t.per_parameter} {t.label}" for t in s.terms if t.per_parameter),
        )
        for p in ("fp32", "bf16-autocast", "bf16-master", "bf16")
        for s in (state(lab, p),)
    ]
    rows += [
        SystemAnswer(f"under autocast: {phase}", ", ".join(names), "", "of matmuls" if "and" not in phase else "as they are kept")
        for phase, names in formats.items()
    ]
    for precision in ("bf16-autocast", "bf16-master"):
        rows.append(
            SystemAnswer(
                f"saved for backward in a small network, {precision}", _formats_kept(lab, precision), "", "tensor by tensor, by format"
            )
        )
    scaled = experiment("scaled_gradients", 1024.0, 1e-8)
    multiple = round(1024 * 1e-8 / _SUBNORMAL)
    rows.append(SystemAnswer("a gradient of 1e-8 in fp16", scaled["plain"], "", "below the smallest subnormal, 2^-24"))
    rows.append(
        SystemAnswer(
            "the same with the loss scaled by 1024",
            float(f"{scaled['scaled']:.5g}"),
            "",
            f"1.024e-5 rounds to the subnormal {multiple}·2⁻²⁴; divided by 1024 in fp32 that is {_short(multiple * _SUBNORMAL / 1024)}",
        )
    )
    rows += [
        SystemAnswer(f"fp8 forward of a linear layer, {SCALINGS[scaling]}: {q.name}", q.expr, q.unit, q.because)
        for scaling in SCALINGS
        for q in fp8_layer(scaling)
    ]
    rows += [
        SystemAnswer(f"fp8 on a CPU, {use}", "refused" if error else "runs", "", error or "torch's own operator")
        for use, error in fp8_offered().items()
    ]
    small = {"B": 3, "D": 7, "K": 5}
    checks = [
        equal("formats of products, backward", "bfloat16", ", ".join(formats["backward"]), "operators of a real step"),
        equal("formats of parameters and gradients", "float32", ", ".join(formats["parameters and gradients"]), "a real step"),
        near("a scaled gradient", 1e-8, scaled["scaled"], _SUBNORMAL / 2 / 1024, "autograd in fp16", "half a step of 2⁻²⁴, over 1024"),
    ]
    for precision in ("bf16-autocast", "bf16-master", "bf16"):
        report = lab.check("two-layer", small, precision=precision)
        checks += from_run(report, "parameters.bytes", "gradients.bytes", "optimizer_state.bytes", "activations.bytes")
    at = sizes_text(RUN_AT, TYPED)
    checks += [replace(c, quantity=f"fp8 forward, {s} scales, at {at}: {c.quantity}") for s in SCALINGS for c in fp8_checks(s)]
    return SystemResult(tuple(rows), checks=tuple(checks))


def _short(value: float) -> str:
    """Five digits and an exponent without zeros in front: ``1.0012e-8``."""
    mantissa, _, exponent = f"{value:.4e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _formats_kept(lab: Lab, precision: str) -> str:
    """The tensors saved for backward of linear, GELU, linear, by number format."""
    by_format: dict[str, list[str]] = {}
    for saved in lab.derive("mlp", None, precision=precision).saved:
        if not saved.same_as:
            by_format.setdefault(saved.dtype, []).append(f"{saved.tensor} {'×'.join(saved.shape)}".strip())
    return "; ".join(f"{dtype}: {', '.join(names)}" for dtype, names in by_format.items())


_CUDA = "torch on CUDA"
# Call that seeds → the sources that it seeds, and why.
_SEEDED = {
    "random.seed": (("random",), "one generator of Python; no other library draws from it"),
    "numpy.random.seed": (("numpy.random",), "NumPy's global generator alone"),
    "torch.manual_seed": (
        ("torch", "random in a worker", "numpy.random in a worker", "torch in a worker", _CUDA),
        "the generators of the CPU and of every CUDA device; a data loader draws the seeds of its workers from the CPU's",
    ),
    "torch.cuda.manual_seed_all": ((_CUDA,), "the generators of all CUDA devices, and no worker's"),
}


def _randomness(_: Lab) -> SystemResult:
    same, differently = experiment("losses_of_two_runs", 0, 1)
    rows = (
        SystemAnswer("two trainings from one seed", "the same losses" if same else "different losses", "", "bit for bit"),
        SystemAnswer("from another seed", "the same losses" if differently else "different losses", "", "the seed decides"),
        *(SystemAnswer(f"repeats after {call}", ", ".join(sources), "", because) for call, (sources, because) in _SEEDED.items()),
        SystemAnswer("never repeats", "numpy.random.default_rng()", "", "without a seed it takes one of the system's; give it one"),
    )
    checks = (
        equal("one seed, two trainings", "the same", "the same" if same else "different", "every loss compared"),
        equal("two seeds", "different", "the same" if differently else "different", "every loss compared"),
        *map(_seeded, _SEEDED),
    )
    notes = ("a seed of your own: napkin train-demo --seed 1, napkin initialization MODEL --draws 100 --seed 1",)
    return SystemResult(rows, checks=checks, notes=notes)


def _seeded(call: str) -> SystemVerdict:
    """The sources that repeat after a call, by draws from all of them."""
    sources, _ = _SEEDED[call]
    quantity, expected = f"of all sources, those that repeat after {call}", ", ".join(sources)
    repeated = experiment("repeated_by", call)
    if repeated is None:
        return unmeasured(quantity, expected, "needs a CUDA device")
    on_device = tuple(name for name in repeated if name == _CUDA)
    compared = tuple(name for name in sources if name != _CUDA or on_device)
    return equal(quantity, ", ".join(compared), ", ".join(repeated), "seeded and drawn from all sources, twice")


SYSTEMS = (
    LectureSystem(
        10,
        "initialization",
        "Initialization",
        "the variance of outputs at initialization: of plain, rescaled, truncated and Xavier weights, and through depth",
        _initialization,
    ),
    LectureSystem(
        12, "optimizers", "Optimizers", "update rules that reproduce torch's own steps, and their state, FLOPs and bytes", _optimizers
    ),
    LectureSystem(
        13,
        "training_loop",
        "Training loop",
        "the FLOPs and bytes of a training loop, which a real run has too: it fits the weights that made the data",
        _loop,
    ),
    LectureSystem(
        14,
        "data_loading",
        "Data loading",
        "the bytes of a memory-mapped file of tokens, of a random batch, and of the batches that workers load ahead",
        _data,
    ),
    LectureSystem(
        15,
        "checkpoint",
        "Checkpoint",
        "the bytes of a checkpoint on disk and how often to save one, and resumes a training bit for bit",
        _checkpoint,
    ),
    LectureSystem(
        16,
        "mixed_precision",
        "Mixed precision",
        "which tensors are in which format, bytes per parameter, and what loss scaling does",
        _mixed,
    ),
    LectureSystem(
        18, "randomness", "Randomness", "which random numbers repeat after which seed: two runs from one seed agree", _randomness
    ),
)
