"""A stand-in for the quantizer's interpreter: writes a checkpoint without computing one.

Installed by `install` as ``bin/python`` of a folder that looks like a virtual environment. It takes
the arguments of ``scripts/quantize.py`` and obeys the variable `MOOD_VARIABLE`: fail, slow or none.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

MOOD_VARIABLE = "ROOFTUNE_STUB_QUANTIZER"
CALLS = "calls.jsonl"


def install(home: Path, version: str = "0.14.0.1") -> Path:
    """Make the environment and return its interpreter; calls are noted in `CALLS` beside it."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    packages = home / "lib" / "python3.11" / "site-packages"
    shutil.rmtree(packages, ignore_errors=True)
    (packages / f"llmcompressor-{version}.dist-info").mkdir(parents=True)
    python = home / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" "{home}" "$@"\n')
    python.chmod(0o700)
    return python


def calls(python: Path) -> list[dict[str, str]]:
    """What the interpreter was called with, option by option."""
    file = python.parent.parent / CALLS
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def main(arguments: list[str]) -> int:
    """Behave like the script."""
    home, _, *rest = arguments
    flags = [item for item in rest if item == "--consume"]
    rest = [item for item in rest if item != "--consume"]
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    noted = {**options, "flags": " ".join(flags)}
    calibration = options.get("--calibration")
    if calibration is not None:
        noted["mode"] = oct(Path(calibration).stat().st_mode & 0o777)
        noted["tokens"] = Path(calibration).read_text(encoding="utf-8")
        Path(calibration).unlink()
    with (Path(home) / CALLS).open("a") as file:
        file.write(json.dumps(noted) + "\n")
    out = Path(options["--out"])
    partial = out.with_name(f"{out.name}.partial-{os.getpid()}")
    partial.mkdir()
    config = json.loads((Path(options["--model"]) / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors"}
    (partial / "config.json").write_text(json.dumps(config))
    mood = os.environ.get(MOOD_VARIABLE)  # noqa: TID251 - its own process, no settings module
    if mood == "slow":
        time.sleep(60)
    if mood == "fail":
        sys.stderr.write("Quantizing:  12%|#  | 3/30 [00:01<00:10,  2.5it/s]\n")
        sys.stderr.write("ValueError: this model has a layer nobody knows\n")
        return 1
    weights = "|".join(f"{name}={value}" for name, value in sorted(options.items()))
    weights = weights.replace(str(out), "").replace(str(calibration), "")
    (partial / "model.safetensors").write_text(weights)
    partial.rename(out)
    sys.stdout.write(json.dumps({"path": str(out), "seconds": 0.1, "weight_bytes": 9}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
