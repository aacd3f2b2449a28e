"""Make a draft model of the first layers of a model: what drafting and verifying cost, not a gain.

`pruned_draft.py MODEL TARGET --layers N` is run by the engine's interpreter and prints one JSON
object: `layers`, `of_layers`, `weight_bytes`. The draft has the model's own vocabulary, embedding
and output head, so that the engine takes it; what it says is seldom what the model says.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
# Fields of a configuration that have one entry for each layer.
BY_LAYER = ("layer_types", "no_rope_layers")
BESIDE = ("tokenizer*", "special_tokens_map.json", "generation_config.json", "vocab*", "merges.txt")


def kept(name: str, layers: int) -> bool:
    """Whether a weight belongs to the first `layers` layers, or to none."""
    found = LAYER.search(name)
    return found is None or int(found[1]) < layers


def shortened(config: dict[str, object], layers: int) -> dict[str, object]:
    """The configuration of a model with so many layers."""
    short = {**config, "num_hidden_layers": layers}
    for name in BY_LAYER:
        value = short.get(name)
        if isinstance(value, list):
            short[name] = value[:layers]
    return short


def prune(model: Path, target: Path, layers: int) -> dict[str, object]:
    """Write the draft to `target`, which is whole once its configuration is there."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    config = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    of_layers = int(config["num_hidden_layers"])
    if not 1 <= layers < of_layers:
        message = f"{layers} layers are no part of {of_layers}"
        raise ValueError(message)
    target.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, object] = {}
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            tensors |= {n: weights.get_tensor(n) for n in weights.keys() if kept(n, layers)}  # noqa: SIM118 - no mapping
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    for pattern in BESIDE:
        for file in model.glob(pattern):
            shutil.copyfile(file, target / file.name)
    text = json.dumps(shortened(config, layers), indent=2)
    (target / CONFIG).write_text(text, encoding="utf-8")
    size = (target / WEIGHTS).stat().st_size
    return {"layers": layers, "of_layers": of_layers, "weight_bytes": size}


def main() -> int:
    """Read the arguments and prune."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps(prune(given.model, given.target, given.layers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
