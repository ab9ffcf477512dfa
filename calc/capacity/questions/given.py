"""The inputs of a question by kind: variables, choices, a device, a model, and the variable to solve for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from calc.capacity.questions.question import Question, Variable
from calc.capacity.questions.values import ParsedValue, Typed, read
from calc.errors import BadInputError, listed, one_of

DEVICE_KEYS = ("gpu", "dtype", "sparse", "hardware")
_WORDS_OF_SIZES = {"batch": "B", "sequence": "T", "layers": "L", "width": "d", "vocabulary": "V"}
# Words for keys whose name differs. A node is several devices: the key gives their number.
_OTHER_WORDS = {
    "nodes": "gpus", "gpu-count": "gpus", "num-gpus": "gpus", "n-gpus": "gpus", "batch-size": "batch", "seq-len": "sequence",
    "sequence-length": "sequence", "utilization": "mfu", "num-layers": "layers", "num-heads": "heads", "hidden-size": "width",
    "chips": "gpus", "size": "parameters", "tp": "tensor", "dp": "data", "pp": "pipeline", "cp": "context", "ep": "expert", "mbs": "micro",
    "micro-batch-size": "micro", "gbs": "batch", "global-batch-size": "batch", "context": "sequence", "context-length": "sequence",
    "ctx-len": "sequence", "vram": "memory", "device": "gpu", "accelerator": "gpu", "chip": "gpu", "hours": "gpu-hours",
    "device-hours": "gpu-hours", "watts": "power", "tdp": "power", "num-devices": "gpus", "world-size": "gpus", "seq": "sequence",
    "params": "parameters", "n-layers": "layers", "n-heads": "heads", "d-model": "width", "price-per-hour": "price",
}  # fmt: skip
WORDS_OF_LAYOUT = ("micro", "batch")  # sequences per micro-batch, and per step over all devices, as in napkin shard
# Smallest plausible value of each device specification (a smaller one lacks its unit), and how to write it.
_LEAST = {
    "memory": (10**6, "less than one layer of a model needs: write 80GB or 80GiB"),
    "peak": (10**9, "less than any device does: write 989.5TFLOP/s"),
    "bandwidth": (10**6, "less than any device moves: write 3.35TB/s"),
    "link": (10**5, "less than any link carries: write 50GB/s or 400Gbit/s"),
}


class UnknownKeysError(BadInputError):
    """Keys that a question does not have."""


@dataclass(slots=True)
class QuestionInputs:
    """Inputs by kind. ``sizes`` are dimensions of the model, by name."""

    variables: dict[str, ParsedValue] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    device: dict[str, str] = field(default_factory=dict)
    model: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    solve: str = ""


def sort(question: Question, typed: Mapping[str, Typed]) -> QuestionInputs:
    """The inputs by kind. Refuses duplicate and unknown keys."""
    given = QuestionInputs()
    names = {name: variable for variable in question.variables for name in variable.names}
    model_given = question.of_model and "model" in typed
    unknown: list[str] = []
    for written, value in typed.items():
        key = written.replace("_", "-")
        if key in names:
            _variable(given, names[key], key, value)
        elif key in (c.key for c in question.choices):
            given.choices[key] = _chosen(question, key, str(value))
        elif key in DEVICE_KEYS and question.of_device:
            given.device[key] = str(value)
        elif key == "model" and question.of_model:
            given.model = str(value)
        elif key == "solve":
            given.solve = _solved_for(question, names, str(value))
        elif model_given:
            _size_or_key(given, question, written, value)
        else:
            unknown.append(key)
    if unknown:
        raise UnknownKeysError(_unknown(question, unknown))
    if not given.solve and question.answer in given.variables:
        key = question.variable(question.answer).key
        instead = _to_solve_for(question, given)
        raise BadInputError(f"{key} is what {question.name} answers: with {key}=… leave out another key and solve for it: solve={instead}")
    if given.solve in given.variables:
        key = question.variable(given.solve).key
        raise BadInputError(f"{key} is both given and solved for: leave out {key}=…, or solve for another")
    return given


def _to_solve_for(question: Question, given: QuestionInputs) -> str:
    """The key to solve for where the answer is given: one that was given, and that a model does not supply."""
    if given.model and (question.fills or question.laid):
        return question.variable("M").key
    others = [x for x in question.variables if x.symbol != question.answer and not (given.model and x.model)]
    return next((x.key for x in others if x.symbol in given.variables), others[0].key)


def _variable(given: QuestionInputs, variable: Variable, key: str, value: Typed) -> None:
    if variable.symbol in given.variables:
        raise BadInputError(f"{variable.key} is given twice: {' and '.join(variable.names)} are the same key")
    parsed = read(key, value, variable.unit, integer=bool(variable.rounding))
    require_unit(variable.device, key, value, parsed, variable.unit)
    given.variables[variable.symbol] = parsed


def require_unit(specification: str, key: str, typed: Typed, parsed: ParsedValue, unit: str) -> None:
    """Refuse a value too small for any device: its unit was left out. ``specification`` says which value it is."""
    least, why = _LEAST.get(specification, (0, ""))
    if parsed.value < least and not (parsed.suffix and specification != "memory") and not isinstance(typed, Fraction):
        raise BadInputError(f"{key} = {typed} is {float(parsed.value):g} {unit}, {why}")


def _chosen(question: Question, key: str, value: str) -> str:
    choice = next(c for c in question.choices if c.key == key)
    if value not in choice.options:
        raise BadInputError(f"unknown {key} {value[:40]!r}: {_near(value, choice.options) or one_of(choice.options)}")
    return value


def _solved_for(question: Question, names: Mapping[str, Variable], value: str) -> str:
    if value not in names:
        keys = [variable.key for variable in question.variables]
        raise BadInputError(f"{question.name} has no {value[:40]!r} to solve for: {_near(value, names) or one_of(keys)}")
    return names[value].symbol


def _size_or_key(given: QuestionInputs, question: Question, written: str, value: Typed) -> None:
    """Add a size of the model; a value with a unit is treated as a misspelled key and refused."""
    key = written.replace("_", "-")
    of_layout = question.laid and key in WORDS_OF_LAYOUT
    try:
        _size(given, key if of_layout else _WORDS_OF_SIZES.get(key, written), value)
    except BadInputError:
        if key in _LEAST or nearest(key, keys_of(question)):  # specifications of a device are no sizes of a model
            raise UnknownKeysError(_unknown(question, [key])) from None
        raise


def _size(given: QuestionInputs, name: str, value: Typed) -> None:
    if name in given.sizes:
        raise BadInputError(f"{name} is given twice, under two names: give it once")
    given.sizes[name] = int(read(name, value, "elements", integer=True).value)


def keys_of(question: Question) -> tuple[str, ...]:
    """Every key of a question except solve and the sizes of a model."""
    keys = [variable.key for variable in question.variables] + [c.key for c in question.choices]
    keys += DEVICE_KEYS if question.of_device else ()
    keys += ["model"] if question.of_model else []
    return tuple(keys)


def takes(question: Question, written: Iterable[str]) -> bool:
    """Whether a question has every key of ``written``, under one of its names or by another word for it."""
    names = {*keys_of(question), "solve", *(name for variable in question.variables for name in variable.names)}
    keys = (key.replace("_", "-") for key in written)
    return all(key in names or _OTHER_WORDS.get(key) in names for key in keys)


def _unknown(question: Question, unknown: Sequence[str]) -> str:
    keys = keys_of(question)
    candidates = [*keys, *(name for variable in question.variables for name in variable.names)]
    suggested = {key: _near(key, candidates) for key in unknown}
    its_keys = f"napkin list questions {question.name}"
    if len(unknown) > 1:
        each = (f"{key[:40]!r}{f' ({near})' if near else ''}" for key, near in suggested.items())
        return f"{question.name} has no keys {listed(each)}. Its keys: {its_keys}"
    [(key, near)] = suggested.items()
    return f"{question.name} has no key {key[:40]!r}: {f'{near} Its keys: {its_keys}' if near else one_of((*keys, 'solve'))}"


def nearest(word: str, keys: Iterable[str]) -> str:
    """The closest key; empty if none is close."""
    import difflib

    candidates, word = list(keys), word.replace("_", "-").lower()
    if _OTHER_WORDS.get(word) in candidates:
        return _OTHER_WORDS[word]
    return next(iter(difflib.get_close_matches(word, candidates, n=1)), "")


def _near(word: str, candidates: Iterable[str]) -> str:
    near = nearest(word, candidates)
    return f"did you mean {near}?" if near else ""


# -- examples ---------------------------------------------------------------------------------------------------------
# Example values of missing inputs, so that an error message ends with something that works when it is typed.


# By key, or by question and key where the usual value of the key would be absurd.
_VALUES = {
    "parameters": "8e9", "tokens": "1e12", "gpus": "64", "mfu": "0.4", "hfu": "0.5", "days": "30", "layers": "24",
    "width": "1024", "heads": "16", "kv-heads": "8", "head-width": "64", "feed-forward": "4096", "vocabulary": "50257",
    "sequence": "1024", "batch": "4", "flops": "2e16", "compute-optimal.flops": "1e23", "error": "10%", "seconds": "60",
    "other-seconds": "90", "tokens-per-second": "5000", "cost": "1e5", "amount": "1000", "other": "2000", "least-steps": "1e4",
    "least-examples": "1e7", "critical-batch": "1000", "variance": "1e4", "gradient-squared": "10", "loss": "3", "save": "60s",
    "device-mtbf": "50000", "weights-bytes": "16GB", "cache-bytes": "1GB", "bytes": "1e14", "rows": "4096", "inner": "4096",
    "columns": "4096", "tensor": "8", "pipeline": "4", "micro-batches": "16", "context": "4", "expert": "8",
    "experts-per-token": "2", "data": "64", "steps": "1e5", "pue": "1.1", "intensity": "400g/kWh",
}  # fmt: skip
_DEVICE = "gpu=h100-sxm"


def example(question: Question, missing: Iterable[Variable]) -> str:
    """Values for ``missing`` as they are typed, e.g. ``tokens=1e12 gpu=h100-sxm``; empty if one of them has no example."""
    values = {x.key: _VALUES.get(f"{question.name}.{x.key}", _VALUES.get(x.key)) for x in missing}
    pairs = [_DEVICE if x.device else f"{x.key}={values[x.key]}" for x in missing]
    return " ".join(dict.fromkeys(pairs)) if all(x.device or values[x.key] for x in missing) else ""
