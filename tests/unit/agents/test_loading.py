"""Models of strangers: what is not a whole model in safetensors is refused, and none of their code runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file

from hacrl.agents.errors import AgentError
from hacrl.agents.loading import load_model, load_tokenizer
from helpers_train import make_agent

CPU = torch.device("cpu")
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_agent(tmp_path_factory.mktemp("models") / "good", seed=1)


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


@pytest.fixture
def adapter(model: Path, tmp_path: Path) -> Path:
    """A LoRA adapter for the model."""
    peft = pytest.importorskip("peft")
    network, tokenizer = load_model(model, CPU, torch.float32)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(network, config).save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def load(directory: Path | str) -> Any:
    return load_model(directory, CPU, torch.float32)[0]


def change_json(path: Path, **changes: object) -> None:
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def test_whole_models_and_adapters_load(model: Path, adapter: Path) -> None:
    first = load(model).state_dict()
    stored = load_file(model / WEIGHTS)
    assert stored
    assert all(torch.equal(first[name], tensor) for name, tensor in stored.items())
    assert load(adapter).peft_config["default"].r == 2
    assert len(load_tokenizer(model)) == len(load_tokenizer(adapter)) > 10


def test_shards_and_tied_weights_are_fine(model: Path) -> None:
    network = load(model)
    expected = network.state_dict()
    (model / WEIGHTS).unlink()
    network.save_pretrained(model, max_shard_size="20KB")
    assert len(list(model.glob("*.safetensors"))) > 1
    assert all(torch.equal(tensor, expected[name]) for name, tensor in load(model).state_dict().items())
    network.config.tie_word_embeddings = True
    network.tie_weights()
    for path in model.glob("*.safetensors*"):
        path.unlink()
    network.save_pretrained(model)
    assert "lm_head.weight" not in load_file(model / WEIGHTS)
    tied = load(model)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight


def test_missing_unexpected_and_misshapen_tensors_are_named(model: Path) -> None:
    def damage(tensors: dict[str, torch.Tensor]) -> None:
        del tensors["model.norm.weight"]
        tensors["model.extra.weight"] = torch.zeros(3)
        tensors["lm_head.weight"] = torch.zeros(2, 32)

    change_weights(model / WEIGHTS, damage)
    with pytest.raises(AgentError) as error:
        load(model)
    for part in (
        str(model),
        "missing: model.norm.weight",
        "unexpected: model.extra.weight",
        "another shape: lm_head.weight ([2, 32] in the file, [100, 32] in the model)",
    ):
        assert part in str(error.value)
    change_json(model / "config.json", num_hidden_layers=30)
    with pytest.raises(AgentError, match=r"missing: model\.layers\.10\..* and \d+ more"):
        load(model)


def test_missing_and_unexpected_tensors_of_an_adapter_are_named(adapter: Path) -> None:
    weights = adapter / "adapter_model.safetensors"
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    change_weights(weights, lambda tensors: tensors.update(extra=tensors.pop(name)))
    with pytest.raises(AgentError, match=rf"missing: {name}; unexpected: extra"):
        load(adapter)
    change_weights(weights, lambda tensors: tensors.update({name: torch.zeros(7, 7)}))
    with pytest.raises(
        AgentError, match=rf"cannot load '{adapter}'.*size mismatch.*layers\.0\.self_attn\.q_proj"
    ):
        load(adapter)


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, planted: Path) -> None:
        self.planted = str(planted)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.planted, "w")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that an attack makes; no pickle may be opened at all."""
    path = tmp_path / "planted"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        pickle.loads(pickle.dumps(Evil(path))).close()
    assert path.exists()  # the attack works
    path.unlink()

    def reached(*_: object, **__: object) -> None:
        raise SystemExit("a pickle was opened")

    monkeypatch.setattr(torch, "load", reached)
    return path


def write_pickle(path: Path, planted: Path) -> None:
    path.write_bytes(pickle.dumps({"lm_head.weight": Evil(planted)}))


def code(path: Path, planted: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"open({str(planted)!r}, 'w')\n")


