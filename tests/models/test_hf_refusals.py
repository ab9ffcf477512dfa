"""Configs that are refused: in one line, by what is wrong with them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calc.errors import ConfigError, MissingExtraError
from calc.models.hf import layers, trials
from calc.models.hf.source import sentences_of
from calc.models.load import load
from tests.models.configs import GPT2, LLAMA, written

REFUSED: dict[str, tuple[dict[str, Any] | str, str]] = {
    "malformed": ('{"model_type": "llama",\n "hidden_size": }', "{file} is not JSON: Expecting value at line 2, column 17"),
    "empty": ("", "{file} is not JSON: Expecting value at line 1, column 1"),
    "a list": ("[1, 2]", "{file} holds a JSON list, not an object: give the config.json of a model"),
    "remote code": (
        LLAMA | {"architectures": ["XForCausalLM"], "auto_map": {"AutoConfig": "configuration_x.XConfig"}},
        "{file} has auto_map, and the installed transformers has no XForCausalLM of model_type 'llama': its classes are code beside the"
        " config, and no remote code is run; use FILE.py:NAME",
    ),
    "remote code of an unknown type": (
        LLAMA | {"model_type": "x", "auto_map": {"AutoConfig": "configuration_x.XConfig"}},
        "{file} has auto_map, and the installed transformers has no LlamaForCausalLM of model_type 'x': its classes are code beside the"
        " config, and no remote code is run; use FILE.py:NAME",
    ),
    "no model type": (
        {name: value for name, value in LLAMA.items() if name != "model_type"},
        "{file} has no model_type: add the one of transformers, e.g. 'llama'",
    ),
    "no architecture": (
        LLAMA | {"architectures": []},
        '{file} has no architectures: add the class to build, e.g. "architectures": ["LlamaForCausalLM"]',
    ),
    "an unknown model type": (
        LLAMA | {"model_type": "llamma"},
        "{file}: model_type 'llamma' is unknown to the installed transformers",
    ),
    "a class of no known kind": (
        LLAMA | {"architectures": ["LlamaForMultipleChoice"]},
        "{file}: architecture 'LlamaForMultipleChoice' is not a class of its model_type with a known step: for 'llama' there is"
        " LlamaForCausalLM, LlamaForSequenceClassification, LlamaForTokenClassification, LlamaForQuestionAnswering, LlamaModel",
    ),
    "another model's class": (
        LLAMA | {"architectures": ["GPT2LMHeadModel"]},
        "{file}: architecture 'GPT2LMHeadModel' is not a class of its model_type with a known step: for 'llama' there is"
        " LlamaForCausalLM, LlamaForSequenceClassification, LlamaForTokenClassification, LlamaForQuestionAnswering, LlamaModel",
    ),
    "inputs of another kind": (
        {"model_type": "align", "architectures": ["AlignVisionModel"]},
        "{file}: architecture 'AlignVisionModel' is not a class of its model_type with a known step: for 'align' there is AlignModel",
    ),
    "inputs that no config describes": (
        {"model_type": "perceiver", "architectures": ["PerceiverForMaskedLM"]},
        "{file}: architecture 'PerceiverForMaskedLM' needs arguments that no field of a config describes (inputs): use FILE.py:NAME,"
        " with inputs of your own",
    ),
    "a class that only generates": (
        {"model_type": "bark", "architectures": ["BarkModel"]},
        "{file}: architecture 'BarkModel' has no forward, only parts that it generates with: use FILE.py:NAME, with a step of your own",
    ),
    "a negative size": (LLAMA | {"hidden_size": -48}, "{file}: hidden_size = -48 is not a size: give an integer from 1 to 2**63 - 1"),
    "a size of zero": (LLAMA | {"vocab_size": 0}, "{file}: vocab_size = 0 is not a size: give an integer from 1 to 2**63 - 1"),
    "a fraction": (LLAMA | {"num_hidden_layers": 2.5}, "{file}: num_hidden_layers = 2.5 is not an integer"),
    "a size in words": (LLAMA | {"hidden_size": "48"}, "{file}: hidden_size = 48 is not an integer"),
    "true": (LLAMA | {"hidden_size": True}, "{file}: hidden_size = True is not an integer"),
    "a size beyond 64 bits": (
        LLAMA | {"vocab_size": 10**400},
        "{file}: vocab_size = 100000000000000000000000000000000000000… is not a size: give an integer from 1 to 2**63 - 1",
    ),
    "layers without end": (
        LLAMA | {"num_hidden_layers": 10**9},
        "{file}: num_hidden_layers = 1000000000 is more than 2,000, the most layers that are built: give fewer",
    ),
    "layers without end, of a config inside": (
        LLAMA | {"vision_config": {"depths": [2, 10**9]}},
        "{file}: vision_config.depths = 1000000000 is more than 2,000, the most layers that are built: give fewer",
    ),
    "kinds of layers without end": (
        LLAMA | {"attention_types": [[["global", "local"], 10**9]]},
        "{file}: attention_types = 1000000000 is more than 2,000, the most layers that are built: give fewer",
    ),
    "classes without end": (
        LLAMA | {"num_labels": 10**9},
        "{file}: num_labels = 1000000000 is more than 100,000, the most classes that are listed: give fewer",
    ),
    "a list without end": (LLAMA | {"layer_types": [0] * 10**6}, "{file}: layer_types has 1,000,000 entries, more than 100,000"),
    "a table without end": (LLAMA | {"x": dict.fromkeys(range(10**5 + 1))}, "{file}: x has 100,001 entries, more than 100,000"),
    "tables in tables without end": (
        LLAMA | {"x": json.loads('{"a":' * 200 + "1" + "}" * 200)},
        "{file}: x" + 20 * ".a" + " is nested more than 20 deep",
    ),
    "a size of a config inside": (
        LLAMA | {"text_config": {"hidden_size": -48}},
        "{file}: text_config.hidden_size = -48 is not a size: give an integer from 1 to 2**63 - 1",
    ),
    "a width of thirty digits": (
        LLAMA | {"hidden_size": 10**30},
        "{file}: hidden_size = 1000000000000000000000000000000 is not a size: give an integer from 1 to 2**63 - 1",
    ),
    "a number beyond 64 bits that is no size": (
        LLAMA | {"bos_token_id": -(10**30)},
        "{file}: bos_token_id = -1000000000000000000000000000000 has more than 64 bits",
    ),
    "indivisible heads": (
        GPT2 | {"n_head": 7},
        "{file}: GPT2LMHeadModel cannot be built from it: ValueError: `embed_dim` must be divisible by num_heads"
        " (got `embed_dim`: 48 and `num_heads`: 7).",
    ),
    "indivisible groups": (
        LLAMA | {"num_key_value_heads": 4},
        "{file}: h = 6 is not divisible by g = 4: this model needs h to be a multiple of g (d is hidden_size, h is num_attention_heads,"
        " g is num_key_value_heads, k is head_dim, f is intermediate_size, L is num_hidden_layers, V is vocab_size)",
    ),
    "more groups than heads": (
        LLAMA | {"num_key_value_heads": 12},
        "{file}: h = 6 is not divisible by g = 12: this model needs h to be a multiple of g (d is hidden_size, h is num_attention_heads,"
        " g is num_key_value_heads, k is head_dim, f is intermediate_size, L is num_hidden_layers, V is vocab_size)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    """The file, the cause, and where there is one the way out."""
    config, message = REFUSED[case]
    file = written(tmp_path, config)

    with pytest.raises(ConfigError, match=f"^{re.escape(message.replace('{file}', file))}$"):
        load(f"hf:{file}")


@pytest.mark.parametrize("change", [{"num_attention_heads": 7, "num_key_value_heads": 7}, {"head_dim": 7}, {"hidden_act": 3}])
def test_what_the_config_class_refuses_becomes_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    """48 is not a multiple of 7 heads, 7 is no even head width, 3 is no activation: in the library's words, which vary by version."""
    file = written(tmp_path, LLAMA | change)

    with pytest.raises(ConfigError, match=rf"^{re.escape(file)}: [^\n]+[0-9][^\n]+$"):
        load(f"hf:{file}")


