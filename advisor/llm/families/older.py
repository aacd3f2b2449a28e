"""Decoders of before 2023: plain networks of two matrices, norms with bias, learned positions."""

from collections.abc import Mapping
from dataclasses import replace

from advisor.errors import UnsupportedArchitecture
from advisor.llm.families.parts import Blueprint, Family, head_dim
from advisor.llm.feed_forward import DenseFeedForward
from advisor.llm.keys import Keys
from advisor.llm.mixers import Attention
from advisor.llm.shape import LayerGroup

_OPT_OFFSET = 2  # OPT's table of positions starts two before the first token
_FEED_FORWARD_RATIO = 4


def _mixer(hidden: int, heads: int, kv_heads: int, *, bias: bool) -> Attention:
    return Attention(
        heads=heads, kv_heads=kv_heads, head_dim=hidden // heads, bias=bias, output_bias=bias
    )


def _decoder(keys: Keys, layer: LayerGroup, sizes: tuple[int, int], *, tied: bool) -> Blueprint:
    """`sizes` are hidden size and layers; the norm after the last layer has a bias too."""
    hidden, count = sizes
    return Blueprint(
        layers=(layer,) * count,
        hidden_size=hidden,
        vocab_size=keys.count("vocab_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", default=tied),
        max_position_embeddings=keys.optional("max_position_embeddings", "n_positions", "n_ctx"),
        final_norms=2,
    )


def _gpt2(keys: Keys) -> Blueprint:
    hidden, heads = keys.count("n_embd", "hidden_size"), keys.count("n_head", "num_attention_heads")
    wide = keys.optional("n_inner") or _FEED_FORWARD_RATIO * hidden
    one_head = keys.flag("multi_query", default=False)
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, 1 if one_head else heads, bias=True),
        feed_forward=DenseFeedForward(intermediate=wide, gated=False, bias=True),
        norm_bias=True,
    )
    layers = keys.count("n_layer", "num_hidden_layers")
    positions = keys.count("n_positions", "max_position_embeddings")
    found = _decoder(keys, layer, (hidden, layers), tied=True)
    return replace(found, position_parameters=positions * hidden)


def _gpt_bigcode(keys: Keys) -> Blueprint:
    return _gpt2(keys.having({"multi_query": True}))


def _gpt_j(keys: Keys) -> Blueprint:
    """Attention and network beside each other behind one norm; the head has a bias."""
    hidden, heads = keys.count("n_embd", "hidden_size"), keys.count("n_head", "num_attention_heads")
    wide = keys.optional("n_inner") or _FEED_FORWARD_RATIO * hidden
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, heads, bias=False),
        feed_forward=DenseFeedForward(intermediate=wide, gated=False, bias=True),
        norms=1,
        norm_bias=True,
    )
    layers = keys.count("n_layer", "num_hidden_layers")
    return replace(_decoder(keys, layer, (hidden, layers), tied=False), head_bias=True)


def _gpt_neox(keys: Keys) -> Blueprint:
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, heads, bias=keys.flag("attention_bias", default=True)),
        feed_forward=DenseFeedForward(
            intermediate=keys.count("intermediate_size"), gated=False, bias=True
        ),
        norm_bias=True,
    )
    return _decoder(keys, layer, (hidden, keys.count("num_hidden_layers")), tied=False)


def _opt(keys: Keys) -> Blueprint:
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    if (keys.optional("word_embed_proj_dim") or hidden) != hidden:
        raise UnsupportedArchitecture("OPTForCausalLM with word_embed_proj_dim", tuple(OLDER))
    bias = keys.flag("enable_bias", default=True)
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, heads, bias=bias),
        feed_forward=DenseFeedForward(intermediate=keys.count("ffn_dim"), gated=False, bias=bias),
        norm_bias=True,
    )
    positions = keys.count("max_position_embeddings") + _OPT_OFFSET
    last = keys.flag("do_layer_norm_before", default=True)
    found = _decoder(keys, layer, (hidden, keys.count("num_hidden_layers")), tied=True)
    return replace(found, position_parameters=positions * hidden, final_norms=2 if last else 0)


def _bloom(keys: Keys) -> Blueprint:
    """Positions by slope (no parameters), and a norm behind the embedding."""
    hidden = keys.count("hidden_size", "n_embed")
    heads = keys.count("n_head", "num_attention_heads")
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, heads, bias=True),
        feed_forward=DenseFeedForward(
            intermediate=_FEED_FORWARD_RATIO * hidden, gated=False, bias=True
        ),
        norm_bias=True,
    )
    layers = keys.count("n_layer", "num_hidden_layers")
    found = _decoder(keys, layer, (hidden, layers), tied=True)
    return replace(found, final_norms=4, max_position_embeddings=keys.optional("seq_length"))


def _falcon(keys: Keys) -> Blueprint:
    """One norm where attention and network stand beside each other, two in the newer form."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads", "n_head")
    newer = keys.flag("new_decoder_architecture", default=False)
    beside = keys.flag("parallel_attn", default=True)
    bias = keys.flag("bias", default=False)
    kv_heads = keys.optional("num_kv_heads", "n_head_kv") or heads
    if not newer:
        kv_heads = 1 if keys.flag("multi_query", default=True) else heads
    two = keys.optional("num_ln_in_parallel_attn") != 1 if newer else not beside
    layer = LayerGroup(
        count=1,
        mixer=replace(
            _mixer(hidden, heads, kv_heads, bias=bias),
            head_dim=head_dim(keys, heads),
        ),
        feed_forward=DenseFeedForward(
            intermediate=keys.optional("ffn_hidden_size") or _FEED_FORWARD_RATIO * hidden,
            gated=False,
            bias=bias,
        ),
        norms=2 if two else 1,
        norm_bias=True,
    )
    layers = keys.count("num_hidden_layers", "n_layer")
    return _decoder(keys, layer, (hidden, layers), tied=True)


def _phi(keys: Keys) -> Blueprint:
    """Phi-2: attention and network beside each other behind one norm, biases everywhere."""
    hidden, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    layer = LayerGroup(
        count=1,
        mixer=_mixer(hidden, heads, keys.optional("num_key_value_heads") or heads, bias=True),
        feed_forward=DenseFeedForward(
            intermediate=keys.count("intermediate_size"), gated=False, bias=True
        ),
        norms=1,
        norm_bias=True,
    )
    found = _decoder(keys, layer, (hidden, keys.count("num_hidden_layers")), tied=False)
    return replace(found, head_bias=True)


OLDER: Mapping[str, Family] = {
    "GPT2LMHeadModel": _gpt2,
    "GPTBigCodeForCausalLM": _gpt_bigcode,
    "GPTJForCausalLM": _gpt_j,
    "GPTNeoXForCausalLM": _gpt_neox,
    "OPTForCausalLM": _opt,
    "BloomForCausalLM": _bloom,
    "FalconForCausalLM": _falcon,
    "PhiForCausalLM": _phi,
}
