"""A model's layers as lines of a table, one per kind of layer."""

from collections.abc import Mapping
from typing import assert_never

from advisor.llm import LayerGroup, ModelShape
from advisor.llm.feed_forward import DenseFeedForward, FeedForward
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, Mixer, NoMixer


def layer_rows(shape: ModelShape) -> list[Mapping[str, str]]:
    """Every kind of layer: how many, how it mixes tokens, its network, its weights' format."""
    return [
        {
            "layers": str(group.count),
            "mixes tokens by": mixer_text(group.mixer),
            "feed-forward": feed_forward_text(group.feed_forward),
            "weights": group_format(shape, group),
        }
        for group in shape.layers
    ]


def mixer_text(mixer: Mixer) -> str:
    """Kind and sizes of the half of a layer that looks at other tokens."""
    match mixer:
        case Attention():
            reach = "" if mixer.window is None else f", window of {mixer.window:,} tokens"
            heads = f"{mixer.heads} heads of {mixer.head_dim}, {mixer.kv_heads} for keys and values"
            return f"attention: {heads}{reach}"
        case LatentAttention():
            return f"latent attention: {mixer.heads} heads, {mixer.kv_elements} elements per token"
        case Mamba2():
            return f"Mamba 2: {mixer.heads} heads of {mixer.head_dim}, state of {mixer.state}"
        case GatedDeltaNet():
            sizes = f"{mixer.key_dim} by {mixer.value_dim}"
            return f"gated delta net: {mixer.value_heads} heads, state of {sizes}"
        case NoMixer():
            return "nothing"
        case _:
            assert_never(mixer)


def feed_forward_text(feed_forward: FeedForward | None) -> str:
    """Width of the network, or how many experts work."""
    if feed_forward is None:
        return "none"
    if isinstance(feed_forward, DenseFeedForward):
        return f"{feed_forward.intermediate:,} wide{', gated' if feed_forward.gated else ''}"
    shared = feed_forward.shared_intermediate
    beside = f", and a shared one of {shared:,}" if shared else ""
    chosen = f"{feed_forward.active} of {feed_forward.experts} experts"
    return f"{chosen}, each {feed_forward.intermediate:,} wide{beside}"


def group_format(shape: ModelShape, group: LayerGroup) -> str:
    """Format of the group's matrices, and which half of a layer stayed as it was."""
    if shape.weights is None:
        return shape.dtype
    kept = {
        "mixing": group.plain_mixer,
        "feed-forward": group.plain_feed_forward and group.feed_forward is not None,
    }
    halves = [name for name, plain in kept.items() if plain]
    if not halves:
        return shape.weights.name
    return f"{shape.weights.name}; {' and '.join(halves)} in {shape.dtype}"


def weights_note(shape: ModelShape) -> str:
    """What the size of the weights counts."""
    if shape.weights is None:
        return f"as saved, {shape.dtype}"
    return f"blocks in {shape.weights.name}, the rest in {shape.dtype}"
