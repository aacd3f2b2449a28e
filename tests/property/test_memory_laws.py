"""Laws of memory accounting: what more memory, wider caches and more ranks can and cannot do."""

import math
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, Mixer
from advisor.roofline.memory import (
    KV_FORMATS,
    CacheSettings,
    DeviceMemory,
    KvCapacity,
    MemoryPlan,
    Verdict,
    cache_layout,
    fit,
    kv_format,
    kv_heads_per_rank,
    memory_budget,
    weight_bytes_per_rank,
)
from advisor.units import GIB
from tests.golden.layouts.cases import shape

LENGTHS = st.integers(1, 200_000)
KV_HEADS = st.sampled_from([1, 2, 4, 8])
WIDTHS = st.sampled_from([64, 96, 128, 256])


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Full or windowed attention."""
    return Attention(
        heads=16,
        kv_heads=draw(KV_HEADS),
        head_dim=draw(WIDTHS),
        window=draw(st.sampled_from([None, 128, 1024])),
    )


MIXERS: st.SearchStrategy[Mixer] = st.one_of(
    attentions(),
    st.just(
        LatentAttention(
            heads=16, kv_rank=512, query_rank=None, nope_dim=128, rope_dim=64, value_dim=128
        )
    ),
    st.just(GatedDeltaNet(key_heads=8, value_heads=16, key_dim=64, value_dim=64, kernel=4)),
    st.just(Mamba2(inner=2048, heads=32, head_dim=64, state=64, groups=8, kernel=4)),
)
SETTINGS = st.builds(
    CacheSettings,
    dtype=st.just("bfloat16"),
    max_model_len=LENGTHS,
    max_num_batched_tokens=st.sampled_from([256, 2048, 8192]),
    block_size=st.sampled_from([16, 32, 64, 128]),
    tensor_parallel=st.sampled_from([1, 2, 4]),
    async_scheduling=st.booleans(),
    enable_prefix_caching=st.booleans(),
    num_speculative_tokens=st.integers(0, 4),
)


def plain(settings: CacheSettings, mixer: Attention, layers: int = 4) -> int:
    """Bytes of a block of a model of one kind of layer."""
    return cache_layout(shape((layers, mixer)), settings).bytes_per_block


@given(st.lists(st.tuples(st.integers(1, 30), attentions()), min_size=1, max_size=3), SETTINGS)
def test_every_layer_is_in_one_group(
    layers: list[tuple[int, Attention]], settings: CacheSettings
) -> None:
    """Groups hold all layers; no group is wider than the block; padding is what is left."""
    layout = cache_layout(shape(*layers), settings)
    assert sum(group.layers for group in layout.groups) == sum(count for count, _ in layers)
    assert all(group.page_bytes <= layout.bytes_per_block for group in layout.groups)
    assert all(0 < group.used_bytes <= group.page_bytes for group in layout.groups)
    assert 0 <= layout.padding_share < 1


@given(MIXERS, SETTINGS, st.integers(2, 10**6), st.integers(0, 10**6))
def test_more_memory_never_holds_less(
    mixer: Mixer, settings: CacheSettings, blocks: int, more: int
) -> None:
    """Blocks, tokens, concurrency and requests rise with the pool."""
    layout = cache_layout(shape((3, mixer)), settings)
    small = KvCapacity(num_blocks=blocks, layout=layout)
    large = KvCapacity(num_blocks=blocks + more, layout=layout)
    length = settings.max_model_len
    assert large.tokens >= small.tokens
    assert large.max_concurrency(length) >= small.max_concurrency(length)
    assert large.requests(length) >= small.requests(length)
    assert large.longest_request() >= small.longest_request()


@given(attentions(), SETTINGS, LENGTHS, st.integers(0, 5000))
def test_blocks_hold_the_tokens_and_grow_with_them(
    mixer: Attention, settings: CacheSettings, tokens: int, more: int
) -> None:
    """Full attention: blocks times their size are enough, one less is not; windows hold less."""
    layout = cache_layout(shape((3, mixer)), settings)
    blocks = layout.request_blocks(tokens)
    assert layout.request_blocks(tokens + more) >= blocks
    if mixer.window is None:
        assert blocks * layout.block_size >= tokens > (blocks - 1) * layout.block_size
    else:
        live = min(tokens, mixer.window - 1 + settings.in_flight_tokens)
        assert blocks == math.ceil(live / layout.block_size) + 1


@given(attentions(), SETTINGS, st.sampled_from(sorted(KV_FORMATS)), st.data())
def test_wider_tokens_never_leave_more_room(
    mixer: Attention, settings: CacheSettings, name: str, data: st.DataObject
) -> None:
    """Of two formats the one with more bytes per token has the larger block."""
    names = [n for n, f in KV_FORMATS.items() if f.heads and not f.plain_ends]
    assume(name in names)
    other = data.draw(st.sampled_from(names))
    one, two = kv_format(name, "bfloat16"), kv_format(other, "bfloat16")
    wide, narrow = (plain(replace(settings, kv_cache_dtype=fmt.name), mixer) for fmt in (one, two))
    by_head = [fmt.head_bytes(mixer.head_dim, mixer.values) for fmt in (one, two)]
    assert (wide >= narrow) == (by_head[0] >= by_head[1])


@given(attentions(), SETTINGS)
def test_more_ranks_never_cost_a_rank_more(mixer: Attention, settings: CacheSettings) -> None:
    """Cache and weights of one rank fall or stay; all ranks together never hold less."""
    sizes = [plain(replace(settings, tensor_parallel=ranks), mixer) for ranks in (1, 2, 4, 8, 16)]
    assert sizes == sorted(sizes, reverse=True)
    whole = [size * ranks for size, ranks in zip(sizes, (1, 2, 4, 8, 16), strict=True)]
    assert whole == sorted(whole)
    assert kv_heads_per_rank(mixer.kv_heads, 16) == 1
    model = replace(shape((4, mixer)), hidden_size=1024, vocab_size=64 * 16)
    weights = [weight_bytes_per_rank(model, ranks) for ranks in (1, 2, 4, 8, 16)]
    assert weights == sorted(weights, reverse=True)


@given(
    st.floats(1, 200), st.floats(0.1, 0.95), st.integers(256, 100_000), st.sampled_from([1, 2, 4])
)
def test_terms_are_ordered_and_the_verdict_follows_the_interval(
    gib: float, share: float, length: int, ranks: int
) -> None:
    """Low <= centre <= high; what fits at the low end fits; more memory never fits worse."""
    model = replace(
        shape((32, Attention(heads=32, kv_heads=8, head_dim=128))),
        hidden_size=4096,
        vocab_size=128_256,
    )
    settings = CacheSettings(dtype="bfloat16", max_model_len=length, tensor_parallel=ranks)
    device = DeviceMemory(kind="cuda", total_bytes=round(gib * GIB), utilization=share)
    plan = MemoryPlan(model=model, settings=settings, device=device, max_num_seqs=256)
    budget = memory_budget(plan)
    assert budget.kv_bytes.low <= budget.kv_bytes.value <= budget.kv_bytes.high
    order = [Verdict.DOES_NOT_FIT, Verdict.UNCERTAIN, Verdict.FITS]
    larger = replace(plan, device=replace(device, total_bytes=2 * device.total_bytes))
    found, better = fit(plan), fit(larger)
    assert order.index(better.verdict) >= order.index(found.verdict)
    assert (found.verdict is Verdict.FITS) == (budget.kv_bytes.low >= found.needed_bytes)
    if found.verdict is Verdict.FITS:
        assert budget.requests(length).low >= 1