def test_a_config_of_many_megabytes_is_refused(tmp_path: Path) -> None:
    """Whatever is in it: it is not parsed."""
    file = written(tmp_path, "[" * (2**23 + 1))

    with pytest.raises(ConfigError, match=rf"^cannot read the config {re.escape(file)}: it has more than 8,388,608 bytes, the most that"):
        load(f"hf:{file}")


def test_a_model_of_parts_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever field counts them: what is built is counted."""
    monkeypatch.setattr(layers, "_MOST_PARTS", 30)
    file = written(tmp_path, LLAMA)

    with pytest.raises(ConfigError) as caught:
        load(f"hf:{file}")
    assert f"{file}: the model has more than 30 modules and parameters: give fewer layers or experts" == str(caught.value)


def test_no_trial_run_takes_the_memory_that_the_config_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 10**8 positions, 48 wide, in fp32 has 19.2 GB: it is never made."""
    build, built = trials.trainable, list[int]()
    monkeypatch.setattr(trials, "trainable", lambda source, config: built.append(config.n_positions) or build(source, config))
    load(f"hf:{written(tmp_path, GPT2)}")
    assert {64} == {*built}
    built.clear()

    assert 10**8 == load(f"hf:{written(tmp_path, GPT2 | {'n_positions': 10**8})}").dims["C"].default
    assert [] == built


