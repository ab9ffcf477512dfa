"""The accounting of a model as an exercise sheet: questions as a course puts them, and their answers from one derivation.

The questions are those of the accounting parts of a first assignment on language models (Stanford CS336, assignment 1): parameters, matmuls
of a forward pass, shares by part over model sizes and sequence lengths, memory of training in the batch size, the largest batch, FLOPs of
the optimizer, time of training. Any other quantity can be asked for. A model without a batch or a sequence length has the questions that
need neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.capacity.exercise import Exercise, ExerciseResult, ExerciseRow, ExerciseTable
from calc.capacity.questions.peak_line import PeakLine, line_through
from calc.derive.part_names import MIX, SCORES
from calc.derive.quantities import QUANTITIES
from calc.derive.result import Derivation, Quantity
from calc.derive.side_by_side import side_by_side
from calc.errors import BadInputError, DimensionError
from calc.hardware.accelerators import accelerator
from calc.mathematics.updates.cost import executed
from calc.options import MASTER, NAMED_OPTIMIZERS
from calc.symbolic import branches
from calc.symbolic.algebra import Algebra, to_sympy
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Labelled, Sum, walk
from calc.symbolic.parser import free_names
from calc.symbolic.readable import readable
from calc.symbolic.writer import as_text

FORWARD, BACKWARD, RECOMPUTED = "flops.forward.matmul", "flops.backward.matmul", "flops.backward.recompute"
STATE = ("parameters.bytes", "gradients.bytes", "optimizer_state.bytes", "activations.bytes")
_SEVERAL = "several sizes"  # what a question needs of a sheet, as it needs a dimension
_OF_PARAMETERS = {4: ("fp32", ("fp32", "bf16-autocast", "fp16-autocast")), 2: ("bf16", ("bf16", MASTER))}  # bytes, name, precisions
_WHATEVER_THE_BATCH = {
    "parameters.bytes": "every parameter is one number, whatever the batch",
    "gradients.bytes": "there is one number for each trainable parameter, whatever the batch",
    "optimizer_state.bytes": "its tensors belong to parameters, whatever the batch",
}
_TIMES = (("days", 86_400), ("hours", 3600), ("minutes", 60))  # seconds of each
_DTYPES = {"fp32": "fp32", "fp16-autocast": "fp16"}  # of matmuls by precision; bf16 in all others


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """What the last questions assume: a longer sequence, memory of one device in bytes, devices, MFU, steps, sequences of a step."""

    context: int = 16_384
    memory: Fraction = Fraction(80 * 10**9)
    gpus: tuple[str, ...] = ("a100-sxm-80", "h100-sxm")
    mfu: Fraction = Fraction(1, 2)
    steps: int = 400_000
    batch: int = 1024


@dataclass(frozen=True, slots=True)
class _Sheet:
    """What the exercises are about: the step, the same at B = 1, that of each model size, and the training that is planned."""

    derivation: Derivation
    one: Derivation
    sizes: tuple[Derivation, ...]
    run: PlannedTraining


@dataclass(frozen=True, slots=True)
class _Question:
    """An exercise that can be on a sheet: the quantities that it asks for, those that its answer ``uses`` besides, and the dimensions that
    it ``needs``."""

    asks: tuple[str, ...]
    uses: tuple[str, ...]
    needs: tuple[str, ...]
    answer: Callable[[_Sheet], Exercise]


def homework(
    derivation: Derivation,
    others: Sequence[Derivation] = (),
    run: PlannedTraining = PlannedTraining(),
    quantities: Sequence[str] = (),
) -> tuple[Exercise, ...]:  # fmt: skip
    """The exercises on a model, at its sizes but for the batch; ``others`` are its further sizes, from the smallest on. With ``quantities``
    only those that ask for one of them, and one more for each that no question of the assignment asks for.

    Raises ``BadInputError`` where a quantity has no closed form.
    """
    sheet = _Sheet(derivation, one_sequence(derivation), tuple(map(one_sequence, others)), run)
    has = {*derivation.sizes, *([_SEVERAL] if len(sheet.sizes) > 1 else [])}
    possible = [question for question in _QUESTIONS if has.issuperset(question.needs)]
    chosen = [question for question in possible if not quantities or not set(quantities).isdisjoint(question.asks)]
    covered = {name for question in chosen for name in question.asks}
    chosen += [_question_of(name) for name in dict.fromkeys(quantities) if name not in covered]
    for name in (name for question in chosen for name in (*question.asks, *question.uses)):
        if derivation[name].text is None:
            raise BadInputError(f"{name} has no closed form here: {derivation[name].unknown or 'it is unknown'}")
    return tuple(question.answer(sheet) for question in chosen)


def _question_of(name: str) -> _Question:
    """The question for a quantity that the assignment does not ask for."""
    return _Question((name,), (), (), lambda sheet: _quantity(sheet.one, name))


def _sample(derivation: Derivation) -> str:
    return "sequence" if "T" in derivation.sizes else "sample"


def _given(derivation: Derivation) -> dict[str, int]:
    """The sizes that can be set."""
    return {dim.name: dim.value for dim in derivation.dims if not dim.tied}


def one_sequence(derivation: Derivation) -> Derivation:
    """The same step at B = 1; the step itself where the model has no batch."""
    return derivation.at_sizes({**_given(derivation), "B": 1}) if "B" in derivation.sizes else derivation


def _result(label: str, quantity: Quantity, sizes: Mapping[str, int], because: str = "") -> ExerciseResult:
    assert quantity.text is not None  # refused before
    assert quantity.value is not None
    return ExerciseResult(label, Fraction(quantity.value), str(quantity.unit), branches.at_hand(quantity.text, sizes), because)


def _terms(quantity: Quantity, sizes: Mapping[str, int]) -> ExerciseTable:
    """A quantity by module path."""
    total = quantity.value or 1
    rows = [
        ExerciseRow(t.module_path, branches.at_hand(t.expr, sizes), (t.value,), (Fraction(t.value, total),)) for t in quantity.terms
    ]
    return ExerciseTable(f"{quantity.name} by module path", str(quantity.unit), ("",), tuple(rows))


def _parameters(one: Derivation) -> Exercise:
    question = "How many trainable parameters does the model have, and how much memory do they take?"
    why = "the elements of all parameter tensors; one that modules share counts once"
    results = (
        _result("parameters", one["parameters"], one.sizes, why),
        _result("bytes", one["parameters.bytes"], one.sizes, _of_each_parameter(one)),
    )
    return Exercise("parameters", question, "parameters", results, (_terms(one["parameters"], one.sizes),))


def _of_each_parameter(one: Derivation) -> str:
    """Bytes of a parameter with its number format, where all have the same."""
    each = Fraction(one["parameters.bytes"].value or 0, one["parameters"].value or 1)
    if each.denominator != 1:
        return "not all parameters have the same number format"
    name, precisions = _OF_PARAMETERS.get(int(each), ("", ()))
    of = f"{name} parameter" if one.options.get("precision") in precisions else "parameter"
    return f"{each} bytes for each {of}"


def _matmuls(one: Derivation) -> Exercise:
    length = f" of T = {one.sizes['T']:,} tokens" if "T" in one.sizes else ""
    over = f" over one {_sample(one)}{length}" if "B" in one.sizes else ""
    question = f"List the matrix multiplications of a forward pass{over}. How many FLOPs do they take?"
    total = _result("FLOPs in total", one[FORWARD], one.sizes, "the sum over the list; a multiply-add is 2 FLOP")
    return Exercise("matmuls", question, FORWARD, (total,), (_matmul_list(one),))


def _matmul_list(one: Derivation) -> ExerciseTable:
    """Every matmul of the forward, those of attention by name."""
    total, once = one[FORWARD].value or 1, _once(one)
    rows = []
    for part in one[FORWARD].parts:
        for addend in part.addends:
            text = branches.at_hand(addend.expr, one.sizes)
            value = int(evaluate_text(text, one.sizes))
            label = part.part if part.part in (SCORES, MIX) else str(addend.label)
            written = _of_this_row(text, once.get((addend.module_path, str(addend.label)), []), one.trip_counts)
            rows.append(ExerciseRow(f"{addend.module_path}: {label}", text, (value,), (Fraction(value, total),), written))
    return ExerciseTable("matmuls of a forward pass", "FLOP", ("",), tuple(rows))


def _of_this_row(text: str, bodies: Sequence[Expression], trip_counts: Collection[str]) -> Expression | None:
    """Of the ``bodies`` of one module path and label, the one that the closed form ``text`` is a number of layers of; else their sum."""
    if len(bodies) < 2:
        return bodies[0] if bodies else None
    ratios = [(to_sympy(text) / to_sympy(as_text(body)), body) for body in bodies]
    matching = [body for ratio, body in ratios if {symbol.name for symbol in ratio.free_symbols} <= set(trip_counts)]
    return matching[0] if len(matching) == 1 else Sum(tuple(bodies))


def _once(derivation: Derivation) -> Mapping[tuple[str, str], list[Expression]]:
    """What the rules count for each matmul of a forward, by module path and label."""
    written: dict[tuple[str, str], list[Expression]] = {}
    for step in derivation.steps:
        for addend in walk(step.before) if step.quantity == FORWARD and step.operators else ():
            if isinstance(addend, Labelled):
                written.setdefault((step.title, addend.label), []).append(addend.body)
    return written


def _part_table(
    derivations: Sequence[Derivation], columns: Sequence[str], quantity: str = FORWARD, caption: str = "FLOPs of a forward pass by part"
) -> ExerciseTable:
    table = side_by_side(derivations, columns, (quantity,)).quantities[0]
    rows = []
    for row in table.parts:
        shares = tuple(table.share(row, i) or Fraction(0) for i in range(len(derivations)))
        rows.append(ExerciseRow(row.part, row.expr, row.values, shares))
    return ExerciseTable(caption, str(table.unit), tuple(columns), tuple(rows))


def _quantity(one: Derivation, name: str) -> Exercise:
    question = f"Give {name} in closed form, and its value: {QUANTITIES[name].meaning}."
    table = _part_table([one], [""], name, f"{name} by part")
    return Exercise(name, question, name, (_result(name, one[name], one.sizes),), (table,) if table.rows else ())


def _parts(one: Derivation) -> Exercise:
    return Exercise("parts", "Which parts of the model take the most FLOPs?", FORWARD, (), (_part_table([one], [""]),))


def _sizes(derivations: Sequence[Derivation]) -> Exercise:
    differing = [name for name in _given(derivations[0]) if len({d.sizes[name] for d in derivations}) > 1]
    columns = [sizes_text({name: d.sizes[name] for name in differing}, TYPED, " ") for d in derivations]
    question = (
        f"Repeat this for {'; '.join(columns)}. Which parts take a larger share of the FLOPs as the model grows, and which a smaller one?"
    )
    return Exercise("sizes", question, FORWARD, (), (_part_table(derivations, columns),))


def _context(one: Derivation, length: int) -> Exercise:
    question = f"Raise the sequence length to T = {length:,}. How do the FLOPs of a forward pass change, and the shares of the parts?"
    positions = {"C": max(length, one.sizes["C"])} if "C" in one.sizes else {}
    longer = one.at_sizes({**_given(one), **positions, "T": length})
    ratio = Fraction(longer[FORWARD].value or 0, one[FORWARD].value or 1)
    table = _part_table([one, longer], [f"T={d.sizes['T']}" for d in (one, longer)])
    results = (
        ExerciseResult("FLOPs of one sequence", Fraction(longer[FORWARD].value or 0), "FLOP", because=f"the closed form at T = {length:,}"),
        ExerciseResult("times those before", ratio, "1", because=_growth(table, Fraction(length, one.sizes["T"]))),
    )
    return Exercise("context", question, FORWARD, results, (table,), (("B", 1), ("T", length), *positions.items()))


def _growth(table: ExerciseTable, ratio: Fraction) -> str:
    """With which power of T each part grows from the first column to the second, where T is ``ratio`` times as large: ``query keyᵀ and P
    value grow with T² (× 256), all else with T (× 16)``."""
    by_factor: dict[Fraction, list[str]] = {}
    for row in table.rows:
        if row.values[0]:
            by_factor.setdefault(Fraction(row.values[1], row.values[0]), []).append(row.part)
    *fast, slowest = sorted(by_factor, reverse=True) or [ratio]
    pieces = [(" and ".join(by_factor[factor]), "grow" if len(by_factor[factor]) > 1 else "grows", factor) for factor in fast]
    pieces.append(("all else", "" if fast else "grows", slowest))
    return ", ".join(f"{parts}{f' {verb}' if verb else ''} {_by_power(factor, ratio)}" for parts, verb, factor in pieces)


def _by_power(factor: Fraction, ratio: Fraction) -> str:
    """``with T² (× 256)``: by which power of ``ratio`` the factor is."""
    name = next((name for name, power in (("T", 1), ("T²", 2)) if ratio != 1 and factor == ratio**power), "")
    times = f"{factor}" if factor.denominator == 1 else f"{float(factor):.4g}"
    return f"with {name} (× {times})" if name else f"× {times}"


def _line(derivation: Derivation, texts: Sequence[str], size: int, alone: bool = True) -> PeakLine | None:
    """The sum of closed forms in B, or the largest of them, as a·B + b around ``size``; None for one that is no line in B."""
    dim = next(dim for dim in derivation.dims if dim.name == "B")

    def values(batch: int) -> list[Fraction]:
        each = [Fraction(evaluate_text(text, {**derivation.sizes, "B": batch})) for text in texts]
        return [sum(each, start=Fraction(0))] if alone else each

    return line_through(values, dim, size, lambda batch: int(max(values(batch))) if alone else _peak(derivation, batch) or 0)


def _bytes_line(derivation: Derivation, *names: str) -> PeakLine:
    """Bytes of the quantities together as a·B + b, from a batch of 2 on. Raises ``BadInputError`` where they are no line in B."""
    several = {**derivation.sizes, "B": 2}
    line = _line(derivation, [branches.at_hand(derivation[name].text or "0", several) for name in names], 2)
    if line is None:
        raise BadInputError("the memory of this step is not linear in the batch size")
    return line


def _written(line: PeakLine) -> str:
    if not line.slope:
        return f"{int(line.offset):,}"
    offset = f" {'−' if line.offset < 0 else '+'} {abs(int(line.offset)):,}" if line.offset else ""
    return f"{int(line.slope):,}·B{offset}"


def _memory(derivation: Derivation) -> Exercise:
    state, sample, one = "parameters, gradients, optimizer state and activations", _sample(derivation), one_sequence(derivation)
    question = f"How many bytes do {state} of a batch of B {sample}s take, each and together?"
    titles = (*((name, (name,)) for name in STATE), ("together", STATE))
    results = tuple(_bytes_at_one(one, _bytes_line(derivation, *names), title, names) for title, names in titles)
    table = _part_table([one], [""], "activations.bytes", f"activations of one {sample} by part")
    return Exercise("memory", question, "activations.bytes", results, (table,))


def _bytes_at_one(one: Derivation, line: PeakLine, title: str, names: Sequence[str]) -> ExerciseResult:
    """Bytes of the quantities together at B = 1, and how they grow; ``line`` has them from B = 2 on, and at B = 1 if that is no special
    case."""
    value = Fraction(sum(one[name].value or 0 for name in names))
    texts = [branches.at_hand(one[name].text or "0", one.sizes) for name in names]
    if value != line.slope + line.offset:
        because = f"one {_sample(one)} runs other operators than several, which take {_written(line)} for B from 2"
    elif line.slope:
        because = f"{_written(line)} at these sizes"
    else:
        because = _WHATEVER_THE_BATCH.get(title, "no tensor in it has an axis of the batch")
    return ExerciseResult(f"{title} at B = 1", value, "byte", _sum(texts, one.sizes), because)


def _sum(texts: Sequence[str], names: Iterable[str]) -> str:
    """The sum of closed forms as one polynomial in the sizes of these names."""
    if len(texts) == 1:
        return texts[0]
    algebra = Algebra(tuple(names), texts)
    return algebra.text(sum(map(algebra.parse, texts), start=algebra.constant(0)))


def _largest_batch(derivation: Derivation, run: PlannedTraining) -> Exercise:
    question = f"What is the largest batch size of a training step in {float(run.memory / 10**9):g} GB?"
    line, unit = _bytes_line(derivation, *STATE), f"{_sample(derivation)}s"
    by_sum = Fraction(max((run.memory - line.offset) // line.slope, 0)) if line.slope else Fraction(0)
    size = derivation.largest("B", run.memory)
    why = "temporary tensors count too, and activations are freed before the optimizer runs"
    worked = f"({int(run.memory):,} − {int(line.offset):,}) / {int(line.slope):,}, rounded down"
    results = [
        ExerciseResult("by the bytes together", by_sum, unit, because=worked),
        ExerciseResult("by the peak of live bytes of a step", Fraction(size), unit, because=why),
    ]
    for batch, because in ((size, "it fits"), (size + 1, "it does not fit")):
        peak = _peak(derivation, batch) if batch else None
        if peak is not None:
            at = derivation.at_sizes({**_given(derivation), "B": batch})
            largest, why = at["memory.peak"].largest_candidate, because + _peak_line(derivation, batch)
            text = None if largest is None else branches.at_hand(largest.expr, at.sizes)
            results.append(ExerciseResult(f"peak at B = {batch:,}", Fraction(peak), "byte", text, why))
    at = derivation.at_sizes({**_given(derivation), "B": max(size, 1)})
    live = _part_table([at], [""], "memory.peak", f"live bytes at the peak, B = {at.sizes['B']:,}")
    return Exercise("largest-batch", question, "memory.peak", tuple(results), (live,), (("B", at.sizes["B"]),))


def _peak_line(derivation: Derivation, batch: int) -> str:
    """The peak around ``batch`` as a·B + b with its range, as text behind a reason; empty where it is no line."""
    at = derivation.at_sizes({**_given(derivation), "B": max(batch, 2)})
    line = _line(derivation, [branches.at_hand(c.expr, at.sizes) for c in at["memory.peak"].candidates], batch, alone=False)
    return "" if line is None else f"; the peak is {_written(line)} for {line.range('B')}"


def _peak(derivation: Derivation, batch: int) -> int | None:
    """Bytes of the peak; ``None`` at a batch that the model cannot have."""
    try:
        return derivation["memory.peak"].at(**{**_given(derivation), "B": batch})
    except DimensionError:
        return None


def _optimizer(one: Derivation) -> Exercise:
    name = str(one.options.get("optimizer", "the optimizer"))
    question = f"How many FLOPs does one step of {name} take?"
    quantity = one["flops.optimizer.total"]
    each, why = Fraction(quantity.value or 0, one["parameters"].value or 1), _of_one_tensor(one, name)
    total = _result("FLOPs of a step", quantity, one.sizes, "the sum over the parameter tensors")
    results = (total, ExerciseResult("for each parameter", each, "FLOP", because=why))
    return Exercise("optimizer", question, "flops.optimizer.total", results)


def _of_one_tensor(one: Derivation, name: str) -> str:
    """How the step counts for one tensor of n elements, operator by operator; for fp32, in which that is traced."""
    source = f"operation by operation: napkin optimizer {name}"
    if name not in NAMED_OPTIMIZERS or one.options.get("precision") != "fp32":
        return source
    cost = executed(name, str(one.options.get("implementation", "loop")))
    by_operator: dict[str, list[str]] = {}
    for part in cost.parts:
        by_operator.setdefault(part.operator, []).append(part.flops)
    names = sorted(free_names(cost.flops))
    counts = [f"{readable(_sum(texts, names))} ({operator})" for operator, texts in by_operator.items()]
    return f"for a tensor of {cost.tensor}: {', '.join(counts)}; together {readable(cost.flops)}"


def _time(one: Derivation, run: PlannedTraining) -> Exercise:
    """The training in days, or in the largest unit of which it takes one."""
    dtype = _DTYPES.get(str(one.options.get("precision", "fp32")), "bf16")
    length = f" of T = {one.sizes['T']:,}" if "T" in one.sizes else ""
    question = (
        f"How long do {run.steps:,} steps with {run.batch:,} {_sample(one)}s{length} take on one device at"
        f" {float(100 * run.mfu):g} % MFU, if the backward takes twice the FLOPs of the forward?"
    )
    thrice = Fraction(3 * (one[FORWARD].value or 0) * run.batch)
    executed = sum(sign * (one[name].value or 0) for sign, name in ((1, FORWARD), (1, BACKWARD), (-1, RECOMPUTED)))
    results = [ExerciseResult("FLOPs of a step, forward and backward", thrice, "FLOP", because=f"3 · forward · {_sample(one)}s")]
    for gpu in run.gpus:
        device = accelerator(gpu)
        rate = device.peak(dtype) * run.mfu
        seconds, exact = (run.steps * flops / rate for flops in (thrice, Fraction(executed * run.batch)))
        unit, of_unit = next((time for time in _TIMES if seconds >= time[1]), ("seconds", 1))
        peak = f"{float(device.peak(dtype) / 10**12):g} TFLOP/s{f' · {of_unit:,} s' if of_unit > 1 else ''}"
        because = f"steps · FLOPs of a step / ({float(run.mfu):g} · {peak}), the dense peak in {dtype}"
        results.append(ExerciseResult(f"time on one {device.name}", seconds / of_unit, unit, because=because))
        why = "the backward as autograd runs it, without what is recomputed"
        results.append(ExerciseResult(f"time on one {device.name}, exact backward", exact / of_unit, unit, because=why))
    return Exercise("days", question, BACKWARD, tuple(results))


_QUESTIONS = (
    _Question(("parameters", "parameters.bytes"), (), (), lambda sheet: _parameters(sheet.one)),
    _Question((FORWARD,), (), (), lambda sheet: _matmuls(sheet.one)),
    _Question((FORWARD,), (), (), lambda sheet: _parts(sheet.one)),
    _Question((FORWARD,), (), (_SEVERAL,), lambda sheet: _sizes(sheet.sizes)),
    _Question((FORWARD,), (), ("T",), lambda sheet: _context(sheet.one, sheet.run.context)),
    _Question(STATE[1:], STATE[:1], ("B",), lambda sheet: _memory(sheet.derivation)),
    _Question(("memory.peak",), STATE, ("B",), lambda sheet: _largest_batch(sheet.derivation, sheet.run)),
    _Question(("flops.optimizer.total",), ("parameters",), (), lambda sheet: _optimizer(sheet.one)),
    _Question((), (FORWARD, BACKWARD), ("B",), lambda sheet: _time(sheet.one, sheet.run)),
)

ASSIGNMENT = tuple(dict.fromkeys(name for question in _QUESTIONS for name in question.asks))  # quantities that the assignment asks for
