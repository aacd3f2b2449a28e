"""Laws of model shapes, for any sizes."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import RooftuneError
from advisor.llm import ModelShape, read_config
from advisor.llm.families import BY_MODEL_TYPE, FAMILIES
from advisor.llm.feed_forward import ROUTING_SKEW
from db.stored import dump, load
from tests.fakes import model_configs as published

PUBLISHED = [
    value for name, value in vars(published).items() if name.isupper() and isinstance(value, dict)
]
published_configs = st.sampled_from(PUBLISHED)
dense_configs = st.builds(
    lambda heads, groups, size, layers, wide, words: published.decoder(
        *("LlamaForCausalLM", 64 * heads, layers, heads * groups, heads, wide, words),
        head_dim=size,
    ),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 256),
    st.integers(1, 64),
    st.integers(1, 30_000),
    st.integers(1, 200_000),
)
SIZES = (
    *("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "head_dim"),
    "num_attention_heads",
)


@given(dense_configs, st.sampled_from(SIZES))
def test_a_larger_model_has_more_parameters(config: dict[str, Any], size: str) -> None:
    """Whatever is larger about it."""
    larger = {**config, size: 2 * config[size]}

    assert read_config(larger).parameters > read_config(config).parameters
    assert read_config(larger).weight_bytes() > read_config(config).weight_bytes()


@given(dense_configs)
def test_tying_saves_one_table_and_no_work(config: dict[str, Any]) -> None:
    """Memory of one; every step still reads and multiplies it."""
    untied = read_config({**config, "tie_word_embeddings": False})
    tied = read_config({**config, "tie_word_embeddings": True})

    assert untied.parameters - tied.parameters == tied.vocab_size * tied.hidden_size
    assert untied.flops_per_token() == tied.flops_per_token()
    assert untied.step_weight_bytes() == tied.step_weight_bytes()


@given(published_configs, st.floats(1, 10_000), st.floats(*ROUTING_SKEW))
def test_a_step_reads_between_the_active_and_all_weights(
    config: dict[str, Any], tokens: float, skew: float
) -> None:
    """Experts of one token at least, all of them at most; more tokens never read less."""
    shape = read_config(config)
    read = shape.linear_bytes(tokens, skew=skew)
    width = shape.linear_format().bytes_per_parameter

    assert shape.active_parameters <= shape.parameters
    assert shape.active_linear_parameters * width <= read * (1 + 1e-9)
    assert read <= shape.linear_parameters * width * (1 + 1e-9)
    assert read <= shape.linear_bytes(tokens + 1, skew=skew) * (1 + 1e-9)
    assert read <= shape.linear_bytes(tokens) * (1 + 1e-9)


@given(published_configs, st.floats(1, 100_000), st.floats(1, 10_000))
def test_longer_contexts_never_cost_less(
    config: dict[str, Any], context: float, more: float
) -> None:
    """Reads and FLOP rise or stay; a windowed or recurrent layer stays."""
    shape = read_config(config)

    assert shape.cache_read_bytes(context) <= shape.cache_read_bytes(context + more)
    assert shape.attention_flops(context) <= shape.attention_flops(context + more)
    assert shape.prefill_attention_flops(context) <= shape.prefill_attention_flops(context + more)


@given(published_configs)
def test_packing_matrices_never_takes_more(config: dict[str, Any]) -> None:
    """Whatever is left out of it; the tower keeps its width."""
    method = {"quant_method": "awq", "bits": 4, "group_size": 128}
    base = {**config, "torch_dtype": "float16"}
    plain, packed = read_config(base), read_config({**base, "quantization_config": method})

    assert packed.parameters == plain.parameters
    assert packed.weight_bytes() < plain.weight_bytes()
    outside = plain.parameters - plain.linear_parameters + plain.tower_parameters
    assert packed.weight_bytes() >= 2 * outside


@given(published_configs)
def test_a_shape_survives_storing(config: dict[str, Any]) -> None:
    """Every kind of layer comes back as itself."""
    shape = read_config({**config, "quantization_config": {"quant_method": "fp8"}})

    assert load(ModelShape, dump(shape)) == shape


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 300),
        st.floats(allow_nan=False),
        st.sampled_from(["", "awq", "gptq", "fp8", "llama", "full_attention", "re:(", "*"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["bits", "quant_method", "weights", "ignore"]), inner),
    ),
    max_leaves=6,
)
MODEL_TYPES = sorted(BY_MODEL_TYPE)
KEYS = sorted({key for config in PUBLISHED for key in config} | {"quantization_config", "ignore"})


def read_or_refused(config: dict[str, Any]) -> ModelShape | None:
    """The shape, None where one of our errors refuses it; any other error fails the test."""
    try:
        return read_config(config)
    except RooftuneError:
        return None


@settings(max_examples=400)
@given(published_configs, st.dictionaries(st.sampled_from(KEYS), json_values, max_size=3))
def test_a_broken_config_is_an_error_of_ours(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Whatever stands in a file: a shape that can be right, or an error that says what is wrong."""
    shape = read_or_refused({**config, **changes})

    assert shape is None or shape.weight_bytes() > 0


@given(published_configs, st.sampled_from(MODEL_TYPES))
def test_keys_of_another_family_are_an_error_of_ours(
    config: dict[str, Any], model_type: str
) -> None:
    """A config whose architecture was exchanged is read by its keys or refused."""
    shape = read_or_refused({**config, "architectures": None, "model_type": model_type})

    assert shape is None or shape.parameters > 0


def test_every_model_type_has_a_family() -> None:
    """The two tables name the same architectures."""
    assert set(BY_MODEL_TYPE.values()) == set(FAMILIES)
