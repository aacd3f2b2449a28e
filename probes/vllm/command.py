"""A serving configuration as vLLM's own command line and environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.canonical import as_json
from advisor.serving import (
    DraftModelSpeculation,
    LeverValue,
    NgramSpeculation,
    ServingConfig,
    WeightQuantization,
)
from advisor.units import GIB
from probes.vllm.flags import CPU, FlagSchema, check_argv

HOST = "127.0.0.1"
TOKEN_VARIABLE = "ROOFTUNE_ENGINE_TOKEN"  # noqa: S105 - a variable's name
# The CPU build takes 0.92 of the machine's memory where nothing is set, or refuses to start.
DEFAULT_CPU_KV_CACHE_GIB = 2
# Allocator and OpenMP runtime that the CPU build asks for in its log, if they are installed
# beside it.
_CPU_PRELOADS = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libiomp5.so")
# How vLLM calls the checkpoints that llm-compressor writes, whatever their scheme.
_QUANTIZED_FORMAT = "compressed-tensors"
# Options for the figures of single requests; an older engine lacks them and serves all the same.
_REPORTING = ("--enable-prompt-tokens-details",)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """An installed engine: its interpreter and what it accepts.

    `launcher` is a Python file that stands in for the engine's own module (tests).
    """

    interpreter: str
    launcher: str | None
    schema: FlagSchema

    @property
    def serve_prefix(self) -> list[str]:
        """What comes before the flags."""
        if self.launcher is not None:
            return [self.interpreter, self.launcher, "serve"]
        return [self.interpreter, *self.schema.serve_module]


def serve_argv(
    engine: EngineSpec,
    config: ServingConfig,
    *,
    model_path: str,
    port: int,
    served_model_name: str,
) -> list[str]:
    """The command that serves `config`; a flag that this engine lacks raises `InvalidInput`.

    With `quantization` the caller gives the folder of the quantized checkpoint as `model_path`.
    """
    arguments = [
        f"--model={model_path}",
        f"--served-model-name={served_model_name}",
        f"--host={HOST}",
        f"--port={port}",
        *_functional_arguments(config),
        *(_argument(name, value) for name, value in config.overrides().items()),
        *_memory_arguments(engine, config),
        *(flag for flag in _REPORTING if flag in engine.schema.flags),
    ]
    check_argv(arguments, engine.schema)
    return [*engine.serve_prefix, *arguments]


def serve_env(
    base: Mapping[str, str],
    engine: EngineSpec,
    config: ServingConfig,
    *,
    token: str,
    dev_mode: bool,
) -> dict[str, str]:
    """The environment of an engine; `token` marks all its processes, `dev_mode` is for probes."""
    environment = {
        **base,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        TOKEN_VARIABLE: token,
        **_device_environment(base, engine, config),
    }
    if dev_mode:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    else:
        environment.pop("VLLM_SERVER_DEV_MODE", None)
    return environment


def _functional_arguments(config: ServingConfig) -> list[str]:
    functional = config.functional
    arguments = []
    if functional.max_model_len is not None:
        arguments.append(f"--max-model-len={functional.max_model_len}")
    if functional.chat_template is not None:
        arguments.append(f"--chat-template={functional.chat_template}")
    if functional.tool_call_parser is not None:
        arguments.append("--enable-auto-tool-choice")
        arguments.append(f"--tool-call-parser={functional.tool_call_parser}")
    if functional.reasoning_parser is not None:
        arguments.append(f"--reasoning-parser={functional.reasoning_parser}")
    if functional.enforce_eager:
        arguments.append("--enforce-eager")
    return arguments


def _argument(name: str, value: LeverValue) -> str:
    """One lever in vLLM's spelling; a value joined by ``=`` cannot be taken for a flag."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return flag if value else "--no-" + flag.removeprefix("--")
    if isinstance(value, NgramSpeculation | DraftModelSpeculation):
        return f"{flag}={json.dumps(as_json(value), sort_keys=True, separators=(',', ':'))}"
    if isinstance(value, WeightQuantization):
        return f"{flag}={_QUANTIZED_FORMAT}"
    return f"{flag}={value}"


def _memory_arguments(engine: EngineSpec, config: ServingConfig) -> list[str]:
    """KV memory on an accelerator; the CPU build takes it from its environment."""
    space_gib = config.functional.kv_cache_space_gib
    if engine.schema.build == CPU or space_gib is None:
        return []
    return [f"--kv-cache-memory-bytes={space_gib * GIB}"]


def _device_environment(
    base: Mapping[str, str], engine: EngineSpec, config: ServingConfig
) -> dict[str, str]:
    """All that the kind of device asks of the environment."""
    if engine.schema.build != CPU:
        return {}
    space_gib = config.functional.kv_cache_space_gib or DEFAULT_CPU_KV_CACHE_GIB
    environment = {"VLLM_CPU_KVCACHE_SPACE": str(space_gib)}
    preloads = _preloads(engine.interpreter)
    if preloads:
        earlier = base.get("LD_PRELOAD", "")
        environment["LD_PRELOAD"] = ":".join([*preloads, *([earlier] if earlier else [])])
    return environment


def _preloads(interpreter: str) -> list[str]:
    """Libraries of `_CPU_PRELOADS` in the environment of `interpreter`."""
    # Not resolved: the interpreter of a virtual environment is a link out of it.
    libraries = Path(interpreter).absolute().parent.parent / "lib"
    found = [libraries / name for name in _CPU_PRELOADS]
    return [str(path) for path in found if path.exists()]
