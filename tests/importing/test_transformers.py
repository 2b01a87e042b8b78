"""Hugging Face folders: plain tensors in and out, any length, and nothing of theirs executed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from edgesdk.artifacts import Dim, Model, parse_input
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing import ImportOptions, import_model, locate

TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert(**more: Any) -> Any:
    return transformers.BertConfig(vocab_size=99, max_position_embeddings=40, **TINY, **more)


def saved(folder: Path, cls: Any, config: Any) -> Any:
    torch.manual_seed(0)
    module = cls(config).eval()
    module.save_pretrained(folder)
    return module


def load(folder: Path) -> Model:
    return import_model(locate(str(folder)))


def run(model: Model, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    assert model.program is not None
    values = torch.utils._pytree.tree_leaves(model.program.module()(*inputs))
    names = [spec.name for spec in model.signature.outputs]
    return {name: value.detach() for name, value in zip(names, values, strict=True)}


def words(length: int, padding: int = 0) -> dict[str, torch.Tensor]:
    mask = torch.ones(1, length, dtype=torch.long)
    if padding:
        mask[:, -padding:] = 0
    return {"input_ids": torch.randint(0, 99, (1, length)), "attention_mask": mask,
            "token_type_ids": torch.zeros(1, length, dtype=torch.long)}  # fmt: skip


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("hf") / "bert-tiny"
    config = bert(id2label={0: "bad", 1: "good", 2: "so-so"}, label2id={"bad": 0, "good": 1, "so-so": 2})
    module = saved(folder, transformers.BertForSequenceClassification, config)
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A model\n")
    return folder, module


def test_pitfall_e_19_a_text_model_takes_plain_tensors_of_any_length(classifier: tuple[Path, Any]) -> None:
    folder, module = classifier
    model = load(folder)
    assert [spec.name for spec in model.signature.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    lengths = [spec.shape[1] for spec in model.signature.inputs if spec.shape]
    assert all(isinstance(size, Dim) and (size.min, size.max) == (1, 40) for size in lengths)
    assert [spec.name for spec in model.signature.outputs] == ["logits"]
    for length, padding in ((1, 0), (2, 0), (9, 3), (40, 0)):
        given = words(length, padding)
        with torch.no_grad():
            wanted = module(**given).logits
        torch.testing.assert_close(run(model, *given.values())["logits"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", ["1,16", "1..4,16", "2,8..40"])
def test_an_input_that_nobody_names_has_the_sizes_of_the_named_ones(classifier: tuple[Path, Any], size: str) -> None:
    folder, module = classifier
    named = tuple(parse_input(f"{name}=int64[{size}]") for name in ("input_ids", "attention_mask"))
    model = import_model(locate(str(folder)), ImportOptions(named))
    shapes = {str(spec).partition("=")[2] for spec in model.signature.inputs}
    assert [spec.name for spec in model.signature.inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    assert len(shapes) == 1, "all three go by one size"
    given = {
        name: value.expand(2 if size[0] == "2" else 1, -1) for name, value in words(16 if size[0] == "1" else 8).items()
    }
    with torch.no_grad():
        wanted = module(**given).logits
    torch.testing.assert_close(run(model, *given.values())["logits"], wanted, rtol=1e-4, atol=1e-5)


def test_labels_task_licence_and_checksum_come_from_the_folder(classifier: tuple[Path, Any]) -> None:
    folder, _ = classifier
    model = load(folder)
    assert model.labels == ("bad", "good", "so-so")
    assert (model.task, model.license) == ("text-classification", "mit")
    located = locate(str(folder))
    assert located.source.name == "bert-tiny" and located.source.format == "transformers"
    assert located.files is not None and {p.name for p in located.files} >= {"config.json", "model.safetensors"}
    before = located.source.sha256
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "note": 1}))
    assert locate(str(folder)).source.sha256 != before


def test_padding_does_not_change_the_answer(classifier: tuple[Path, Any]) -> None:
    model = load(classifier[0])
    given = words(6)
    alone = run(model, *given.values())["logits"]
    padded = {name: torch.cat([value, torch.zeros(1, 4, dtype=torch.long)], 1) for name, value in given.items()}
    torch.testing.assert_close(run(model, *padded.values())["logits"], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("cls", "config", "outputs"),
    [
        (transformers.BertModel, bert(), ["last_hidden_state", "pooler_output"]),
        (transformers.BertForQuestionAnswering, bert(), ["start_logits", "end_logits"]),
        (transformers.DistilBertModel,
         transformers.DistilBertConfig(vocab_size=99, dim=32, n_layers=1, n_heads=2, hidden_dim=64), ["last_hidden_state"]),
        (transformers.RobertaForTokenClassification,
         transformers.RobertaConfig(vocab_size=99, max_position_embeddings=34, **TINY), ["logits"]),
        (transformers.GPT2LMHeadModel,
         transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=1, n_head=2, n_positions=16), ["logits"]),
    ],
)  # fmt: skip
def test_pitfall_e_19_dataclass_outputs_become_named_tensors(
    tmp_path: Path, cls: Any, config: Any, outputs: list[str]
) -> None:
    module = saved(tmp_path / "m", cls, config)
    model = load(tmp_path / "m")
    assert [spec.name for spec in model.signature.outputs] == outputs
    given = {name: value for name, value in words(7).items() if name in {s.name for s in model.signature.inputs}}
    with torch.no_grad():
        wanted = module(**given)
    found = run(model, *given.values())
    for name in outputs:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-4, atol=1e-5)


def test_pitfall_e_19_an_image_model_has_its_configurations_size(tmp_path: Path) -> None:
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=4, **TINY)
    module = saved(tmp_path / "vit", transformers.ViTForImageClassification, config)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    model = load(tmp_path / "vit")
    (image,) = model.signature.inputs
    assert (image.name, image.shape) == ("pixel_values", (1, 3, 32, 32))
    assert model.preprocess is not None and model.preprocess.fits(image) is None
    picture = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(run(model, picture)["logits"], module(picture).logits, rtol=1e-4, atol=1e-5)


def test_a_pooler_without_weights_is_left_out_not_random(tmp_path: Path) -> None:
    """Sentence encoders are saved without it."""
    module = transformers.BertModel(bert(), add_pooling_layer=False).eval()
    module.save_pretrained(tmp_path / "m")
    model = load(tmp_path / "m")
    assert [spec.name for spec in model.signature.outputs] == ["last_hidden_state"]


def test_a_missing_weight_is_an_error_not_a_random_one(tmp_path: Path) -> None:
    saved(tmp_path / "m", transformers.BertModel, bert())
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"lacks weights.*classifier") as caught:
        load(tmp_path / "m")
    assert caught.value.code == "weights_mismatch"


def test_an_architecture_of_a_folder_takes_a_state_dict(classifier: tuple[Path, Any], tmp_path: Path) -> None:
    folder, module = classifier
    torch.save(module.state_dict(), tmp_path / "w.pth")
    options = ImportOptions(arch=f"transformers:{folder}")
    model = import_model(locate(str(tmp_path / "w.pth"), options), options)
    given = words(5)
    with torch.no_grad():
        wanted = module(**given).logits
    torch.testing.assert_close(run(model, *given.values())["logits"], wanted, rtol=1e-4, atol=1e-5)
    assert model.source.format == "state_dict"


def test_an_encoder_with_a_decoder_is_refused_with_a_way_out(tmp_path: Path) -> None:
    config = transformers.T5Config(vocab_size=99, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    saved(tmp_path / "t5", transformers.T5ForConditionalGeneration, config)
    with pytest.raises(UnsupportedError, match="encoder and a decoder") as caught:
        load(tmp_path / "t5")
    assert "get_encoder" in caught.value.fix


# --- what folders are wrong with --------------------------------------------------------------------------------------


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


def test_pitfall_s_01_a_pickle_as_weights_of_a_folder_runs_nothing(tmp_path: Path) -> None:
    folder, marker = tmp_path / "m", tmp_path / "ran"
    module = saved(folder, transformers.BertModel, bert())
    (folder / "model.safetensors").unlink()
    torch.save({**module.state_dict(), "x": Evil(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(InputError):
        load(folder)
    assert not marker.exists()
    torch.save(module.state_dict(), folder / "pytorch_model.bin")
    assert load(folder).program is not None


def test_pitfall_s_01_code_in_a_folder_is_not_run(tmp_path: Path) -> None:
    folder, marker = tmp_path / "m", tmp_path / "ran"
    saved(folder, transformers.BertModel, bert())
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="mine", auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    with pytest.raises(InputError, match="code that comes with the model|can't be loaded"):
        load(folder)
    assert not marker.exists()


def test_faulty_folders_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    saved(folder, transformers.BertModel, bert())
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(InputError, match="damaged"):
        load(folder)
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n")
    with pytest.raises(InputError, match="Git-LFS pointer"):
        load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights"):
        load(folder)
    (folder / "model.safetensors").write_bytes(whole)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        load(folder)
    (folder / "config.json").write_text('{"model_type": "no_such_model"}')
    with pytest.raises(InputError, match="can't be loaded by transformers"):
        load(folder)
