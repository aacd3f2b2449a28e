"""What a model's folder says of its arithmetic, for a look before the engine reads it."""

import json
from collections.abc import Mapping
from pathlib import Path

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm import ModelShape
from advisor.llm.config import read_config
from advisor.serving import ServingConfig


def model_shape(folder: Path) -> ModelShape | None:
    """The shape in a folder's ``config.json``; None where it has none that is understood.

    The engine may serve it all the same, and says itself where it cannot.
    """
    try:
        return read_config(_config(folder))
    except (InvalidInput, UnsupportedArchitecture, OSError, ValueError):
        return None


def draft_vocabulary(config: ServingConfig) -> int | None:
    """Size of the draft model's vocabulary, where a draft model was named and says it."""
    folder = getattr(config.levers.speculative_config, "model", None)
    if not isinstance(folder, str):
        return None
    try:
        size = _config(Path(folder)).get("vocab_size")
    except (OSError, ValueError):
        return None
    return size if isinstance(size, int) else None


def _config(folder: Path) -> Mapping[str, object]:
    held = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(held, dict):
        raise InvalidInput("config.json", "is no object")
    return held
