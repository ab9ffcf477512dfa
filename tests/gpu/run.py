"""The process that has the device: it measures task after task, and writes each record as soon as there is one.

What ends this process (a crash of a kernel, a limit) leaves every record that is finished; the process that started it goes on with the
task after. Each task says in the log when it begins, what it wrote and how it ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import calc
from calc.hardware import calibration as calibrations
from calc.hardware.times import How, Repeat, TransferPlan
from calc.memory.device_memory import on_device
from calc.performance import matmul, transfers
from calc.performance.measuring import Expected, MeasuringOptions, absent, document, measured
from calc.performance.mfu import MatmulFlops
from calc.performance.prediction import predict
from reports.jobs.job import json_text, write_all
from tests.gpu.derived import Derived, derived, end_with_parent
from tests.gpu.plan import FORMATS, REAL, REHEARSED, Format, Model, Plan, Step, Task, options_of
from tests.gpu.summary import in_a_name, written

ROOT = Path(__file__).resolve().parent.parent.parent
MEASUREMENTS = ROOT / "reports" / "measurements"
_REHEARSED = "rehearsal of a "
NO_DEVICE = 3  # exit status
_READ = Repeat(warm_up=2, count=3, seconds=0)  # of steps whose memory is read
_WAIT = 45.0  # seconds, for a derivation


@dataclass(frozen=True)
class Session:
    """Where records, derivations and the log go. In a rehearsal nothing is measured, and every record says so."""

    output: Path
    work: Path
    device: str = "cuda"
    rehearsal: bool = False

    @property
    def plan(self) -> Plan:
        return REHEARSED if self.rehearsal else REAL

    def log(self, event: str, task: Task, **more: Any) -> None:
        """One line, written whole or not at all."""
        with (self.work / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "task": task.name, "at": time.time(), **more}) + "\n")

    def path(self, name: str, device_name: str) -> Path:
        return self.output / f"{in_a_name(device_name)}-{name}.json"

    def read(self, name: str, device_name: str) -> dict[str, Any] | None:
        """A record that this run has written."""
        path = self.path(name, device_name)
        if path.name not in written(self.work):
            return None
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**data, "kind": str(data["kind"]).removeprefix(_REHEARSED)}

    def keep(self, task: Task, name: str, data: Mapping[str, Any]) -> None:
        """A record as a file, named after the device and replaced whole: whoever reads it never sees half of one."""
        device = data["device"] if "device" in data else data["machine"]["device"]
        marked = {**data, "command": " ".join(("python -m tests.gpu", *(["--rehearse"] if self.rehearsal else [])))}
        if self.rehearsal:
            require_elsewhere(self.output)
            marked |= {"kind": f"{_REHEARSED}{data['kind']}", "rehearsal": "made without a GPU: its numbers are no measurements"}
        path = self.path(name, str(device["name"]))
        write_all(path.parent, {path.name: json_text(marked)})
        self.log("wrote", task, file=path.name)


def require_elsewhere(folder: Path) -> None:
    """Refuse to put what a rehearsal writes among measurements."""
    if folder.resolve().is_relative_to(MEASUREMENTS) or folder.name == MEASUREMENTS.name:
        raise ValueError(f"a rehearsal measures nothing: its records cannot go to {folder}")


def measure(session: Session, task: Task) -> None:
    """One task, whatever it is; it raises whatever goes wrong in it."""
    parts: dict[str, Callable[[Session, Task], None]] = {
        "products": _products,
        "eager": _times,
        "compiled": _times,
        "memory": _memory,
        "largest": _memory,
        "calibration": _calibration,
        "predictions": _predictions,
        "transfers": _transfers,
    }
    parts[task.part](session, task)


def _products(session: Session, task: Task) -> None:
    """The lecture's product in every format, the record written anew with each."""
    rows: tuple[Any, ...] = ()
    for dtype in matmul.DTYPES:
        products = matmul.products(session.plan.product, [dtype], session.device, session.plan.products)
        rows += products.rows
        session.keep(task, "products", matmul.document(replace(products, rows=rows)))


def _times(session: Session, task: Task) -> None:
    """Steps of one model in one format at each of its sizes; compiled ones at the main size, as every size is compiled anew."""
    model, form = session.plan.model(task.model), FORMATS[task.form]
    compiled = task.part == "compiled"
    sizes = model.sizes[-1:] if compiled else model.sizes
    options = MeasuringOptions(
        session.device,
        memory=0,
        how=How(session.plan.steps, tf32=form.tf32, compiled=compiled, per_module=False),
        work=[_work(_derived(session, model, at, form.precision)) for at in sizes],
    )
    data = document(measured(calc.load(model.of), sizes, options_of(form.precision), options))
    for run in data["runs"] if compiled else ():
        run["predicted"] = Expected(None, because="a calibration is of eager steps").to_json(Fraction(0))
    session.keep(task, _record_name(model, form, task.part), data)


def _record_name(model: Model, form: Format, part: str) -> str:
    return f"{model.name}-{form.name}-{part}-time"


def _derived(session: Session, model: Model, sizes: Mapping[str, int], recipe: str, wait: float = _WAIT) -> Derived | None:
    step: Step = (model.of, sizes, recipe)
    return derived(session.work, step, wait)