def only_pickle(model: Path, adapter: Path, planted: Path) -> Path:
    (model / WEIGHTS).unlink()
    write_pickle(model / "pytorch_model.bin", planted)
    return model


def index_of(name: str) -> Callable[[Path, Path, Path], Path]:
    def attack(model: Path, adapter: Path, planted: Path) -> Path:
        (model / WEIGHTS).rename(model.parent / "outside.safetensors")
        write_pickle(model / "shard.bin", planted)
        (model / "a").mkdir()
        change_json(model / f"{WEIGHTS}.index.json", metadata={}, weight_map={"lm_head.weight": name})
        return model

    return attack


def pickle_by_another_name(model: Path, adapter: Path, planted: Path) -> Path:
    write_pickle(model / WEIGHTS, planted)
    return model


def weights_named_in_the_config(model: Path, adapter: Path, planted: Path) -> Path:
    write_pickle(model / "adapter_model.bin", planted)
    change_json(model / "config.json", transformers_weights="adapter_model.bin")
    return model


def pickled_adapter(model: Path, adapter: Path, planted: Path) -> Path:
    (adapter / "adapter_model.safetensors").unlink()
    write_pickle(adapter / "adapter_model.bin", planted)
    return adapter


def pickled_adapter_in_a_model(model: Path, adapter: Path, planted: Path) -> Path:
    shutil.copy(adapter / "adapter_config.json", model)
    write_pickle(model / "adapter_model.bin", planted)
    return model


def pickled_base(model: Path, adapter: Path, planted: Path) -> Path:
    only_pickle(model, adapter, planted)
    return adapter


def base_that_is_an_adapter(model: Path, adapter: Path, planted: Path) -> Path:
    pickled_adapter_in_a_model(model, adapter, planted)
    return adapter


def adapter_of_itself(model: Path, adapter: Path, planted: Path) -> Path:
    change_json(adapter / "adapter_config.json", base_model_name_or_path=str(adapter))
    return adapter


def adapter_setting(**changes: object) -> Callable[[Path, Path, Path], Path]:
    def attack(model: Path, adapter: Path, planted: Path) -> Path:
        code(model.parent / "evil.py", planted)
        change_json(adapter / "adapter_config.json", **changes)
        return adapter

    return attack


def code_of_the_model(model: Path, adapter: Path, planted: Path) -> Path:
    code(model / "evil.py", planted)
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    change_json(model / "config.json", model_type="evil", auto_map=auto_map)
    return model


def code_from_the_hub(model: Path, adapter: Path, planted: Path) -> Path:
    change_json(model / "config.json", _attn_implementation="someone/kernel")
    return model


REFUSED = {
    "only a pickle": (only_pickle, r"only as pickle \(pytorch_model\.bin\)"),
    "index of a pickle": (index_of("shard.bin"), "'lm_head.weight' are said to be in 'shard.bin'"),
    "index of the parent": (index_of("../outside.safetensors"), r"in '\.\./outside\.safetensors'"),
    "index of a directory": (index_of("a/../../outside.safetensors"), "expected the name of"),
    "index of the root": (index_of("/etc/x.safetensors"), "in '/etc/x.safetensors'"),
    "pickle by another name": (pickle_by_another_name, r"model\.safetensors is not a safetensors file"),
    "weights named in the config": (weights_named_in_the_config, r"config\.json: transformers_weights"),
    "pickled adapter": (pickled_adapter, r"only as pickle \(adapter_model\.bin\)"),
    "pickled adapter in a model": (pickled_adapter_in_a_model, r"only as pickle \(adapter_model\.bin\)"),
    "pickled base": (pickled_base, r"only as pickle \(pytorch_model\.bin\)"),
    "base that is an adapter": (base_that_is_an_adapter, "is an adapter itself"),
    "adapter of itself": (adapter_of_itself, "is an adapter itself"),
    "module of an adapter": (
        adapter_setting(megatron_config={"a": 1}, megatron_core="evil"),
        "megatron_config is not supported",
    ),
    "class of an adapter": (
        adapter_setting(auto_mapping={"base_model_class": "x", "parent_library": "evil"}),
        "auto_mapping is not supported",
    ),
    "tokenizer of an adapter": (
        adapter_setting(peft_type="PROMPT_TUNING", tokenizer_kwargs={"trust_remote_code": True}),
        "only LoRA adapters are read, this is 'PROMPT_TUNING'",
    ),
    "code of the model": (code_of_the_model, "trust_remote_code"),
    "code from the hub": (code_from_the_hub, "_attn_implementation asks for code from the hub"),
}


