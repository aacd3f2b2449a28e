"""Look at the model of a target: is it allowed, what is its shape, how does it tokenise."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput, NotAllowed
from advisor.llm import ModelShape, read_config
from advisor.traffic.tokens import ChatTokenizer
from db.tokenizer import pack_tokenizer

DEMO = "demo"
MODEL_SUFFIXES = frozenset({".json", ".safetensors", ".jinja", ".txt", ".model"})
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a model folder holds; `tokenizer` is the stored form (`db.tokenizer`)."""

    path: Path
    digest: str
    shape: ModelShape
    tokenizer: bytes
    tokenizer_digest: str
    chat_template: str | None
    template_digest: str


def allowed_folder(model: str, roots: Sequence[Path]) -> Path:
    """The real folder of `model`, which must lie under one of the allowed `roots`.

    Links are resolved first, so a link inside a root that leads out of it is refused.
    """
    path = Path(model)
    if not path.is_absolute():
        raise InvalidInput("model", f"{model!r} is neither an absolute path nor the word {DEMO!r}")
    folder = path.resolve()
    if not any(folder.is_relative_to(root) for root in roots):
        raise NotAllowed(
            f"read the model folder {model!r}", "its root must be listed in ROOFTUNE_MODEL_ROOTS"
        )
    if not folder.is_dir():
        raise InvalidInput("model", f"{model!r} is not a folder")
    return folder


def model_files(folder: Path) -> list[Path]:
    """Files that make the model (configuration, tokenizer, weights), sorted by name."""
    return sorted(
        file for file in folder.rglob("*") if file.suffix in MODEL_SUFFIXES and file.is_file()
    )


def refuse_escapes(folder: Path, roots: Sequence[Path]) -> None:
    """Refuse a folder one of whose files is a link that leads out of the allowed roots."""
    for file in model_files(folder):
        real = file.resolve()
        if not any(real.is_relative_to(root) for root in (*roots, folder)):
            raise NotAllowed(
                f"read {file.relative_to(folder).as_posix()!r} of the model",
                "it is a link that leads out of ROOFTUNE_MODEL_ROOTS",
            )


def model_digest(folder: Path) -> str:
    """SHA-256 over each model file's relative name, size and content, in order of name.

    The same figure that `scripts/demo_model.py` prints.
    """
    total = hashlib.sha256()
    for file in model_files(folder):
        total.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                total.update(chunk)
    return total.hexdigest()


def refuse_changed(folder: Path, digest: str | None) -> None:
    """Refuse a model whose files are not those that were inspected: evidence names its digest."""
    if not folder.is_dir() or model_digest(folder) != digest:
        raise InvalidInput("model", "its files are not the ones that were inspected")


def inspect_model(folder: Path, *, chat_template: str | None) -> Inspection:
    """Read everything that Rooftune needs of a model; `chat_template` overrides the model's own.

    Raises `InvalidInput` for a missing or broken file, `UnsupportedArchitecture` for a model
    whose arithmetic is not described.
    """
    shape = read_config(_json_file(folder, "config.json"))
    settings = _json_file(folder, "tokenizer_config.json")
    tokenizer_file = folder / "tokenizer.json"
    if not tokenizer_file.is_file():
        raise InvalidInput("model", "the folder has no tokenizer.json (a fast tokenizer is needed)")
    if not any(file.suffix == ".safetensors" for file in model_files(folder)):
        raise InvalidInput("model", "the folder has no .safetensors weights")
    special = special_tokens(settings)
    template = chat_template or own_template(folder, settings)
    tokenizer_json = tokenizer_file.read_bytes()
    tokenizer = ChatTokenizer(tokenizer_json, template, special)
    return Inspection(
        path=folder,
        digest=model_digest(folder),
        shape=shape,
        tokenizer=pack_tokenizer(tokenizer_json, special),
        tokenizer_digest=tokenizer.tokenizer_digest,
        chat_template=template,
        template_digest=tokenizer.template_digest,
    )


def _json_file(folder: Path, name: str) -> dict[str, Any]:
    file = folder / name
    if not file.is_file():
        raise InvalidInput("model", f"the folder has no {name}")
    try:
        held = json.loads(file.read_bytes())
    except ValueError:
        raise InvalidInput("model", f"{name} is not valid JSON") from None
    if not isinstance(held, dict):
        raise InvalidInput("model", f"{name} is not a JSON object")
    return held


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


def own_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The model's chat template: ``chat_template.jinja``, else the one in the tokenizer's config.

    Of several named ones it is the one called "default"; None for a model without a template.
    """
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    held = settings.get("chat_template")
    if isinstance(held, list):
        named = {item.get("name"): item.get("template") for item in held if isinstance(item, dict)}
        held = named.get("default")
    return held if isinstance(held, str) else None
