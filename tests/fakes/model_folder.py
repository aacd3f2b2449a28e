"""A model folder without weights: what counting and forecasting need."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json


def write_model_folder(folder: Path, config: Mapping[str, object]) -> str:
    """Make the folder of a model with this ``config.json``; its path as a command takes it."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "tokenizer.json").write_bytes(byte_tokenizer_json())
    (folder / "chat_template.jinja").write_text(PLAIN_TEMPLATE)
    return str(folder)