def _work(actual: Derived | None) -> MatmulFlops:
    return MatmulFlops(None, None, "not derived when the step was timed") if actual is None else actual.work


def _memory(session: Session, task: Task) -> None:
    """Memory of steps beside its derivation; of ``largest``, also the largest batch that fits."""
    model, recipe, largest = session.plan.model(task.model), task.form, task.part == "largest"
    sizes = model.sizes[-1:] if largest else model.sizes
    steps = [_derived(session, model, at, recipe) for at in sizes]
    lacking = next(("not derived in time" if step is None else step.because for step in steps if step is None or step.memory is None), "")
    if lacking:
        raise RuntimeError(f"the memory of {model.name} in {recipe} is not predicted: {lacking}")
    capability = _capability(session.device)
    options = MeasuringOptions(
        session.device,
        fit=largest,
        how=How(_READ, per_module=False),
        work=[_work(step) for step in steps],
        before=[on_device(step.memory, capability) for step in steps if step is not None and step.memory is not None],
    )
    measurement = measured(calc.load(model.of), sizes, options_of(recipe), options)
    session.keep(task, f"{model.name}-{recipe}-{task.part}", document(measurement))


def _capability(device: str) -> tuple[int, int]:
    major, minor = _machine(device)["device"]["capability"]
    return major, minor


def _machine(device: str) -> dict[str, Any]:
    from calc.measure.machine import machine

    return machine(device)


def _calibration(session: Session, task: Task) -> None:
    """What predicts a step: products, copies and launches alone; then fp32 products once more in tf32."""
    from calc.measure.calibration import calibrate
    from calc.measure.primitives import primitives

    most = session.plan.calibrated
    chosen = [one for one in primitives(session.device) if max(one.flops, one.bytes) <= most]
    calibration = calibrate(session.device, chosen=chosen)
    session.keep(task, "calibration", calibration.to_json())
    products = calibrate(session.device, tf32=True, chosen=[one for one in chosen if one.flops and one.dtype == "float32"])
    others = tuple(point for point in calibration.points if not (point.flops and point.dtype == "float32"))
    session.keep(task, "calibration-tf32", replace(products, points=(*others, *products.points)).to_json())


def _predictions(session: Session, task: Task) -> None:
    """Join to each record of eager steps what the calibration says of them. Nothing of it is fitted to what was timed."""
    device = str(_machine(session.device)["device"]["name"])
    for form in FORMATS.values():
        calibrated = session.read("calibration-tf32" if form.tf32 else "calibration", device)
        for model in (session.plan.first, *session.plan.timed):
            data = session.read(_record_name(model, form, "eager"), device)
            if calibrated is not None and data is not None:
                _join(session, task, data, calibrations.from_json(calibrated), model, form)


def _join(session: Session, task: Task, data: dict[str, Any], calibration: Any, model: Model, form: Format) -> None:
    for sizes, run in zip(model.sizes, data["runs"], strict=False):
        step = _derived(session, model, sizes, form.precision, wait=0)
        seconds = Fraction(run["time"]["measured"]["whole"]["seconds"]["median"])
        run["predicted"] = _expected(step, calibration).to_json(seconds)
    session.keep(task, _record_name(model, form, "eager"), data)


def _expected(step: Derived | None, calibration: Any) -> Expected:
    if step is None or step.operators is None:
        return Expected(None, because="not derived in time" if step is None else step.because)
    try:
        prediction = predict(step.operators, calibration)
    except Exception as error:  # a prediction that fails costs no measurement
        return Expected(None, because=line(error))
    return Expected(prediction.seconds, prediction.band)


def _transfers(session: Session, task: Task) -> None:
    plan = session.plan
    batch, length = (32, 1024) if not session.rehearsal else (2, 16)
    measurement = transfers.measured(TransferPlan(plan.copied, batch, length), session.device, plan.copies)
    session.keep(task, "transfers", transfers.document(measurement))


def line(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main(words: Sequence[str]) -> int:
    """Measure the tasks of a JSON document, in order."""
    end_with_parent()
    given = json.loads(words[0])
    session = Session(Path(given["output"]), Path(given["work"]), rehearsal=given["rehearsal"])
    with _simulated(session.rehearsal):
        if absent():
            return NO_DEVICE
        for task in (Task(**entry) for entry in given["tasks"]):
            if time.time() > given["until"]:
                break
            session.log("began", task)
            try:
                measure(session, task)
            except Exception as error:  # whatever a kernel or a compiler raises: the other tasks still count
                session.log("failed", task, because=line(error))
            else:
                session.log("ended", task)
    return 0


def _simulated(rehearsal: bool) -> Any:
    if not rehearsal:
        return nullcontext()
    from tests.gpu.simulated import installed

    return installed()


def request(session: Session, tasks: Sequence[Task], until: float) -> str:
    """What ``main`` reads; ``until`` is the time after which nothing begins."""
    entries = [asdict(task) for task in tasks]
    where = {"output": str(session.output), "work": str(session.work), "rehearsal": session.rehearsal}
    return json.dumps({**where, "until": until, "tasks": entries})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
