"""The user's command beside a target: functional settings stay the target's."""

import pytest

from advisor.errors import InvalidInput
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from api.baselines import StartingPoint, starting_point

FUNCTIONAL = FunctionalSettings(max_model_len=2048, enforce_eager=True, chat_template="own words")


def begun(command: str | None, levers: Levers | None = None) -> StartingPoint:
    return starting_point(command, levers, functional=FUNCTIONAL, model="demo")


def test_without_a_command_the_levers_count() -> None:
    """And without those, vLLM's defaults."""
    levers = Levers(max_num_seqs=8)

    assert begun(None).config == ServingConfig(functional=FUNCTIONAL)
    assert begun(None, levers).config == ServingConfig(functional=FUNCTIONAL, levers=levers)


def test_a_command_that_agrees_keeps_what_it_does_not_say() -> None:
    """Levers are the command's, functional settings the target's."""
    found = begun("vllm serve demo --max-model-len 2048 --max-num-seqs 8 --port 1234")

    assert found.config == ServingConfig(functional=FUNCTIONAL, levers=Levers(max_num_seqs=8))
    assert found.command == (
        "vllm serve demo --max-model-len=2048 --max-num-seqs=8 '--port=<a number>'"
    )
    assert [note.partition(" ")[0] for note in found.notes] == ["--port"]


def test_a_difference_is_refused_with_both_values() -> None:
    """Every one of them, with the way out; a template is long and says nothing."""
    command = (
        "VLLM_CPU_KVCACHE_SPACE=4 vllm serve demo --max-model-len 4096 --no-enforce-eager"
        " --chat-template 'other words'"
    )
    with pytest.raises(InvalidInput) as refused:
        begun(command)

    assert refused.value.field == "baseline_command"
    for told in (
        "max_model_len is 4096 in the command and 2048 in the target",
        "enforce_eager is off in the command and on in the target",
        "kv_cache_space_gib is 4 in the command and not set in the target",
        "chat_template of the command is not the target's",
        "make a target with yours",
    ):
        assert told in refused.value.message
    assert "words" not in refused.value.message


def test_another_model_is_noted_and_not_used() -> None:
    """The target's model is what is measured."""
    other, same, none = (
        begun(f"vllm serve {model} --max-num-seqs 8") for model in ("acme/chat", "demo", "")
    )

    assert other.notes == (
        "the model 'acme/chat' of the command is not used: the target has 'demo'",
    )
    assert (same.notes, none.notes) == ((), ())
