"""Decoders with recurrent layers, alone or between attention, and with layers that lack a half."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm.families.parts import (
    FULL,
    Blueprint,
    Family,
    Habits,
    attention,
    blueprint,
    every,
    gated,
    layer_kinds,
    networks,
    sparse_layers,
)
from advisor.llm.feed_forward import DenseFeedForward, Experts, FeedForward
from advisor.llm.keys import Keys
from advisor.llm.mixers import Attention, GatedDeltaNet, Mamba2, Mixer, NoMixer
from advisor.llm.shape import LayerGroup

_LINEAR = "linear_attention"
_FULL_PERIOD = 4  # Qwen3-Next: every fourth layer is full attention
_RECURRENT = frozenset({"mamba", "mamba2", _LINEAR})
_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _mamba2(keys: Keys) -> Blueprint:
    """Nothing but state-space layers, one norm each."""
    hidden = keys.count("hidden_size")
    inner = hidden * (keys.optional("expand") or 2)
    heads, size = keys.count("num_heads"), keys.count("head_dim")
    if heads * size != inner:
        raise InvalidInput(keys.name("num_heads"), f"{heads} heads of {size} do not make {inner}")
    if keys.flag("use_bias", default=False) or not keys.flag("use_conv_bias", default=True):
        raise UnsupportedArchitecture("Mamba2ForCausalLM with other biases", tuple(HYBRID))
    mixer = Mamba2(
        inner=inner,
        heads=heads,
        head_dim=size,
        state=keys.count("state_size"),
        groups=keys.count("n_groups"),
        kernel=keys.optional("conv_kernel") or 4,
    )
    layers = [LayerGroup(count=1, mixer=mixer, norms=1)] * keys.count("num_hidden_layers")
    return blueprint(keys, layers, tied=False)


def _delta_net(keys: Keys) -> GatedDeltaNet:
    return GatedDeltaNet(
        key_heads=keys.count("linear_num_key_heads"),
        value_heads=keys.count("linear_num_value_heads"),
        key_dim=keys.count("linear_key_head_dim"),
        value_dim=keys.count("linear_value_head_dim"),
        kernel=keys.count("linear_conv_kernel_dim"),
    )


def _qwen3_next(keys: Keys) -> Blueprint:
    """Gated delta nets with gated full attention in every fourth layer; experts in most."""
    count = keys.count("num_hidden_layers")
    period = keys.optional("full_attention_interval") or _FULL_PERIOD
    kinds = layer_kinds(keys, count) or every(count, period, first=_LINEAR)
    full = replace(Habits(qk_norm=True).attention(keys), gated=True)
    mixers: Mapping[str, Mixer] = {FULL: full, _LINEAR: _delta_net(keys)}
    feed_forwards: Sequence[FeedForward]
    if keys.optional_number("num_experts"):
        experts = Experts(
            experts=keys.count("num_experts"),
            active=keys.count("num_experts_per_tok"),
            intermediate=keys.count("moe_intermediate_size"),
            shared_intermediate=keys.count("shared_expert_intermediate_size"),
            shared_gate=True,
        )
        feed_forwards = networks(sparse_layers(keys, count), experts, lambda: gated(keys))
    else:
        feed_forwards = (gated(keys),) * count
    layers = [
        LayerGroup(count=1, mixer=_known(keys, kind, mixers), feed_forward=network)
        for kind, network in zip(kinds, feed_forwards, strict=True)
    ]
    return blueprint(keys, layers, tied=False)


def _known(keys: Keys, kind: str, mixers: Mapping[str, Mixer]) -> Mixer:
    if kind not in mixers:
        raise InvalidInput(keys.name("layer_types"), f"{kind!r} is not known here")
    return mixers[kind]


def _bamba_mixer(keys: Keys) -> Mamba2:
    """State-space layers of Bamba and Granite 4."""
    inner = keys.count("hidden_size") * (keys.optional("mamba_expand") or 2)
    heads = keys.count("mamba_n_heads")
    if keys.flag("mamba_proj_bias", default=False) or inner % heads:
        raise InvalidInput(keys.name("mamba_n_heads"), f"{heads} heads do not divide {inner}")
    return Mamba2(
        inner=inner,
        heads=heads,
        head_dim=inner // heads,
        state=keys.count("mamba_d_state"),
        groups=keys.count("mamba_n_groups"),
        kernel=keys.optional("mamba_d_conv") or 4,
    )


def _bamba(keys: Keys) -> Blueprint:
    """A network behind each layer; `attn_layer_indices` names those with attention."""
    count = keys.count("num_hidden_layers")
    stated = keys.words("layers_block_type") or keys.words("layer_types")
    attending = keys.numbers("attn_layer_indices") or ()
    kinds = stated or tuple(
        "attention" if layer in attending else "mamba" for layer in range(count)
    )
    full = Habits().attention(keys)
    network = gated(keys, bias=keys.flag("mlp_bias", default=False))
    layers = _interleaved(keys, kinds, (_bamba_mixer(keys), full), network)
    return blueprint(keys, layers, tied=False)


def _granite_hybrid(keys: Keys) -> Blueprint:
    """As Bamba, with experts beside a shared network where there are any."""
    count = keys.count("num_hidden_layers")
    kinds = keys.words("layer_types") or keys.words("layers_block_type")
    if kinds is None:
        raise InvalidInput(keys.name("layer_types"), "is missing")
    shared = keys.count("shared_intermediate_size")
    network: FeedForward = DenseFeedForward(intermediate=shared)
    if keys.optional_number("num_local_experts"):
        network = Experts(
            experts=keys.count("num_local_experts"),
            active=keys.count("num_experts_per_tok"),
            intermediate=keys.count("intermediate_size"),
            shared_intermediate=shared,
        )
    full = Habits().attention(keys)
    if len(kinds) != count:
        raise InvalidInput(keys.name("layer_types"), f"{len(kinds)} kinds for {count} layers")
    layers = _interleaved(keys, kinds, (_bamba_mixer(keys), full), network)
    return blueprint(keys, layers, tied=False)


def _interleaved(
    keys: Keys, kinds: Sequence[str], mixers: tuple[Mamba2, Attention], network: FeedForward
) -> list[LayerGroup]:
    recurrent, full = mixers
    known: Mapping[str, Mixer] = {
        **dict.fromkeys(_RECURRENT, recurrent),
        FULL: full,
        "attention": full,
    }
    return [
        LayerGroup(count=1, mixer=_known(keys, kind, known), feed_forward=network) for kind in kinds
    ]


def _nemotron_h(keys: Keys) -> Blueprint:
    """Each layer is one half with one norm: a state-space, attention, network or expert layer."""
    pattern = keys.text("hybrid_override_pattern")
    kinds = keys.words("layers_block_type") or tuple(_NEMOTRON.get(sign, sign) for sign in pattern)
    if not kinds:
        raise InvalidInput(keys.name("hybrid_override_pattern"), "is missing")
    if keys.optional_number("moe_latent_size") or keys.flag("mlp_bias", default=False):
        raise UnsupportedArchitecture("NemotronHForCausalLM with latent experts", tuple(HYBRID))
    layers = [_half(keys, kind) for kind in kinds]
    return blueprint(keys, layers, tied=False)


def _half(keys: Keys, kind: str) -> LayerGroup:
    if kind in _RECURRENT:
        return LayerGroup(count=1, mixer=_nemotron_mixer(keys), norms=1)
    if kind in {"attention", FULL}:
        return LayerGroup(count=1, mixer=attention(keys), norms=1)
    network: FeedForward
    if kind == "mlp":
        network = DenseFeedForward(intermediate=keys.count("intermediate_size"), gated=False)
    elif kind == "moe":
        network = Experts(
            experts=keys.count("n_routed_experts", "num_local_experts"),
            active=keys.count("num_experts_per_tok"),
            intermediate=keys.count("moe_intermediate_size"),
            shared_intermediate=keys.count("moe_shared_expert_intermediate_size"),
            gated=False,
        )
    else:
        raise InvalidInput(keys.name("hybrid_override_pattern"), f"{kind!r} is not known here")
    return LayerGroup(count=1, mixer=NoMixer(), feed_forward=network, norms=1)


def _nemotron_mixer(keys: Keys) -> Mamba2:
    heads, size = keys.count("mamba_num_heads"), keys.count("mamba_head_dim")
    return Mamba2(
        inner=heads * size,
        heads=heads,
        head_dim=size,
        state=keys.count("ssm_state_size"),
        groups=keys.count("n_groups"),
        kernel=keys.optional("conv_kernel") or 4,
    )


def _deci(keys: Keys) -> Blueprint:
    """Llama layers each with its own KV heads and width, some without one of the halves."""
    count = keys.count("num_hidden_layers")
    heads = keys.count("num_attention_heads")
    per_layer = keys.numbers("num_key_value_heads_per_layer")
    if per_layer is not None:
        if len(per_layer) != count:
            raise InvalidInput(
                keys.name("num_key_value_heads_per_layer"),
                f"{len(per_layer)} values for {count} layers",
            )
        network = gated(keys)
        layers = [
            LayerGroup(count=1, mixer=attention(keys, kv_heads=found), feed_forward=network)
            for found in per_layer
        ]
        return blueprint(keys, layers, tied=False)
    blocks = keys.items("block_configs")
    if blocks is None or len(blocks) != count:
        raise InvalidInput(keys.name("block_configs"), f"has no {count} layers")
    found = [_block(keys, index, heads) for index in range(count)]
    return blueprint(keys, found, tied=False)


def _block(keys: Keys, index: int, heads: int) -> LayerGroup:
    """One entry of `block_configs` (Nemotron of neural architecture search)."""
    blocks = keys.items("block_configs") or ()
    entry = blocks[index]
    path = f"{keys.path}.block_configs[{index}]"
    if not isinstance(entry, Mapping):
        raise InvalidInput(path, "is not an object")
    block = Keys(entry, path)
    attending, network = block.section("attention"), block.section("ffn")
    if attending is None or network is None:
        raise InvalidInput(path, "has no attention or no ffn")
    for half in (attending, network):
        if half.flag("replace_with_linear", default=False):
            raise UnsupportedArchitecture("DeciLMForCausalLM with linear blocks", tuple(HYBRID))
    mixes = not attending.flag("no_op", default=False)
    works = not network.flag("no_op", default=False)
    mixer: Mixer = NoMixer()
    if mixes:
        mixer = attention(keys, kv_heads=heads // attending.count("n_heads_in_group"))
    width = _deci_width(keys, network) if works else 0
    return LayerGroup(
        count=1,
        mixer=mixer,
        feed_forward=DenseFeedForward(intermediate=width) if works else None,
        norms=int(mixes) + int(works),
    )


def _deci_width(keys: Keys, network: Keys) -> int:
    """Two thirds of so many hidden sizes, rounded up to 256 (its own modelling file)."""
    stated = network.optional("intermediate_size")
    if stated is not None:
        return stated
    ratio = network.raw("ffn_mult")
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or ratio <= 0:
        raise InvalidInput(network.name("ffn_mult"), f"{ratio!r} is not a number above 0")
    width = int(2 * ratio * keys.count("hidden_size") / 3)
    return -(-width // 256) * 256


HYBRID: Mapping[str, Family] = {
    "Mamba2ForCausalLM": _mamba2,
    "Qwen3NextForCausalLM": _qwen3_next,
    "Qwen3_5ForCausalLM": _qwen3_next,
    "Qwen3_5MoeForCausalLM": _qwen3_next,
    "BambaForCausalLM": _bamba,
    "GraniteMoeHybridForCausalLM": _granite_hybrid,
    "NemotronHForCausalLM": _nemotron_h,
    "DeciLMForCausalLM": _deci,
}
