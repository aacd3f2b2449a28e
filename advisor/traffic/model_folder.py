"""What a model's folder says of it: shape, tokenizer, chat template. Files are handed in."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from advisor.errors import InvalidInput
from advisor.llm import ModelShape, read_config
from advisor.traffic.tokens import ChatTokenizer

# The bytes of a file of the folder by its name; None where there is none.
ReadFile: TypeAlias = Callable[[str], bytes | None]
_NO_TOKENIZER = "the folder has no tokenizer.json (a fast tokenizer is needed)"
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A model as traffic needs it: its shape, and how it turns requests into tokens.

    `tokenizer_json` is None in a folder that has a shape only: enough for traffic of lengths.
    """

    shape: ModelShape
    tokenizer_json: bytes | None
    special: Mapping[str, str]
    chat_template: str | None

    def tokenizer(self) -> ChatTokenizer:
        """Raises `InvalidInput` for a tokenizer or a template that is missing or broken."""
        if self.tokenizer_json is None:
            raise InvalidInput("model", _NO_TOKENIZER)
        return ChatTokenizer(self.tokenizer_json, self.chat_template, self.special)

    def counting(self) -> ChatTokenizer | None:
        """The tokenizer; None where the folder has none, so that the file's own counts stand."""
        return None if self.tokenizer_json is None else self.tokenizer()


def read_folder(
    read: ReadFile, *, chat_template: str | None = None, shape_only: bool = False
) -> ModelFolder:
    """The model whose files `read` gives; `chat_template` overrides the model's own.

    With `shape_only` a folder without tokenizer is taken, until somebody asks for it. Raises
    `InvalidInput` that names a missing or broken file, `UnsupportedArchitecture` for a model whose
    arithmetic is not described.
    """
    shape = read_config(_json_object(read, "config.json"))
    tokenizer_json = read("tokenizer.json")
    if shape_only and tokenizer_json is None:
        return ModelFolder(shape=shape, tokenizer_json=None, special={}, chat_template=None)
    settings = _json_object(read, "tokenizer_config.json")
    if tokenizer_json is None:
        raise InvalidInput("model", _NO_TOKENIZER)
    return ModelFolder(
        shape=shape,
        tokenizer_json=tokenizer_json,
        special=special_tokens(settings),
        chat_template=chat_template or own_template(read, settings),
    )


def special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens of a ``tokenizer_config.json``, written there as text or as an object."""
    found: dict[str, str] = {}
    for name in SPECIAL_TOKENS:
        value = settings.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def own_template(read: ReadFile, settings: Mapping[str, Any]) -> str | None:
    """The model's chat template: ``chat_template.jinja``, else the one in the tokenizer's config.

    Of several named ones it is the one called "default"; None for a model without a template.
    """
    file = read("chat_template.jinja")
    if file is not None:
        return file.decode()
    held = settings.get("chat_template")
    if isinstance(held, list):
        named = {item.get("name"): item.get("template") for item in held if isinstance(item, dict)}
        held = named.get("default")
    return held if isinstance(held, str) else None


def _json_object(read: ReadFile, name: str) -> dict[str, Any]:
    body = read(name)
    if body is None:
        raise InvalidInput("model", f"the folder has no {name}")
    try:
        held = json.loads(body)
    except ValueError:
        raise InvalidInput("model", f"{name} is not valid JSON") from None
    if not isinstance(held, dict):
        raise InvalidInput("model", f"{name} is not a JSON object")
    return held
