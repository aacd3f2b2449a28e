"""Reading a `config.json`: which models are described, and what is refused by name."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput, UnknownName, UnsupportedArchitecture
from advisor.llm import dtype_bytes, read_config
from advisor.llm.mixers import Attention
from tests.fakes.model_configs import LLAMA_31_8B as LLAMA


def attention(config: dict[str, Any]) -> Attention:
    """The attention of the first layer."""
    found = read_config(config).attention
    assert isinstance(found, Attention)
    return found


def test_a_stated_head_dim_wins_over_the_quotient() -> None:
    """Hidden size over heads is only what transformers takes when nothing is stated."""
    assert attention(LLAMA).head_dim == 128
    assert attention({**LLAMA, "head_dim": 64}).head_dim == 64
    assert attention({**LLAMA, "head_dim": None}).head_dim == 128


def test_without_kv_heads_every_head_has_its_own() -> None:
    """Multi-head attention is the default of configs that predate grouped queries."""
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}

    assert attention(config).kv_heads == 32


@pytest.mark.parametrize(
    "key",
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"],
)
def test_a_missing_key_is_named(key: str) -> None:
    """The caller learns which line of the file to look at."""
    config = {name: value for name, value in LLAMA.items() if name != key}

    with pytest.raises(InvalidInput) as caught:
        read_config(config)

    assert caught.value.field == f"config.{key}"


@pytest.mark.parametrize(
    "key,value",
    [
        ("hidden_size", "4096"),
        ("num_hidden_layers", True),
        ("vocab_size", 0),
        ("tie_word_embeddings", "no"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(key: str, value: object) -> None:
    """A count is a whole number above 0 and a switch is true or false."""
    with pytest.raises(InvalidInput) as caught:
        read_config({**LLAMA, key: value})

    assert caught.value.field == f"config.{key}"


def test_a_config_without_an_architecture_is_refused() -> None:
    """Neither `architectures` nor `model_type`: nothing says what it is."""
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}

    with pytest.raises(InvalidInput, match="architectures"):
        read_config(config)


@pytest.mark.parametrize("stated", ["WhisperForConditionalGeneration", "RwkvForCausalLM"])
def test_an_architecture_that_is_not_described_is_refused(stated: str) -> None:
    """Where its config has not even the keys of a decoder."""
    with pytest.raises(UnsupportedArchitecture) as caught:
        read_config({"architectures": [stated], "hidden_size": 4096, "vocab_size": 1000})

    assert caught.value.architecture == stated
    assert "LlamaForCausalLM" in caught.value.supported


def test_the_model_type_names_the_family_where_no_architecture_is_written() -> None:
    """As in configs of text parts."""
    told = {**LLAMA, "architectures": [], "model_type": "llama"}

    assert read_config(told) == read_config(LLAMA)


def test_a_bias_on_the_network_is_counted() -> None:
    """Two wide ones and one of the hidden size in each layer."""
    plain, biased = read_config(LLAMA), read_config({**LLAMA, "mlp_bias": True})

    assert biased.parameters - plain.parameters == 32 * (2 * 14336 + 4096)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["MistralForCausalLM"], "sliding_window": None},
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9, "use_sliding_window": False},
        {"architectures": ["Qwen3ForCausalLM"], "sliding_window": 9},
        {"layer_types": ["full_attention"] * 32},
    ],
)
def test_a_window_that_is_switched_off_changes_nothing(changes: dict[str, object]) -> None:
    """Qwen configs carry a window beside the switch that disables it."""
    plain = read_config(
        {
            **LLAMA,
            "architectures": changes.get("architectures", ["LlamaForCausalLM"]),
            "sliding_window": None,
        }
    )

    assert read_config({**LLAMA, **changes}) == plain


def test_a_bias_in_the_config_covers_all_four_projections() -> None:
    """Llama's switch adds one to the output projection too, Qwen2's fixed bias does not."""
    plain, biased = read_config(LLAMA), read_config({**LLAMA, "attention_bias": True})

    assert biased.parameters - plain.parameters == 32 * (4096 + 2 * 1024 + 4096)


@pytest.mark.parametrize(
    "stated,dtype",
    [
        ({"dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"torch_dtype": None}, "float32"),
    ],
)
def test_the_dtype_is_read_in_both_spellings(stated: dict[str, object], dtype: str) -> None:
    """transformers 5 writes `dtype`, earlier releases `torch_dtype`, and neither means 32 bit."""
    assert read_config({**LLAMA, "torch_dtype": None, **stated}).dtype == dtype


def test_weights_scale_with_the_dtype() -> None:
    """Memory and bytes per step are elements times width."""
    model = read_config(LLAMA)

    assert model.weight_bytes() == 2 * model.parameters
    assert model.weight_bytes("float32") == 4 * model.parameters
    assert model.step_weight_bytes("float32") == 2 * model.step_weight_bytes()


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    """An exact look-up."""
    with pytest.raises(UnknownName, match="bfloat16"):
        dtype_bytes("fp8")


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": ()},
        {"hidden_size": 0},
        {"max_position_embeddings": 0},
        {"dtype": "float8"},
    ],
)
def test_a_shape_cannot_be_wrong(changes: dict[str, Any]) -> None:
    """Checked where it is made, whoever makes it."""
    with pytest.raises((InvalidInput, UnknownName)):
        replace(read_config(LLAMA), **changes)
