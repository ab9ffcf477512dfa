"""One architecture through the whole product: reduced, derived with symbolic sizes, measured for real, compared."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calc.spec import Spec

EXACT, REFUSED, WRONG, NOT_BUILT = "exact", "refused", "wrong", "not built"

_FEW = 7  # tokens

# What has to be equal, as integers.
REQUIRED = ("parameters", "flops.forward.matmul", "flops.backward.matmul", "activations.bytes", "optimizer_state.bytes")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one architecture. ``symbolic`` and ``specialized`` are its dimensions; ``why`` is the refusal or the difference."""

    model_type: str
    architecture: str
    verdict: str
    why: str = ""
    symbolic: tuple[str, ...] = ()
    specialized: tuple[str, ...] = ()
    parameters: int = 0
    checked: int = 0
    operators: int = 0
    seconds: float = 0.0


# Of the other kinds of classes, one of the library's lists and the model types whose class in it is swept.
OTHERS = {
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": ("bert", "distilbert"),
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": ("t5", "bart"),
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": ("vit", "convnext", "resnet"),
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": ("whisper", "speech_to_text", "moonshine"),
    "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES": ("clip", "siglip"),
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES": ("yolos", "rt_detr"),
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": ("wav2vec2", "audio-spectrogram-transformer"),
    "MODEL_FOR_CTC_MAPPING_NAMES": ("hubert",),
    "MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING_NAMES": ("vit",),
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": ("bert", "llama"),
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": ("bert",),
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": ("bert",),
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES": ("llava", "paligemma"),
    "MODEL_MAPPING_NAMES": ("bert", "vit", "t5", "wav2vec2", "llama"),
}


def names() -> dict[str, str]:
    """Name → architecture: every causal language model of the installed transformers by its model_type, and some other kinds."""
    from transformers.models.auto import modeling_auto

    language = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    actual = {name: _first(architecture) for name, architecture in language.items()}
    others = [(kind, _first(getattr(modeling_auto, mapping)[kind])) for mapping, kinds in OTHERS.items() for kind in kinds]
    return actual | {f"{kind}:{architecture}": architecture for kind, architecture in others}


def _first(architecture: Any) -> str:
    return architecture if isinstance(architecture, str) else str(architecture[0])


def sweep_one(model_type: str, architecture: str, seed: int, folder: Path) -> Row:
    """The row of one architecture; ``folder`` receives its reduced config.json."""
    start = time.process_time()  # of this process alone: what else runs on the machine does not count
    try:
        config = _config(model_type, architecture, seed, folder)
    except Exception as error:  # whatever the library raises, its default cannot be built here
        return Row(model_type, architecture, NOT_BUILT, _line(error), seconds=time.process_time() - start)
    row = _judged(model_type, architecture, config)
    return Row(**{**asdict(row), "seconds": round(time.process_time() - start, 1)})


def _config(model_type: str, architecture: str, seed: int, folder: Path) -> Path:
    import torch

    from calc.models.hf.source import source_of
    from tests.sweep.reduce import reduced

    torch.manual_seed(seed)  # a default that is tried on data is tried on the same
    kind = model_type.partition(":")[0]
    raw: dict[str, Any] = {"model_type": kind, "architectures": [architecture]}
    if architecture.endswith("ForConditionalGeneration"):
        raw |= {"decoder_start_token_id": 0, "pad_token_id": 0}  # every file of such a model has them; the class has no default
    if architecture.endswith("ForSequenceClassification"):
        raw["pad_token_id"] = 0  # likewise: the token before it is what is classified
    source = source_of(kind, raw)
    changes = reduced(source, seed)
    path = folder / kind / architecture / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**raw, **source.merged(changes)}, default=str))
    return path


def _judged(model_type: str, architecture: str, config: Path) -> Row:
    import calc
    from calc.errors import NapkinError
    from calc.pipeline.verdict import EXACT as EQUAL
    from calc.pipeline.verdict import FAILED, NOT_MEASURED

    try:
        spec = calc.load(f"hf:{config}")
        derivation = calc.derive(spec, _few(spec), cache=False)
        steps = len(derivation.steps)  # each is checked when it is made
        report = calc.check(derivation)
    except NapkinError as error:
        return Row(model_type, architecture, REFUSED, _line(error).replace(f"hf:{config}", model_type))
    wrong = [v for v in report.verdicts if v.verdict == FAILED]
    missing = [name for name in REQUIRED if report[name].verdict == NOT_MEASURED]
    why = "; ".join(
        [f"{v.quantity}: derived {v.derived}, measured {v.measured}" for v in wrong] + [f"{name} not measured" for name in missing]
    )
    specialized = tuple(name for name in derivation.sizes if name in derivation.specialized)
    return Row(
        model_type,
        architecture,
        WRONG if wrong or not steps else REFUSED if missing else EXACT,
        why,
        tuple(d.name for d in derivation.dims if d.name not in specialized and not d.tied),
        specialized,
        derivation["parameters"].value or 0,
        sum(v.verdict == EQUAL for v in report.verdicts),
        len(derivation.coverage),
    )


def _few(spec: Spec) -> dict[str, int]:
    """Where the step is checked. A length that is walked iteration by iteration is short: each iteration is recorded, and run again."""
    return {**spec.check_at, **{name: min(spec.check_at[name], _FEW) for name in spec.may_unroll if name in spec.check_at}}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
