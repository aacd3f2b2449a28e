"""Model folders: what is allowed, what is read of them, what names them."""

import json
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, NotAllowed, UnsupportedArchitecture
from db.tokenizer import unpack_tokenizer
from probes.scripts import demo_model
from probes.targets import (
    allowed_folder,
    inspect_model,
    model_digest,
    refuse_escapes,
)
from tests.fakes.agent_site import write_model


def test_a_folder_outside_the_allowed_roots_is_refused(tmp_path: Path) -> None:
    """Also one that a link inside a root leads to, and one that only shares a prefix."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models-private").mkdir()
    (tmp_path / "models" / "link").symlink_to(tmp_path / "models-private")
    roots = [tmp_path / "models"]
    refused = [tmp_path / "models-private", tmp_path / "models" / "link", tmp_path]

    for folder in refused:
        with pytest.raises(NotAllowed):
            allowed_folder(str(folder), roots)


def test_dots_do_not_lead_out_of_a_root(tmp_path: Path) -> None:
    """The path is resolved before it is compared."""
    (tmp_path / "models").mkdir()

    with pytest.raises(NotAllowed):
        allowed_folder(str(tmp_path / "models" / ".." / "other"), [tmp_path / "models"])


def test_a_relative_model_is_refused(tmp_path: Path) -> None:
    """A hub id is not a folder."""
    with pytest.raises(InvalidInput):
        allowed_folder("org/model", [tmp_path])


def test_a_file_that_links_out_of_the_roots_is_refused(tmp_path: Path) -> None:
    """A link to another folder of the same root is fine, as hub caches have them."""
    root = tmp_path / "models"
    folder = write_model(root / "tiny")
    (root / "blob").write_bytes(b"weights")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(root / "blob")
    refuse_escapes(folder, [root])
    (tmp_path / "secret.json").write_text("{}")
    (folder / "secret.json").symlink_to(tmp_path / "secret.json")

    with pytest.raises(NotAllowed):
        refuse_escapes(folder, [root])


def test_the_digest_is_the_one_that_the_demo_script_prints(tmp_path: Path) -> None:
    """One algorithm, two programs: agent and script name a model the same."""
    folder = write_model(tmp_path / "tiny")

    assert model_digest(folder) == demo_model.digest(folder)


def test_any_changed_byte_changes_the_digest(tmp_path: Path) -> None:
    """Weights, tokenizer and template are all part of the model."""
    folder = write_model(tmp_path / "tiny")
    digests = {model_digest(folder)}
    for name in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "config.json"):
        with (folder / name).open("ab") as stream:
            stream.write(b" ")
        digests.add(model_digest(folder))

    assert len(digests) == 5


def test_an_inspection_holds_shape_and_tokenizer(tmp_path: Path) -> None:
    """What was packed comes out again."""
    folder = write_model(tmp_path / "tiny")

    found = inspect_model(folder, chat_template=None)
    tokenizer_json, special = unpack_tokenizer(found.tokenizer)

    assert found.shape.num_layers == 2
    assert tokenizer_json == (folder / "tokenizer.json").read_bytes()
    assert special == {"eos_token": "</s>"}
    assert found.chat_template == (folder / "chat_template.jinja").read_text()


def test_the_targets_own_template_comes_first(tmp_path: Path) -> None:
    """A functional setting overrides the model's template and gives another template digest."""
    folder = write_model(tmp_path / "tiny")
    own = inspect_model(folder, chat_template=None)
    other = inspect_model(folder, chat_template="{{ messages[0]['content'] }}")

    assert other.chat_template == "{{ messages[0]['content'] }}"
    assert own.template_digest != other.template_digest
    assert own.tokenizer_digest == other.tokenizer_digest


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """The message says which file the folder lacks."""
    folder = write_model(tmp_path / "tiny")
    (folder / name).unlink()

    with pytest.raises(InvalidInput, match=name):
        inspect_model(folder, chat_template=None)


def test_broken_json_and_strange_models_are_told_apart(tmp_path: Path) -> None:
    """Neither is a crash."""
    folder = write_model(tmp_path / "tiny")
    (folder / "config.json").write_text(json.dumps({"architectures": ["RwkvForCausalLM"]}))
    with pytest.raises(UnsupportedArchitecture):
        inspect_model(folder, chat_template=None)
    (folder / "config.json").write_text("{")

    with pytest.raises(InvalidInput, match="not valid JSON"):
        inspect_model(folder, chat_template=None)
