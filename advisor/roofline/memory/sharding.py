"""What one rank of a tensor-parallel engine holds (handbook 2.1 and 2.3; case M-12, E-15)."""

import math

from advisor.errors import InvalidInput
from advisor.llm import LayerGroup, ModelShape, dtype_bytes
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2

_VOCABULARY_STEP = 64  # vLLM pads the vocabulary to a multiple of this on every rank


def kv_heads_per_rank(kv_heads: int, tensor_parallel: int) -> int:
    """KV heads on one rank: at least one, so that they are copied when ranks outnumber them.

    Ranks that neither divide the heads nor are a multiple of them raise `InvalidInput`.
    """
    _positive(tensor_parallel)
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise InvalidInput(
            "tensor_parallel", f"{tensor_parallel} neither divides nor repeats {kv_heads} KV heads"
        )
    return max(1, kv_heads // tensor_parallel)


def kv_replicas(model: ModelShape, tensor_parallel: int) -> int:
    """How many ranks hold the same keys and values (the least over all attention layers)."""
    copies = [
        tensor_parallel
        if isinstance(mixer, LatentAttention)
        else max(1, tensor_parallel // mixer.kv_heads)
        for mixer in (group.mixer for group in model.layers)
        if isinstance(mixer, Attention | LatentAttention)
    ]
    return min(copies, default=1)


def tensor_parallel_sizes(model: ModelShape, most: int) -> tuple[int, ...]:
    """Sizes up to `most` at which heads, KV heads and widths of every layer shard (case E-15)."""
    return tuple(size for size in range(1, most + 1) if _shards(model, size))


def _shards(model: ModelShape, size: int) -> bool:
    for group in model.layers:
        mixer, feed_forward = group.mixer, group.feed_forward
        if feed_forward is not None and feed_forward.intermediate % size:
            return False
        if isinstance(mixer, Attention) and mixer.kv_heads % size and size % mixer.kv_heads:
            return False
        if isinstance(mixer, GatedDeltaNet) and mixer.value_heads % size:
            return False
        if isinstance(mixer, Attention | LatentAttention | Mamba2) and mixer.heads % size:
            return False
    return True


def weight_bytes_per_rank(
    model: ModelShape, tensor_parallel: int = 1, dtype: str | None = None
) -> int:
    """Weight bytes on one rank.

    Matrices of the blocks and the vocabulary are split; KV projections are copied where ranks
    outnumber the KV heads; norms, the latent's down-projections, routers and positions are on every
    rank. The vocabulary is padded to a multiple of 64 per rank. Modules beside the text model are
    counted in full: vLLM splits some of them.
    """
    _positive(tensor_parallel)
    if tensor_parallel == 1:
        return model.weight_bytes(dtype)
    width = dtype_bytes(dtype or model.dtype)
    tables = 1 if model.tied_embeddings else 2
    step = _VOCABULARY_STEP * tensor_parallel
    padded = math.ceil(model.vocab_size / step) * step - model.vocab_size
    whole = model.weight_bytes(dtype) + padded * model.hidden_size * tables * width
    packed = model.linear_format(dtype).bytes_per_parameter
    kept = sum(
        group.count * _copied_bytes(group, model.hidden_size, (width, packed), tensor_parallel)
        for group in model.layers
    )
    alone = model.final_norms * model.hidden_size + model.position_parameters
    kept += (alone + model.tower_parameters) * width
    return round(kept + (whole - kept) / tensor_parallel)


def _copied_bytes(
    group: LayerGroup, hidden: int, widths: tuple[float, float], tensor_parallel: int
) -> float:
    """Bytes of one layer that a further rank adds instead of sharing.

    What r ranks hold of a matrix that only n of them can share counts as (r - n) / (r - 1) of it:
    the part that, kept whole with the rest split by r, gives 1 / n.
    """
    width, packed = widths
    mixing = width if group.plain_mixer else packed
    norms = group.norms * hidden * (2 if group.norm_bias else 1) * width
    router = 0.0
    if group.feed_forward is not None and group.feed_forward.kind == "experts":
        router = hidden * group.feed_forward.experts * width
    mixer = group.mixer
    if isinstance(mixer, LatentAttention):
        down = mixer.kv_rank + mixer.rope_dim + (mixer.query_rank or 0)
        return norms + router + hidden * down * mixing + mixer.extra_parameters(hidden) * width
    if isinstance(mixer, Attention) and tensor_parallel > mixer.kv_heads:
        copied = (tensor_parallel - mixer.kv_heads) / (tensor_parallel - 1) / mixer.kv_heads
        return norms + router + hidden * mixer.kv_elements * mixing * copied
    return norms + router


def state_elements_per_rank(
    mixer: Mamba2 | GatedDeltaNet, tensor_parallel: int, drafted: int
) -> tuple[int, int]:
    """Elements of one request's convolution tail and recurrent state on one rank.

    A drafted token lengthens the tail by one (vLLM 0.32, layers/mamba/mamba_utils.py). Groups that
    the ranks do not divide are copied so that each rank has one.
    """
    _positive(tensor_parallel)
    tail = mixer.kernel - 1 + drafted
    if isinstance(mixer, GatedDeltaNet):
        state = mixer.value_heads * mixer.value_dim * mixer.key_dim
        return tail * _split(mixer.convolved, tensor_parallel), _split(state, tensor_parallel)
    spare = 0 if mixer.groups % tensor_parallel == 0 else tensor_parallel - mixer.groups
    convolved = mixer.convolved + 2 * max(0, spare) * mixer.state
    state = mixer.heads * mixer.head_dim * mixer.state
    return tail * _split(convolved, tensor_parallel), _split(state, tensor_parallel)


def _split(elements: int, ranks: int) -> int:
    if elements % ranks:
        raise InvalidInput("tensor_parallel", f"{ranks} ranks do not divide a recurrent state")
    return elements // ranks


def _positive(tensor_parallel: int) -> None:
    if tensor_parallel < 1:
        raise InvalidInput("tensor_parallel", f"{tensor_parallel} is below 1")
