"""Laws of reading a serve command: what Rooftune itself would start is read back."""

import json
import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from advisor.baseline_command import parse_serve_command
from advisor.errors import RooftuneError
from advisor.serving import (
    DTYPES,
    KV_CACHE_DTYPES,
    FunctionalSettings,
    Levers,
    NgramSpeculation,
    ServingConfig,
)
from probes.vllm.command import EngineSpec, serve_argv, serve_env
from probes.vllm.flags import FlagSchema, read_schema

FLAGS = Path(__file__).resolve().parent.parent / "golden" / "engine" / "flags-0.32.0-cpu.json"
VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
counts = st.none() | st.integers(1, 100_000)
words = st.none() | st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
texts = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@st.composite
def drafts(draw: st.DrawFn) -> NgramSpeculation:
    """Any n-gram speculation."""
    least = draw(st.integers(1, 8))
    return NgramSpeculation(
        num_speculative_tokens=draw(st.integers(1, 16)),
        prompt_lookup_min=least,
        prompt_lookup_max=draw(st.integers(least, 16)),
    )


functional = st.builds(
    FunctionalSettings,
    max_model_len=counts,
    chat_template=texts,
    tool_call_parser=words,
    reasoning_parser=words,
    enforce_eager=st.booleans(),
    kv_cache_space_gib=st.none() | st.integers(1, 512),
)
# A quantized checkpoint is no flag: it is another model.
levers = st.builds(
    Levers,
    max_num_seqs=counts,
    max_num_batched_tokens=counts,
    enable_prefix_caching=st.none() | st.booleans(),
    block_size=counts,
    dtype=st.none() | st.sampled_from(DTYPES),
    speculative_config=st.none() | drafts(),
    kv_cache_dtype=st.none() | st.sampled_from(KV_CACHE_DTYPES),
    enable_chunked_prefill=st.none() | st.booleans(),
    gpu_memory_utilization=st.none() | st.floats(0.01, 1.0),
)
configs = st.builds(ServingConfig, functional=functional, levers=levers)


def schema(build: str) -> FlagSchema:
    """The flags of vLLM 0.32, served by the module that users start; both builds have the same."""
    held = read_schema(json.loads(FLAGS.read_bytes()))
    return FlagSchema(
        version=held.version,
        distribution=held.distribution,
        build=build,
        serve_module=("-m", "vllm.entrypoints.openai.api_server"),
        flags=held.flags,
    )


SPECS = {
    build: EngineSpec(interpreter="python", launcher=None, schema=schema(build))
    for build in ("cpu", "cuda")
}


def written(config: ServingConfig, build: str) -> str:
    """The command, with its variables before it, that the agent would start."""
    engine = SPECS[build]
    argv = serve_argv(engine, config, model_path="a/model", port=1, served_model_name="secret")
    environment = serve_env({}, engine, config, token="token", dev_mode=False)
    unset = config.functional.kv_cache_space_gib is None
    variables = [
        f"{name}={value}" for name, value in environment.items() if not (unset and name == VARIABLE)
    ]
    return shlex.join([*variables, *argv])


@given(configs, st.sampled_from(sorted(SPECS)))
def test_a_configuration_written_as_a_command_is_read_back(
    config: ServingConfig, build: str
) -> None:
    """Rendering and reading are inverse on every field, on a processor and on a GPU."""
    found = parse_serve_command(written(config, build))

    assert (found.model, found.levers) == ("a/model", config.levers)
    assert found.functional == config.functional
    assert "secret" not in repr(found.notes)


@given(configs)
def test_the_shown_command_says_the_same(config: ServingConfig) -> None:
    """With shapes in the place of what is not kept, it reads as the user's own did."""
    found = parse_serve_command(written(config, "cpu"))
    again = parse_serve_command(found.shown)

    assert (again.model, again.functional, again.levers, again.given) == (
        found.model,
        found.functional,
        found.levers,
        found.given,
    )
    assert again.shown == found.shown
    assert len(again.notes) == len(found.notes)


@given(st.lists(st.text(max_size=20), max_size=12))
def test_any_words_are_read_or_refused(given_words: list[str]) -> None:
    """No other error than one of ours, and none that repeats a value."""
    try:
        found = parse_serve_command("vllm serve M " + " ".join(given_words))
    except RooftuneError:
        return

    assert found.model == "M"
