"""Dense decoder models with grouped-query attention: their arithmetic, from `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput, UnknownName, UnsupportedArchitecture

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
# What transformers builds when a config.json names no dtype.
UNSTATED_DTYPE = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """What a config.json of one architecture leaves unsaid.

    `qkv_bias` is always there (Qwen2); elsewhere `attention_bias` of the config adds a bias to
    all four projections. `switched_window`: the window binds only with `use_sliding_window`.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    switched_window: bool = False


_FAMILIES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(),
    "MistralForCausalLM": _Family(),
    "Qwen2ForCausalLM": _Family(qkv_bias=True, switched_window=True),
    "Qwen3ForCausalLM": _Family(qk_norm=True, switched_window=True),
}
_BY_MODEL_TYPE: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
ARCHITECTURES = tuple(_FAMILIES)


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; an unknown dtype raises `UnknownName`."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        raise UnknownName("dtype", dtype, list(DTYPE_BYTES)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a dense decoder with gated feed-forward and grouped-query attention.

    Counts follow handbook 1.1 to 1.3. `attention_bias` is a bias on the query, key and value
    projections, `output_bias` one on the attention output; `qk_norm` normalises queries and keys
    per head. `dtype` is the one the checkpoint was saved in. `max_position_embeddings` is None
    where the config does not say.
    """

    architecture: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    attention_bias: bool
    qk_norm: bool
    max_position_embeddings: int | None
    dtype: str
    output_bias: bool = False

    def __post_init__(self) -> None:
        for name in (
            "hidden_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"model.{name}", f"{getattr(self, name)} is below 1")
        if self.num_heads % self.num_kv_heads:
            raise InvalidInput(
                "model.num_kv_heads", f"{self.num_kv_heads} does not divide {self.num_heads} heads"
            )
        if self.max_position_embeddings is not None and self.max_position_embeddings < 1:
            raise InvalidInput("model.max_position_embeddings", "is below 1")
        dtype_bytes(self.dtype)

    @property
    def query_width(self) -> int:
        """Elements of all query heads of one token."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all key heads (or of all value heads) of one token."""
        return self.num_kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Matrix weights of all blocks, each read once per step (handbook 1.2, P_lin)."""
        attention = self.hidden_size * (2 * self.query_width + 2 * self.kv_width)
        feed_forward = 3 * self.hidden_size * self.intermediate_size
        return self.num_layers * (attention + feed_forward)

    @property
    def head_parameters(self) -> int:
        """Weights of the output head, which multiplies whether or not it is tied (case M-09)."""
        return self.vocab_size * self.hidden_size

    @property
    def matmul_parameters(self) -> int:
        """Weights that take part in matrix products: blocks and head, no embedding look-up."""
        return self.linear_parameters + self.head_parameters

    @property
    def parameters(self) -> int:
        """All stored parameters; a tied table is stored once."""
        extras = 2 * self.hidden_size
        if self.attention_bias:
            extras += self.query_width + 2 * self.kv_width
        if self.output_bias:
            extras += self.hidden_size
        if self.qk_norm:
            extras += 2 * self.head_dim
        tables = 1 if self.tied_embeddings else 2
        return (
            self.linear_parameters
            + self.num_layers * extras
            + self.hidden_size
            + tables * self.head_parameters
        )

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Memory of all stored parameters, in `dtype` (None: as saved)."""
        return self.parameters * dtype_bytes(dtype or self.dtype)

    def step_weight_bytes(self, dtype: str | None = None) -> int:
        """Weight bytes that one step reads: every block and the head once (handbook 1.3)."""
        return self.matmul_parameters * dtype_bytes(dtype or self.dtype)

    def kv_bytes_per_token(self, kv_dtype_bytes: int = 2) -> int:
        """Key and value bytes that one token keeps in all layers (handbook 2.1, kappa)."""
        return 2 * self.num_layers * self.kv_width * kv_dtype_bytes

    def flops_per_token(self) -> int:
        """FLOP of one decoded token without its attention: 2 per matrix weight."""
        return 2 * self.matmul_parameters

    def attention_flops(self, context_tokens: float) -> float:
        """FLOP of one query over `context_tokens` keys, all layers (handbook 1.2)."""
        return 4 * self.num_layers * self.query_width * context_tokens

    def prefill_attention_flops(self, new_tokens: float, cached_tokens: float = 0) -> float:
        """FLOP of causal attention of `new_tokens` after `cached_tokens`: half the square."""
        pairs = new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2
        return self.attention_flops(pairs)


