"""A model as its arithmetic needs it: groups of equal layers, embeddings, head, weight format."""

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.llm.feed_forward import DenseFeedForward, FeedForward
from advisor.llm.formats import WeightFormat, dtype_bytes, plain
from advisor.llm.mixers import Attention, LatentAttention, Mixer


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers. `norms` is how many norms of the hidden size one of them has.

    `plain_mixer` and `plain_feed_forward` say that a quantized checkpoint leaves those matrices in
    the model's dtype. `norm_bias` gives every norm a bias too.
    """

    count: int
    mixer: Mixer
    feed_forward: FeedForward | None = None
    norms: int = 2
    norm_bias: bool = False
    plain_mixer: bool = False
    plain_feed_forward: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidInput("model.layers", f"{self.count} layers of a kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder.

    `dtype` is the one the checkpoint was saved in, `weights` the format of its block matrices where
    it is quantized (None: `dtype`); embeddings and head keep `dtype` unless `quantized_head`.
    `position_parameters` are learned positions, `tower_parameters` modules beside the text model
    (vision towers, projectors), which take memory and no part in a text step.
    `image_tokens` is what one image takes of the context, where that does not depend on its size.
    `max_position_embeddings` is None where the config does not say. `notes` name what was not
    understood and counted conservatively: a figure of such a model is not exact.
    """

    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerGroup, ...]
    tied_embeddings: bool
    dtype: str
    max_position_embeddings: int | None
    weights: WeightFormat | None = None
    quantized_head: bool = False
    position_parameters: int = 0
    tower_parameters: int = 0
    image_tokens: int | None = None
    final_norms: int = 1
    head_bias: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("hidden_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"model.{name}", f"{getattr(self, name)} is below 1")
        if not self.layers:
            raise InvalidInput("model.layers", "a model has at least one layer")
        if self.max_position_embeddings is not None and self.max_position_embeddings < 1:
            raise InvalidInput("model.max_position_embeddings", "is below 1")
        dtype_bytes(self.dtype)

    # ------------------------------------------------------------------ what is there

    @property
    def num_layers(self) -> int:
        """All layers."""
        return sum(group.count for group in self.layers)

    @property
    def attention(self) -> Attention | LatentAttention | None:
        """The first kind of attention layer; None in a purely recurrent model."""
        return next(
            (g.mixer for g in self.layers if isinstance(g.mixer, Attention | LatentAttention)), None
        )

    @property
    def is_mixture(self) -> bool:
        """Whether any layer chooses among experts."""
        return any(
            g.feed_forward is not None and not isinstance(g.feed_forward, DenseFeedForward)
            for g in self.layers
        )

    # ------------------------------------------------------------------ parameters

    @property
    def linear_parameters(self) -> int:
        """Matrix weights stored in all blocks (handbook 1.2, P_lin; of every expert)."""
        return sum(group.count * sum(_matrices(group, self.hidden_size)) for group in self.layers)

    @property
    def active_linear_parameters(self) -> int:
        """Matrix weights of all blocks that one token multiplies with."""
        return sum(group.count * _active(group, self.hidden_size) for group in self.layers)

    @property
    def head_parameters(self) -> int:
        """Weights of the output head, which multiplies whether or not it is tied (case M-09)."""
        return self.vocab_size * self.hidden_size

    @property
    def matmul_parameters(self) -> int:
        """Weights that take part in one token's products: active blocks and head, no look-up."""
        return self.active_linear_parameters + self.head_parameters

    @property
    def parameters(self) -> int:
        """All stored parameters of the text model; a tied table is stored once."""
        hidden = self.hidden_size
        tables = 1 if self.tied_embeddings else 2
        return (
            self.linear_parameters
            + sum(group.count * _extras(group, hidden) for group in self.layers)
            + self.final_norms * hidden
            + tables * self.head_parameters
            + (self.vocab_size if self.head_bias else 0)
            + self.position_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters of which one token uses: all but the idle experts."""
        return self.parameters - self.linear_parameters + self.active_linear_parameters

    # ------------------------------------------------------------------ bytes

    def linear_format(self, dtype: str | None = None) -> WeightFormat:
        """Format of the block matrices; a quantized checkpoint keeps its own."""
        return self.weights or plain(dtype or self.dtype)

    def weight_bytes(self, dtype: str | None = None) -> int:
        """Memory of all stored parameters, towers included; what is not quantized is in `dtype`."""
        width = dtype_bytes(dtype or self.dtype)
        packed = self.linear_format(dtype).bytes_per_parameter
        linear = sum(
            group.count * (part * (width if kept else packed) + router * width)
            for group in self.layers
            for part, router, kept in _formatted(group, self.hidden_size)
        )
        head = self.head_parameters if self.quantized_head and not self.tied_embeddings else 0
        others = self.parameters - self.linear_parameters - head + self.tower_parameters
        return round(linear + others * width + head * self.linear_format(dtype).bytes_per_parameter)

    def head_bytes(self, dtype: str | None = None) -> float:
        """Bytes of the output head, read once by a step that samples."""
        quantized = self.quantized_head and not self.tied_embeddings
        width = (
            self.linear_format(dtype).bytes_per_parameter
            if quantized
            else float(dtype_bytes(dtype or self.dtype))
        )
        return self.head_parameters * width

    def linear_bytes(
        self, tokens: float = 1.0, dtype: str | None = None, *, skew: float = 1.0
    ) -> float:
        """Bytes of block weights that a step of `tokens` reads: idle experts are not read.

        `skew` is that of `Experts.distinct`.
        """
        width = dtype_bytes(dtype or self.dtype)
        packed = self.linear_format(dtype).bytes_per_parameter
        hidden = self.hidden_size
        total = 0.0
        for group in self.layers:
            total += (
                group.count
                * group.mixer.matmul_parameters(hidden)
                * (width if group.plain_mixer else packed)
            )
            if group.feed_forward is not None:
                router = group.feed_forward.router_parameters(hidden) if tokens > 0 else 0
                touched = group.feed_forward.touched_parameters(hidden, tokens, skew) - router
                network = width if group.plain_feed_forward else packed
                total += group.count * (touched * network + router * width)
        return total

    def step_weight_bytes(self, dtype: str | None = None, tokens: float = 1.0) -> float:
        """Weight bytes that one step reads: blocks and the head once (handbook 1.3)."""
        return self.linear_bytes(tokens, dtype) + self.head_bytes(dtype)

    def kv_bytes_per_token(self, kv_dtype_bytes: float = 2) -> int:
        """Cache bytes that one token keeps in all layers on one rank (handbook 2.1, kappa).

        A windowed layer counts as full: it holds less only beyond its window.
        """
        return round(sum(g.count * g.mixer.kv_elements for g in self.layers) * kv_dtype_bytes)

    def state_bytes(self, dtype_bytes_: float = 2) -> int:
        """Bytes of recurrent state that one request keeps whatever its length."""
        return round(sum(g.count * g.mixer.state_elements for g in self.layers) * dtype_bytes_)

    def cache_read_bytes(self, context: float, kv_dtype_bytes: float = 2) -> float:
        """Cache bytes that one decoding query at `context` reads in all layers, state included."""
        return sum(
            g.count
            * (g.mixer.kv_elements * g.mixer.live_tokens(context) + g.mixer.state_elements)
            * kv_dtype_bytes
            for g in self.layers
        )

    # ------------------------------------------------------------------ FLOP

    def flops_per_token(self) -> int:
        """FLOP of one decoded token without its attention: 2 per matrix weight."""
        return 2 * self.matmul_parameters

    def attention_flops(self, context_tokens: float) -> float:
        """FLOP of one query over `context_tokens` keys, all layers (handbook 1.2)."""
        return sum(g.count * g.mixer.decode_flops(context_tokens) for g in self.layers)

    def prefill_attention_flops(self, new_tokens: float, cached_tokens: float = 0) -> float:
        """FLOP of causal attention of `new_tokens` after `cached_tokens`: half the square."""
        return sum(g.count * g.mixer.prefill_flops(new_tokens, cached_tokens) for g in self.layers)


def _matrices(group: LayerGroup, hidden: int) -> Iterator[int]:
    yield group.mixer.matmul_parameters(hidden)
    if group.feed_forward is not None:
        yield group.feed_forward.matmul_parameters(hidden)


def _active(group: LayerGroup, hidden: int) -> int:
    mixer, feed_forward = group.mixer, group.feed_forward
    working = 0 if feed_forward is None else feed_forward.active_parameters(hidden)
    return mixer.matmul_parameters(hidden) + working


def _formatted(group: LayerGroup, hidden: int) -> Iterator[tuple[int, int, bool]]:
    """Weights of each half without its router, the router, and whether the half stays plain."""
    yield group.mixer.matmul_parameters(hidden), 0, group.plain_mixer
    network = group.feed_forward
    if network is not None:
        router = network.router_parameters(hidden)
        yield network.matmul_parameters(hidden) - router, router, group.plain_feed_forward


def _extras(group: LayerGroup, hidden: int) -> int:
    feed_forward = 0 if group.feed_forward is None else group.feed_forward.extra_parameters(hidden)
    norms = group.norms * hidden * (2 if group.norm_bias else 1)
    return group.mixer.extra_parameters(hidden) + feed_forward + norms


def dense_model(  # noqa: PLR0913
    *,
    architecture: str,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    tied_embeddings: bool,
    max_position_embeddings: int | None,
    dtype: str,
    attention_bias: bool = False,
    output_bias: bool = False,
    qk_norm: bool = False,
) -> ModelShape:
    """A decoder with gated feed-forward and grouped-query attention in every layer."""
    return ModelShape(
        architecture=architecture,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=(
            LayerGroup(
                count=num_layers,
                mixer=Attention(
                    heads=num_heads,
                    kv_heads=num_kv_heads,
                    head_dim=head_dim,
                    bias=attention_bias,
                    output_bias=output_bias,
                    qk_norm=qk_norm,
                ),
                feed_forward=DenseFeedForward(intermediate=intermediate_size),
            ),
        ),
        tied_embeddings=tied_embeddings,
        dtype=dtype,
        max_position_embeddings=max_position_embeddings,
    )
