"""The user's own serve command: what is kept, what is named, what is refused and never echoed."""

import json
from pathlib import Path

import pytest

from advisor.baseline_command import command, parse_serve_command
from advisor.errors import InvalidInput, RooftuneError, UnknownName
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation

FLAGS = Path(__file__).resolve().parent.parent / "golden" / "engine" / "flags-0.32.0-cpu.json"
NGRAM = NgramSpeculation(num_speculative_tokens=4, prompt_lookup_max=6, prompt_lookup_min=2)


def test_every_field_is_read_from_its_flag() -> None:
    """Dashes, underscores, joined and separate values, switches on and off."""
    found = parse_serve_command(
        "vllm serve acme/model --max-model-len 4096 --tool_call_parser=hermes"
        " --enable-auto-tool-choice --reasoning-parser qwen3 --enforce-eager"
        " --max-num-seqs=8 --max_num_batched_tokens 2k --no-enable-prefix-caching"
        " --block-size 32 --dtype half --kv-cache-dtype fp8 --enable-chunked-prefill"
        " --gpu-memory-utilization .85 --chat-template tpl.jinja"
        ' --speculative-config \'{"method": "ngram", "num_speculative_tokens": 4,'
        ' "prompt_lookup_max": 6, "prompt_lookup_min": 2}\''
    )

    assert found.model == "acme/model"
    assert found.functional == FunctionalSettings(
        max_model_len=4096,
        chat_template="tpl.jinja",
        tool_call_parser="hermes",
        reasoning_parser="qwen3",
        enforce_eager=True,
    )
    assert found.levers == Levers(
        max_num_seqs=8,
        max_num_batched_tokens=2000,
        enable_prefix_caching=False,
        block_size=32,
        dtype="float16",
        speculative_config=NGRAM,
        kv_cache_dtype="fp8",
        enable_chunked_prefill=True,
        gpu_memory_utilization=0.85,
    )
    assert found.notes == ()
    assert found.functional_given[0] == "max_model_len"
    assert "--speculative-config" in found.given


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve M --max-num-seqs 8",
        "/opt/venv/bin/vllm serve M --max-num-seqs=8",
        "python -m vllm.entrypoints.openai.api_server --model M --max-num-seqs 8",
        "python3 -m vllm.entrypoints.openai.api_server --max_num_seqs 8 --model=M",
        "source bin/activate && nohup vllm serve M \\\n  --max-num-seqs 8 \\\r\n > log 2>&1 &",
        "uv run --with vllm vllm serve M --max-num-seqs 8; echo --max-num-seqs 9",
        "docker run --rm --name vllm -it vllm/vllm-openai:v0.32.0 --model M --max-num-seqs 8",
        "podman run -p 1:2 acme.test/x/vllm-cpu@sha256:0a1b M --max-num-seqs 8",
        "vllm serve M \u2013max-num-seqs 8",
        "vllm serve M --max-num-seqs 4 --max-num-seqs 8",
    ],
)
def test_the_command_is_found_in_what_people_paste(text: str) -> None:
    """Interpreters, wrappers, containers, continued lines, redirections, an editor's dashes."""
    found = parse_serve_command(text)

    assert (found.model, found.levers) == ("M", Levers(max_num_seqs=8))
    assert found.notes == ()


def test_the_cache_of_a_processor_comes_from_the_environment() -> None:
    """Before the command or handed to a container; other variables are named without values."""
    found = [
        parse_serve_command("VLLM_CPU_KVCACHE_SPACE=4 HF_TOKEN=hf_secret vllm serve M"),
        parse_serve_command(
            "docker run -e VLLM_CPU_KVCACHE_SPACE=4 --env=HF_TOKEN=hf_secret vllm/vllm-openai M"
        ),
        parse_serve_command("export VLLM_CPU_KVCACHE_SPACE=4\nexport HF_TOKEN=x\nvllm serve M"),
    ]

    assert {item.functional.kv_cache_space_gib for item in found} == {4}
    assert {item.functional_given for item in found} == {("kv_cache_space_gib",)}
    assert {item.notes for item in found} == {
        ("the environment variable HF_TOKEN (text) is not kept",)
    }
    assert "hf_secret" not in repr(found)


def test_what_is_not_kept_is_named_by_flag_and_shape() -> None:
    """Unknown flags, flags of a deployment, short ones, a file of settings; no value is told."""
    found = parse_serve_command(
        "vllm serve M --port 8000 --api-key sk-secret sk-other --host h.internal -tp 2 -O3"
        " --hf-overrides '{\"secret\": 1}' --made-up words --no-async-scheduling"
        " --config private.yaml --trust-remote-code --max-num-seqs 8"
    )
    by_flag = {note.partition(" ")[0]: note for note in found.notes}

    assert found.levers == Levers(max_num_seqs=8)
    assert list(by_flag) == [
        *("--port", "--api-key", "--host", "--tensor-parallel-size", "-O", "--hf-overrides"),
        *("--made-up", "--no-async-scheduling", "--config", "--trust-remote-code"),
    ]
    assert "(a number) is ignored" in by_flag["--port"]
    assert "(2 values)" in by_flag["--api-key"]
    assert "(JSON)" in by_flag["--hf-overrides"]
    assert "write its settings as flags" in by_flag["--config"]
    for secret in ("8000", "secret", "sk-", "internal", "words", "private"):
        assert secret not in repr(found)


