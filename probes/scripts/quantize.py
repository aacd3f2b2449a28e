"""Make a checkpoint with 8-bit weights and activations that vLLM reads as ``compressed-tensors``.

Run by the quantizer's interpreter (llm-compressor):
``quantize.py --model DIR --out DIR --scheme W8A8 --algorithm gptq|rtn [--calibration FILE]``.

Every linear layer except ``lm_head`` gets int8 weights with one scale per output channel;
activations are quantized per token when the engine runs. ``rtn`` rounds to nearest and needs no
data. ``gptq`` (Frantar et al., 2022) rounds so that the layer's outputs on the calibration
sequences change least: `FILE` holds one JSON list of token ids per line, which are cut to
``--max-seq``; with ``--consume`` it is deleted once read. Tokenizer, chat template and generation
settings are the model's own files.

The folder is written beside ``--out`` and renamed when it is whole. One JSON object on stdout.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch

SCHEMES = ("W8A8",)
ALGORITHMS = ("gptq", "rtn")
KEPT_UNQUANTIZED = ("lm_head",)
# What the quantized model has of its own; everything else beside the weights is copied.
OWN_FILES = ("config.json", "model.safetensors.index.json")
COPIED_SUFFIXES = (".json", ".jinja", ".txt", ".model")
EXIT_REFUSED = 3


class QuantizeError(Exception):
    """The checkpoint cannot be made from these inputs; the message quotes no data."""


def weight_bytes(folder: Path) -> int:
    """Size of the weight files, in bytes."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def read_calibration(file: Path, max_seq: int) -> list[list[int]]:
    """Read token ids, one sequence per line, each cut to its first `max_seq`."""
    sequences = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            held = json.loads(line)
        except ValueError:
            held = None
        if not isinstance(held, list) or not all(isinstance(token, int) for token in held):
            message = f"line {number} of the calibration file is no list of token ids"
            raise QuantizeError(message)
        if held:
            sequences.append(held[:max_seq])
    if not sequences:
        message = "the calibration file holds no sequence"
        raise QuantizeError(message)
    return sequences


def compute_dtype(stored: torch.dtype) -> torch.dtype:
    """Dtype to calibrate in: the stored one, or fp32 where a processor only emulates it."""
    if torch.cuda.is_available() or stored is not torch.bfloat16:
        return stored
    # Without such units bf16 products take four times as long as fp32 ones.
    supported = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    return stored if supported else torch.float32


def load(folder: Path) -> tuple[Any, torch.dtype]:
    """Load a causal language model for calibration, and the dtype that it is stored in."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    if getattr(config, "quantization_config", None) is not None:
        message = "the model is quantized already"
        raise QuantizeError(message)
    stored = config.dtype if isinstance(config.dtype, torch.dtype) else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=compute_dtype(stored))
    if torch.cuda.is_available():
        model = model.to("cuda")
    return model, stored


def batches(sequences: list[list[int]], vocab_size: int) -> Any:
    """Give one sequence per batch: no padding, so every token counts."""
    from torch.utils.data import DataLoader

    if max(max(sequence) for sequence in sequences) >= vocab_size:
        message = f"a token id is not below the vocabulary's {vocab_size}"
        raise QuantizeError(message)
    rows = [torch.tensor([sequence], dtype=torch.long) for sequence in sequences]
    items = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
    return DataLoader(items, batch_size=None, shuffle=False)


def quantized(model: Any, scheme: str, algorithm: str, sequences: list[list[int]]) -> Any:
    """Run llm-compressor on the loaded model, in place."""
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    ignore = list(KEPT_UNQUANTIZED)
    if algorithm == "rtn":
        recipe = QuantizationModifier(targets="Linear", scheme=scheme, ignore=ignore)
        return oneshot(model=model, recipe=recipe)
    recipe = GPTQModifier(targets="Linear", scheme=scheme, ignore=ignore)
    return oneshot(
        model=model,
        recipe=recipe,
        dataset=batches(sequences, model.config.vocab_size),
        num_calibration_samples=len(sequences),
        max_seq_length=max(map(len, sequences)),
        shuffle_calibration_samples=False,
    )


def restore_dtype(model: Any, stored: torch.dtype) -> None:
    """Bring everything that is not quantized back to the dtype of the original.

    Quantized layers keep theirs: weights are still values of the grid ``int8 x scale``, and
    rounding both once more could move a weight to the neighbouring integer.
    """
    for module in model.modules():
        if hasattr(module, "quantization_scheme"):
            continue
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(stored)
    model.config.dtype = stored


def copy_own_files(model: Path, out: Path) -> None:
    """Copy tokenizer, chat template and generation settings of the original model."""
    (out / "generation_config.json").unlink(missing_ok=True)
    for file in sorted(model.iterdir()):
        if file.is_file() and file.suffix in COPIED_SUFFIXES and file.name not in OWN_FILES:
            shutil.copyfile(file, out / file.name)


def make(arguments: argparse.Namespace) -> int:
    """Write the checkpoint to ``arguments.out``; the number of calibration tokens."""
    sequences: list[list[int]] = []
    if arguments.algorithm == "gptq":
        if arguments.calibration is None:
            message = "gptq needs --calibration"
            raise QuantizeError(message)
        sequences = read_calibration(arguments.calibration, arguments.max_seq)
        if arguments.consume:
            arguments.calibration.unlink()
    model, stored = load(arguments.model)
    model = quantized(model, arguments.scheme, arguments.algorithm, sequences)
    restore_dtype(model, stored)
    partial = arguments.out.with_name(f"{arguments.out.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        model.save_pretrained(partial, save_compressed=True)
        copy_own_files(arguments.model, partial)
        partial.rename(arguments.out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sum(map(len, sequences))


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scheme", choices=SCHEMES, required=True)
    parser.add_argument("--algorithm", choices=ALGORITHMS, required=True)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--consume", action="store_true")
    parser.add_argument("--max-seq", type=int, default=256)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    """Quantize, print the result as JSON."""
    arguments = parsed()
    arguments.out = arguments.out.absolute()
    # Every file is local: a look-up on a hub would only wait for a network that may not exist.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")  # noqa: TID251
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    started = time.monotonic()
    try:
        tokens = make(arguments)
    except QuantizeError as error:
        sys.stderr.write(f"quantize: {error}\n")
        return EXIT_REFUSED
    result = {
        "path": str(arguments.out),
        "scheme": arguments.scheme,
        "algorithm": arguments.algorithm,
        "calibration_tokens": tokens,
        "seconds": round(time.monotonic() - started, 3),
        "llmcompressor_version": importlib.metadata.version("llmcompressor"),
        "weight_bytes": weight_bytes(arguments.out),
        "original_weight_bytes": weight_bytes(arguments.model),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