def read_config(config: Mapping[str, object]) -> ModelShape:
    """The shape in a `config.json`.

    Raises `UnsupportedArchitecture` for anything but the dense models of `ARCHITECTURES` with
    full attention and unquantised weights, and `InvalidInput` naming a key that is missing or
    not a number.
    """
    architecture = _architecture(config)
    family = _FAMILIES[architecture]
    _refuse_variants(config, architecture, family)
    heads = _count(config, "num_attention_heads")
    hidden = _count(config, "hidden_size")
    config_bias = _flag(config, "attention_bias", default=False) and not family.qkv_bias
    return ModelShape(
        architecture=architecture,
        hidden_size=hidden,
        num_layers=_count(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_optional_count(config, "num_key_value_heads") or heads,
        head_dim=_optional_count(config, "head_dim") or hidden // heads,
        intermediate_size=_count(config, "intermediate_size"),
        vocab_size=_count(config, "vocab_size"),
        tied_embeddings=_flag(config, "tie_word_embeddings", default=False),
        attention_bias=family.qkv_bias or config_bias,
        output_bias=config_bias,
        qk_norm=family.qk_norm,
        max_position_embeddings=_optional_count(config, "max_position_embeddings"),
        dtype=_dtype(config),
    )


def _architecture(config: Mapping[str, object]) -> str:
    stated = config.get("architectures")
    if isinstance(stated, list | tuple) and stated:
        name = str(stated[0])
    elif "model_type" in config:
        model_type = str(config["model_type"])
        name = _BY_MODEL_TYPE.get(model_type, model_type)
    else:
        raise InvalidInput("config.architectures", "is missing")
    if name not in _FAMILIES:
        raise UnsupportedArchitecture(name, ARCHITECTURES)
    return name


def _refuse_variants(config: Mapping[str, object], architecture: str, family: _Family) -> None:
    """A variant whose bytes or FLOP differ must not be described as its plain relative."""
    if config.get("quantization_config") is not None:
        raise UnsupportedArchitecture(f"{architecture} with quantization_config", ARCHITECTURES)
    if _flag(config, "mlp_bias", default=False):
        raise UnsupportedArchitecture(f"{architecture} with mlp_bias", ARCHITECTURES)
    layer_types = config.get("layer_types")
    mixed = isinstance(layer_types, list | tuple) and set(layer_types) - {"full_attention"}
    switched_on = _flag(config, "use_sliding_window", default=not family.switched_window)
    windowed = config.get("sliding_window") is not None and switched_on
    if mixed or windowed:
        raise UnsupportedArchitecture(
            f"{architecture} with sliding-window attention", ARCHITECTURES
        )


def _count(config: Mapping[str, object], key: str) -> int:
    if config.get(key) is None:
        raise InvalidInput(f"config.{key}", "is missing")
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"config.{key}", f"{value!r} is not a whole number above 0")
    return value


def _optional_count(config: Mapping[str, object], key: str) -> int | None:
    return None if config.get(key) is None else _count(config, key)


def _flag(config: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise InvalidInput(f"config.{key}", f"{value!r} is neither true nor false")
    return value


def _dtype(config: Mapping[str, object]) -> str:
    # transformers 5 writes `dtype`, earlier releases `torch_dtype`.
    value = config.get("dtype") or config.get("torch_dtype") or UNSTATED_DTYPE
    return str(value).removeprefix("torch.")