def test_an_unknown_switch_does_not_swallow_the_model() -> None:
    """One that vLLM has is known; after any other one value at most is taken before the model."""
    known = parse_serve_command("vllm serve --enable-log-requests M --max-num-seqs 8")
    unknown = parse_serve_command("vllm serve --unknown value M --max-num-seqs 8")

    assert (known.model, unknown.model) == ("M", "M")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("--speculative-config.method ngram --speculative-config.num_speculative_tokens 4", 5),
        ("--spec-method ngram --spec-tokens 4", 5),
        ('-sc \'{"model":"[ngram]","num_speculative_tokens":4,"prompt_lookup_max":3}\'', 3),
    ],
)
def test_drafts_by_n_gram_take_vllms_defaults(text: str, expected: int) -> None:
    """Neither end of the n-gram: 5; one end: both."""
    found = parse_serve_command(f"vllm serve M {text}")

    assert found.levers.speculative_config == NgramSpeculation(
        num_speculative_tokens=4, prompt_lookup_max=expected, prompt_lookup_min=expected
    )


def test_other_drafts_and_further_keys_are_not_kept() -> None:
    """Drafting by a model is another technique; a key that Rooftune has no field for is named."""
    eagle = '{"method":"eagle3","model":"secret/draft","num_speculative_tokens":4}'
    wider = '{"method":"ngram","num_speculative_tokens":4,"disable_by_batch_size":8}'
    first = parse_serve_command(f"vllm serve M --speculative-config '{eagle}'")
    second = parse_serve_command(f"vllm serve M --speculative-config '{wider}'")

    assert (first.levers, first.given) == (Levers(), ())
    assert "only ngram" in first.notes[0]
    assert "secret" not in repr(first)
    assert second.levers.speculative_config is not None
    assert second.notes == ("disable_by_batch_size in --speculative-config is not kept",)


@pytest.mark.parametrize(
    "text, flag, remedy",
    [
        ("python train.py --secret x", "baseline_command", "vllm serve"),
        ("vllm serve M --chat-template 'secret", "baseline_command", "quotation mark"),
        ("vllm serve M --=secret", "baseline_command", "check it"),
        ("vllm serve M --max-num-seqs secret", "--max-num-seqs", "write one"),
        ("vllm serve M --max-num-seqs 0", "--max-num-seqs", "above 0"),
        ("vllm serve M --max-num-seqs $SECRET", "--max-num-seqs", "shell variable"),
        ("vllm serve M --max-num-seqs", "--max-num-seqs", "needs a value"),
        ("vllm serve M --max-model-len 1.0001k", "--max-model-len", "write it out"),
        ("vllm serve M --gpu-memory-utilization 90", "--gpu-memory-utilization", "0.9"),
        ("vllm serve M --kv-cache-memory-bytes 12345", "--kv-cache-memory-bytes", "multiple"),
        ("vllm serve M --speculative-config secret", "--speculative-config", "JSON object"),
        ("vllm serve M --spec-method ngram", "--speculative-config", "num_speculative_tokens"),
        ("vllm serve M --spec-method ngram --spec-tokens x", "--speculative-config", "correct"),
        ("vllm serve M --enforce-eager=secret", "--enforce-eager", "--no-enforce-eager"),
        ("VLLM_CPU_KVCACHE_SPACE=secret vllm serve M", "VLLM_CPU_KVCACHE_SPACE", "write one"),
        ("vllm serve " + "x" * 10_000, "baseline_command", "longer than"),
    ],
)
def test_a_wrong_command_is_refused_with_flag_and_remedy(text: str, flag: str, remedy: str) -> None:
    """What cannot be right is not guessed at, and its value is not repeated."""
    with pytest.raises(InvalidInput) as refused:
        parse_serve_command(text)

    assert refused.value.field == flag
    assert remedy in refused.value.message
    assert "secret" not in str(refused.value).casefold()


def test_an_unknown_choice_lists_the_known_ones() -> None:
    """Without repeating it."""
    with pytest.raises(UnknownName, match="bfloat16") as refused:
        parse_serve_command("vllm serve M --dtype secret16")

    assert isinstance(refused.value, RooftuneError)
    assert "secret16" not in str(refused.value)


def test_the_engines_own_choices_are_not_levers() -> None:
    """`auto` lengths and a cache of 0 GiB mean that nothing is set."""
    found = parse_serve_command(
        "VLLM_CPU_KVCACHE_SPACE=0 vllm serve M --max-model-len auto --max-num-batched-tokens -1"
    )

    assert (found.functional, found.levers) == (FunctionalSettings(), Levers())
    assert len(found.notes) == 3


def test_the_flags_of_the_table_are_vllms() -> None:
    """Each one that is kept or counted as a switch is in the dump of a real engine."""
    dump = json.loads(FLAGS.read_bytes())["flags"]
    kinds = {f"--{name}": told["type"] for name, told in dump.items()}
    switches = {*command._KEPT_SWITCHES, *command._SWITCHES, *command._DEPLOYMENT_SWITCHES}
    older = {"--disable-log-requests"}

    assert set(command._KEPT) - set(kinds) == set()
    assert {name for name in switches - older if kinds.get(name) != "bool"} == set()
    assert {name for name in command._DEPLOYMENT if kinds.get(name) == "bool"} == set()
    assert command._DEPLOYMENT - set(kinds) == set()