@pytest.mark.parametrize("route", REFUSED)
def test_every_way_to_a_pickle_or_to_code_is_refused(
    route: str, model: Path, adapter: Path, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, message = REFUSED[route]
    monkeypatch.chdir(model.parent)
    monkeypatch.syspath_prepend(str(model.parent))
    with pytest.raises(AgentError, match=message):
        load(attack(model, adapter, planted))
    assert not planted.exists()


def test_code_beside_a_model_that_needs_none_is_passed_by(model: Path, planted: Path) -> None:
    for name in ("evil.py", "tokenization_evil.py", "custom_generate/generate.py"):
        code(model / name, planted)
    change_json(model / "config.json", auto_map={"AutoModelForCausalLM": "evil.Model"})
    change_json(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.T", None]})
    change_json(
        model / "generation_config.json", auto_map={"GenerationConfig": "evil.G"}, custom_generate="."
    )
    write_pickle(model / "pytorch_model.bin", planted)
    write_pickle(model / "training_args.bin", planted)
    load(model)
    assert not planted.exists()


@pytest.fixture
def hub(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """Put a directory into the hub's cache, as a download would; returns its id."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def publish(directory: Path) -> str:
        repository = tmp_path / "cache" / "models--someone--thing"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("0" * 40)
        shutil.copytree(directory, repository / "snapshots" / ("0" * 40))
        return "someone/thing"

    return publish


def test_a_model_of_the_hub_loads_from_the_cache(model: Path, hub: Callable[[Path], str]) -> None:
    assert torch.equal(load(hub(model)).lm_head.weight, load(model).lm_head.weight)
    with pytest.raises(AgentError, match="cannot get 'someone/other' from the Hugging Face hub"):
        load("someone/other")


@pytest.mark.parametrize(
    "route", ["only a pickle", "index of a pickle", "index of the parent", "pickled adapter"]
)
def test_a_model_of_the_hub_is_checked_alike(
    route: str, model: Path, adapter: Path, planted: Path, hub: Callable[[Path], str]
) -> None:
    attack, message = REFUSED[route]
    with pytest.raises(AgentError, match=message):
        load(hub(attack(model, adapter, planted)))
    assert not planted.exists()


STRANGE: dict[str, Any] = {
    "no layers": {"num_hidden_layers": 10**9},
    "too large": {"vocab_size": 10**11},
    "text": {"hidden_size": "a"},
    "no heads": {"num_attention_heads": 0},
    "negative": {"hidden_size": -32},
    "list": {"rope_parameters": [1]},
    "unknown": {"model_type": "unheard-of"},
    "no type": {"model_type": None},
    "activation": {"hidden_act": "x"},
}


@pytest.mark.parametrize("how", STRANGE)
def test_strange_configurations_are_named(model: Path, how: str) -> None:
    change_json(model / "config.json", **STRANGE[how])
    with pytest.raises(AgentError, match=str(model)):
        load(model)


@pytest.mark.parametrize("content", [b"", b"\0\0", b"[]", b"{", b"[" * 100_000, b'{"a": NaN}', b"\xff"])
@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "adapter_config.json"]
)
def test_files_that_are_not_json_are_named(model: Path, file: str, content: bytes) -> None:
    (model / file).write_bytes(content)
    with pytest.raises(AgentError, match=str(model)):
        load(model)


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", WEIGHTS, "generation_config.json", "chat_template.jinja"]
)
def test_a_pipe_in_place_of_a_file_does_not_hang(model: Path, file: str) -> None:
    (model / file).unlink(missing_ok=True)
    os.mkfifo(model / file)
    with pytest.raises(AgentError, match=f"{file} is not a regular file"):
        load(model)
