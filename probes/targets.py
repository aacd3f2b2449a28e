"""Look at the model of a target: is it allowed, what is its shape, how does it tokenise."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InvalidInput, NotAllowed
from advisor.llm import ModelShape
from advisor.traffic.model_folder import ReadFile, read_folder
from db.tables import TargetRow
from db.tokenizer import pack_tokenizer

DEMO = "demo"
MODEL_SUFFIXES = frozenset({".json", ".safetensors", ".jinja", ".txt", ".model"})
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


def folder_here(target: TargetRow, demo: Path) -> Path:
    """Where the inspected model of `target` lies on this host.

    The target names the path of the host that inspected it; each host builds the demo model in a
    place of its own (`demo`). Whether it is the same model its digest says (`refuse_changed`).
    """
    inspected = Path(str(target.model_path))
    return demo if target.model == DEMO and not inspected.is_dir() else inspected


def inspect_model(folder: Path, *, chat_template: str | None) -> Inspection:
    """Read everything that Rooftune needs of a model; `chat_template` overrides the model's own.

    Raises `InvalidInput` for a missing or broken file, `UnsupportedArchitecture` for a model
    whose arithmetic is not described.
    """
    model = read_folder(_files_of(folder), chat_template=chat_template)
    if not any(file.suffix == ".safetensors" for file in model_files(folder)):
        raise InvalidInput("model", "the folder has no .safetensors weights")
    tokenizer = model.tokenizer()
    if model.tokenizer_json is None:
        raise InvalidInput("model", "the folder has no tokenizer.json")
    return Inspection(
        path=folder,
        digest=model_digest(folder),
        shape=model.shape,
        tokenizer=pack_tokenizer(model.tokenizer_json, model.special),
        tokenizer_digest=tokenizer.tokenizer_digest,
        chat_template=model.chat_template,
        template_digest=tokenizer.template_digest,
    )


def _files_of(folder: Path) -> ReadFile:
    def read(name: str) -> bytes | None:
        file = folder / name
        return file.read_bytes() if file.is_file() else None

    return read
