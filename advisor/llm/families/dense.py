"""Dense decoders: one gated network per layer, grouped-query attention, some with windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.llm.families.parts import (
    FULL,
    SLIDING,
    Blueprint,
    Family,
    Habits,
    attending,
    attention,
    blueprint,
    every,
    gated,
    windows,
)
from advisor.llm.feed_forward import DenseFeedForward
from advisor.llm.keys import Keys
from advisor.llm.shape import LayerGroup

_GEMMA3_PERIOD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Habits):
    """Decoders with one gated network in each layer.

    `window` is how the window is switched: "never", "always" where one is stated, "switched" by
    `use_sliding_window` from layer `max_window_layers` on, "alternating" with full attention in
    every second layer, "pattern" with full attention in every n-th. `norms` are per layer.
    """

    window: str = "never"
    norms: int = 2

    def __call__(self, keys: Keys) -> Blueprint:
        """Layers of the config."""
        count = keys.count("num_hidden_layers")
        network = gated(keys, bias=keys.flag("mlp_bias", default=False))
        reach = self.windows(keys, count)
        layers = attending(self.attention(keys), reach, (network,) * count, norms=self.norms)
        return blueprint(keys, layers, tied=self.tied)

    def windows(self, keys: Keys, count: int) -> tuple[int | None, ...]:
        """The window of each layer."""
        return windows(keys, count, _WINDOWS[self.window](keys, count))


def _never(keys: Keys, count: int) -> Sequence[str]:
    del keys
    return (FULL,) * count


def _always(keys: Keys, count: int) -> Sequence[str]:
    del keys
    return (SLIDING,) * count


def _switched(keys: Keys, count: int) -> Sequence[str]:
    first = keys.optional_number("max_window_layers") or 0
    return tuple(SLIDING if layer >= first else FULL for layer in range(count))


def _alternating(keys: Keys, count: int) -> Sequence[str]:
    del keys
    return every(count, 2)


def _pattern(keys: Keys, count: int) -> Sequence[str]:
    stated = keys.optional("sliding_window_pattern", "_sliding_window_pattern")
    return every(count, stated or _GEMMA3_PERIOD)


_WINDOWS = {
    "never": _never,
    "always": _always,
    "switched": _switched,
    "alternating": _alternating,
    "pattern": _pattern,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A family whose window binds only with `use_sliding_window`, and then as `dense` says."""

    dense: Dense

    def __call__(self, keys: Keys) -> Blueprint:
        """Layers of the config; a window that is switched off is no window."""
        if not keys.flag("use_sliding_window", default=False):
            keys = Keys({**keys.values, "sliding_window": None}, keys.path, keys.defaults)
        return self.dense(keys)


def _starcoder2(keys: Keys) -> Blueprint:
    """Biases everywhere, a plain network of two matrices, norms with bias."""
    bias = keys.flag("use_bias", default=True)
    count = keys.count("num_hidden_layers")
    network = DenseFeedForward(intermediate=keys.count("intermediate_size"), gated=False, bias=bias)
    layers = [
        LayerGroup(
            count=1,
            mixer=replace(attention(keys), window=window, bias=bias, output_bias=bias),
            feed_forward=network,
            norm_bias=True,
        )
        for window in windows(keys, count, (SLIDING,) * count)
    ]
    return replace(blueprint(keys, layers, tied=True), final_norms=2)


DENSE: Mapping[str, Family] = {
    "LlamaForCausalLM": Dense(),
    "MistralForCausalLM": Dense(window="always"),
    "MinistralForCausalLM": Dense(window="always"),
    "Qwen2ForCausalLM": Switched(dense=Dense(qkv_bias=True, window="switched")),
    "Qwen3ForCausalLM": Switched(dense=Dense(qk_norm=True, window="switched")),
    "GemmaForCausalLM": Dense(tied=True),
    "Gemma2ForCausalLM": Dense(tied=True, window="alternating", norms=4),
    "Gemma3ForCausalLM": Dense(tied=True, qk_norm=True, window="pattern", norms=4),
    "Phi3ForCausalLM": Dense(window="always"),
    "GraniteForCausalLM": Dense(),
    "SmolLM3ForCausalLM": Switched(dense=Dense(tied=True, window="always")),
    "Olmo2ForCausalLM": Dense(wide_norm=True),
    "Starcoder2ForCausalLM": _starcoder2,
}
