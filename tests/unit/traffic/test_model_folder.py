"""What is read of a model's folder, from files handed in."""

import json
from collections.abc import Mapping

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.model_folder import own_template, read_folder, special_tokens
from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 300,
}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer_config.json": json.dumps({"eos_token": "</s>"}).encode(),
    "tokenizer.json": byte_tokenizer_json(),
    "chat_template.jinja": PLAIN_TEMPLATE.encode(),
}


def test_a_folder_gives_shape_and_tokenizer() -> None:
    """The template of the caller comes before the folder's own."""
    own = read_folder(FILES.get)
    other = read_folder(FILES.get, chat_template="{{ messages }}")

    assert (own.shape.num_layers, own.special) == (2, {"eos_token": "</s>"})
    assert (own.chat_template, other.chat_template) == (PLAIN_TEMPLATE, "{{ messages }}")
    assert own.tokenizer().template_digest != other.tokenizer().template_digest


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_missing_file_is_named(name: str) -> None:
    """So that a user knows what to copy."""
    held = {file: body for file, body in FILES.items() if file != name}

    with pytest.raises(InvalidInput, match=name):
        read_folder(held.get)


@pytest.mark.parametrize("body, reason", [(b"{", "not valid JSON"), (b"[]", "not a JSON object")])
def test_a_broken_file_is_named(body: bytes, reason: str) -> None:
    """With what is wrong about it, without its text."""
    with pytest.raises(InvalidInput, match=reason):
        read_folder({**FILES, "config.json": body}.get)


def test_special_tokens_are_text_or_objects() -> None:
    """Both forms occur in tokenizer configurations; a null is not a token."""
    settings = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "model_max_length": 10,
    }

    assert special_tokens(settings) == {"bos_token": "<s>", "eos_token": "</s>"}


def test_of_several_named_templates_the_default_one_is_used() -> None:
    """A model without any has None."""
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]

    nothing: Mapping[str, bytes] = {}

    assert own_template(nothing.get, {"chat_template": named}) == "D"
    assert own_template(nothing.get, {"chat_template": "plain"}) == "plain"
    assert own_template(nothing.get, {}) is None


def test_a_folder_with_a_shape_only_is_enough_for_traffic_of_lengths() -> None:
    """The offline commands take it; whoever needs the tokenizer is told what is missing."""
    bare = {"config.json": FILES["config.json"]}

    found = read_folder(bare.get, shape_only=True)

    assert found.counting() is None
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        found.tokenizer()
    with pytest.raises(InvalidInput, match="tokenizer"):
        read_folder(bare.get)
