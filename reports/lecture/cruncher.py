"""Claims on the deep linear network D → D × layers → 1 and its accounting."""

from __future__ import annotations

from reports.lecture.claim import Topic
from reports.lecture.lab import Lab, closed_form
from reports.lecture.runs import experiment
from reports.lecture.training import LOOSE
from reports.lecture.verdicts import ClaimFinding, number, readings, same, true

CRUNCHER = Topic("The deep linear network")
_AT = {"B": 2, "D": 4, "L": 2}
_SPEC = {"optimizer": "spec"}
_BY = "derive cruncher with the lecture's AdaGrad, and a check by a real run"


def quantity(lab: Lab, name: str, **sizes: int) -> int:
    """The value of a quantity of the lecture's network, in the quantity's unit, at the lecture's sizes or at ``sizes``."""
    return lab.value("cruncher", name, {**_AT, **sizes}, **_SPEC)


def measured(lab: Lab, name: str) -> str:
    """The verdict of a real run at the lecture's sizes, for one quantity."""
    return lab.check("cruncher", _AT, **_SPEC)[name].verdict


def saved_tensors(lab: Lab) -> list[str]:
    """The tensors saved for backward at the lecture's sizes, each with its number of elements."""
    saved = lab.derive("cruncher", _AT, **_SPEC).saved
    return [f"{s.tensor} {'×'.join(s.shape)} for {s.module_path}: {s.value // 4}" for s in saved]


def all_bytes(lab: Lab) -> int:
    """Bytes of parameters, activations, gradients and optimizer state together, at the lecture's sizes."""
    names = ("parameters.bytes", "activations.bytes", "gradients.bytes", "optimizer_state.bytes")
    return sum(quantity(lab, name) for name in names)


@CRUNCHER.claim("cruncher-8256", "With D = 64 and two layers it has 8256 parameters.")
def _(lab: Lab) -> ClaimFinding:
    return number("8256", quantity(lab, "parameters", D=64), "2 · 64² + 64", "derive cruncher: parameters", unit="parameters")


@CRUNCHER.claim("cruncher-params", "It has D²·layers + D parameters.")
def _(lab: Lab) -> ClaimFinding:
    parameters = lab.derive("cruncher", None, **_SPEC)["parameters"]
    at_4 = f"{quantity(lab, 'parameters')} at D = 4 and two layers, {measured(lab, 'parameters')} in a real run"
    because = f"derived as {closed_form(parameters)}; {at_4}"
    return same("D²·L + D", closed_form(parameters), because, _BY)


@CRUNCHER.claim("cruncher-d2d", "It has D² + D parameters.")
def _(lab: Lab) -> ClaimFinding:
    because = "that is for one layer; each further layer has D² more, and the lecture's network has two"
    return number("20", quantity(lab, "parameters"), because, "derive cruncher: parameters at D = 4, L = 2", unit="parameters")


def _activations(name: str, says: str) -> None:
    @CRUNCHER.claim(name, says)
    def _(lab: Lab) -> ClaimFinding:
        elements = quantity(lab, "activations.bytes") // 4
        hidden = _AT["B"] * _AT["D"] * _AT["L"]
        because = f"hidden outputs are {hidden} elements, but {elements} are saved for backward: " + "; ".join(saved_tensors(lab))
        return readings(hidden == 16, hidden == elements, elements, because, _BY, unit="elements")


_activations("cruncher-act", "It has B·D·layers activations, 16 at B = 2, D = 4 and two layers.")
_activations("cruncher-act-h1h2", "Its activations are the hidden outputs h1 and h2.")


@CRUNCHER.claim("cruncher-opt", "AdaGrad keeps as many numbers as there are parameters.")
def _(lab: Lab) -> ClaimFinding:
    state, parameters = quantity(lab, "optimizer_state.bytes") // 4, quantity(lab, "parameters")
    torchs = lab.value("cruncher", "optimizer_state.bytes", _AT, optimizer="adagrad") // 4
    because = (
        f"a sum of squares for each ({measured(lab, 'optimizer_state.bytes')} in a real run); torch's own class keeps {torchs - state} "
        "step counters beside them"
    )
    return same(parameters, state, because, _BY, unit="elements")


@CRUNCHER.claim("cruncher-496", "Training it takes 496 bytes at B = 2, D = 4 and two layers.")
def _(lab: Lab) -> ClaimFinding:
    because = (
        "4 · (36 + 16 + 36 + 36) leaves out x, the prediction and the target that the backward needs: 4 · (36 + "
        f"{quantity(lab, 'activations.bytes') // 4} + 36 + 36) = {all_bytes(lab)}; the peak of a real step is "
        f"{quantity(lab, 'memory.peak')} ({measured(lab, 'memory.peak')}), as AdaGrad's step allocates temporary tensors"
    )
    return number("496", all_bytes(lab), because, _BY, unit="bytes", within=LOOSE)


@CRUNCHER.claim("cruncher-432", "A step of it takes 432 FLOP there.")
def _(lab: Lab) -> ClaimFinding:
    forward, backward = (quantity(lab, f"flops.{phase}.matmul") for phase in ("forward", "backward"))
    because = (
        f"6 · 2 · 36 counts a gradient of x, which autograd does not compute: {forward} forward and {backward} backward "
        f"({measured(lab, 'flops.backward.matmul')} in a real run)"
    )
    return number("432", forward + backward, because, _BY, unit="FLOP", within=LOOSE)


@CRUNCHER.claim("cruncher-6bn", "A step takes 6 · B · parameters FLOP.")
def _(lab: Lab) -> ClaimFinding:
    total = sum(quantity(lab, f"flops.{phase}.matmul") for phase in ("forward", "backward"))
    derivation = lab.derive("cruncher", None, **_SPEC)
    texts = " + ".join(closed_form(derivation[f"flops.{phase}.matmul"]) for phase in ("forward", "backward"))
    because = f"executed are {texts}: 2·B·D² less, for the first layer's input"
    return number(str(6 * _AT["B"] * quantity(lab, "parameters")), total, because, _BY, unit="FLOP", within=LOOSE)


@CRUNCHER.claim("cruncher-fp32", "All of its memory is 4 bytes for each number, in fp32.")
def _(lab: Lab) -> ClaimFinding:
    formats = {s.dtype for s in lab.derive("cruncher", _AT, **_SPEC).saved}
    whole = all(quantity(lab, n) % 4 == 0 for n in ("parameters.bytes", "gradients.bytes", "optimizer_state.bytes", "activations.bytes"))
    ratio = quantity(lab, "parameters.bytes") // quantity(lab, "parameters")
    return true(
        formats == {"float32"} and whole and ratio == 4,
        ratio,
        "weights, gradients, state and all saved tensors are fp32",
        _BY,
        unit="bytes",
    )


@CRUNCHER.claim("cruncher-layers0", "The network can be made with num_layers = 0, without a hidden layer.")
def _(_: Lab) -> ClaimFinding:
    run = experiment("trained", width=16, steps=400)
    because = (
        f"it is then one map from 16 to 1, a linear regression: {run['parameters']} parameters, and its loss falls from "
        f"{run['losses'][0]:.0f} to "
        f"{run['losses'][-1]:.1g} in 400 steps"
    )
    return true(
        run["parameters"] == 16 and run["losses"][-1] < 1,
        run["parameters"],
        because,
        "a real training with no hidden layer",
        unit="parameters",
    )