def test_kinds_of_layers_that_repeat_without_end_are_not_written_out() -> None:
    """10**9 times two kinds, in a field of any name; twice two of them are the four layers that there are."""
    assert () == layers._multiplied_out([[["global", "local"], 10**9]], 4)
    assert ("global", "local", "global", "local") == layers._multiplied_out([[["global", "local"], 2]], 4)


def test_a_missing_config_is_refused(tmp_path: Path) -> None:
    """A name of the hub is no path, and nothing is downloaded."""
    with pytest.raises(ConfigError, match=r"^no config at openai-community/gpt2: give the path of a config.json or of its folder"):
        load("hf:openai-community/gpt2")
    with pytest.raises(ConfigError, match=r"\(nothing is downloaded\)$"):
        load(f"hf:{tmp_path}")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b'{"vocab_size": ' + b"9" * 5000 + b"}"])
def test_bytes_that_are_no_config_are_refused(content: bytes, tmp_path: Path) -> None:
    """Another encoding, brackets without end, and a number past what Python reads."""
    file = tmp_path / "config.json"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=r"^[^\n]*cannot be read as JSON: [^\n]+$"):
        load(f"hf:{file}")


def test_of_a_long_message_of_the_library_whole_sentences_are_shown() -> None:
    """A sentence that is longer than a line is cut, and shows that it was."""
    first = "It requires timm."

    assert first == sentences_of(ImportError(f"{first} Then restart {'the runtime ' * 20}."))
    assert f"{'x' * 199}…" == sentences_of(ImportError("x" * 201))
    assert f"{first} Install it." == sentences_of(ImportError(f"{first}\n  Install it."))


def test_a_missing_extra_is_refused_with_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers is an extra."""
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(MissingExtraError, match=r"^hf: models need transformers, which is not installed: pip install 'napkin\[hf\]'$"):
        load(f"hf:{written(tmp_path, LLAMA)}")


def test_a_malformed_config_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    """Bad input costs no seconds of start-up."""
    file = written(tmp_path, "{")
    code = (
        "import sys, calc\n"
        f"try: calc.load('hf:{file}')\n"
        "except calc.NapkinError: assert 'torch' not in sys.modules\n"
        "else: raise AssertionError('accepted')"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
