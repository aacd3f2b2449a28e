"""Towers that look at images: parameters that sit in memory beside the text model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from advisor.llm.keys import Keys

_CLIP_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
_SIGLIP_DEFAULTS = {**_CLIP_DEFAULTS, "patch_size": 16}
_PIXTRAL_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "image_size": 1024,
    "patch_size": 16,
}
_QWEN2_DEFAULTS = {
    "depth": 32,
    "embed_dim": 1280,
    "mlp_ratio": 4,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_QWEN25_DEFAULTS = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
UNKNOWN_TOWER = "the vision tower is counted as a plain one of its sizes"
NO_TOWER = "the config has a vision part of which no size is known: its memory is not counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """Parameters of a tower with its projector, and what one image takes of the context."""

    parameters: int
    image_tokens: int | None = None
    notes: tuple[str, ...] = ()


Count: TypeAlias = Callable[[Keys, Keys, int], int]


def tower(keys: Keys, text_hidden: int) -> Tower | None:
    """The vision part of a config; None for a text model."""
    vision = keys.section("vision_config")
    if vision is None:
        return None
    stated = vision.optional("params")
    kind = vision.text("model_type") or _BY_MODEL.get(keys.text("model_type"), "")
    known = _TOWERS.get(kind)
    tokens = _image_tokens(keys, vision)
    if stated is not None:
        return Tower(parameters=stated, image_tokens=tokens)
    if known is not None:
        defaults, count = known
        held = vision.having(defaults)
        return Tower(parameters=count(held, keys, text_hidden), image_tokens=tokens)
    if vision.optional("hidden_size") and vision.optional("num_hidden_layers", "depth"):
        parameters = _plain(vision.having(_CLIP_DEFAULTS), text_hidden)
        return Tower(parameters=parameters, image_tokens=tokens, notes=(UNKNOWN_TOWER,))
    return Tower(parameters=0, image_tokens=tokens, notes=(NO_TOWER,))


def _image_tokens(keys: Keys, vision: Keys) -> int | None:
    """Stated, or patches of a tower whose images all have one size (LLaVA 1.5)."""
    stated = keys.optional("image_seq_length", "mm_tokens_per_image")
    if stated is not None:
        return stated
    if keys.text("model_type") != "llava" or vision.text("model_type") == "pixtral":
        return None
    side, patch = vision.optional("image_size"), vision.optional("patch_size")
    if side is None or patch is None:
        return None
    whole = (side // patch) ** 2
    return whole + (1 if keys.text("vision_feature_select_strategy", "default") == "full" else 0)


def _encoder(vision: Keys) -> int:
    """Layers of CLIP and SigLIP: four projections, two matrices, two norms, biases everywhere."""
    hidden, wide = vision.count("hidden_size"), vision.count("intermediate_size")
    attention = 4 * hidden * (hidden + 1)
    network = 2 * hidden * wide + wide + hidden
    return vision.count("num_hidden_layers", "depth") * (attention + network + 4 * hidden)


def _patches(vision: Keys) -> tuple[int, int]:
    """Weights of the patch embedding, and patches of an image."""
    patch = vision.count("patch_size")
    weights = vision.count("num_channels", "in_channels") * patch * patch
    return weights * vision.count("hidden_size"), (vision.count("image_size") // patch) ** 2


def _projector(keys: Keys, vision_hidden: int, text_hidden: int) -> int:
    """Two matrices with biases (LLaVA)."""
    bias = keys.flag("multimodal_projector_bias", default=True)
    return text_hidden * (vision_hidden + text_hidden + (2 if bias else 0))


def _clip(vision: Keys, keys: Keys, text_hidden: int) -> int:
    hidden = vision.count("hidden_size")
    embedding, patches = _patches(vision)
    around = embedding + hidden + (patches + 1) * hidden + 4 * hidden
    return around + _encoder(vision) + _projector(keys, hidden, text_hidden)


def _siglip(vision: Keys, keys: Keys, text_hidden: int) -> int:
    """With LLaVA's projector, or Gemma 3's single matrix with a norm."""
    hidden = vision.count("hidden_size")
    embedding, patches = _patches(vision)
    around = embedding + hidden + patches * hidden + 2 * hidden
    if keys.text("model_type") == "gemma3":
        projector = hidden * text_hidden + hidden
    else:
        projector = _projector(keys, hidden, text_hidden)
    return around + _encoder(vision) + projector


def _pixtral(vision: Keys, keys: Keys, text_hidden: int) -> int:
    """Gated networks without biases; Mistral 3 merges patches before its projector."""
    hidden, wide = vision.count("hidden_size"), vision.count("intermediate_size")
    embedding, _ = _patches(vision)
    layer = 4 * hidden * hidden + 3 * hidden * wide + 2 * hidden
    around = embedding + hidden + vision.count("num_hidden_layers") * layer
    if keys.text("model_type") != "mistral3":
        return around + _projector(keys, hidden, text_hidden)
    merged = (keys.optional("spatial_merge_size") or 2) ** 2 * hidden * hidden + hidden
    bias = keys.flag("multimodal_projector_bias", default=False)
    two = text_hidden * (hidden + text_hidden + (2 if bias else 0))
    return around + merged + two


def _qwen_patches(vision: Keys, hidden: int) -> int:
    patch = vision.count("patch_size")
    channels = vision.count("in_channels", "in_chans")
    return channels * vision.count("temporal_patch_size") * patch * patch * hidden


def _qwen_merger(vision: Keys, hidden: int, out: int) -> int:
    wide = vision.count("spatial_merge_size") ** 2 * hidden
    return wide * (wide + 1) + wide * out + out


def _qwen2(vision: Keys, keys: Keys, text_hidden: int) -> int:
    del keys
    hidden = vision.count("embed_dim")
    wide = hidden * vision.count("mlp_ratio")
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * wide + wide + hidden + 4 * hidden
    around = _qwen_patches(vision, hidden) + 2 * hidden
    out = vision.optional("hidden_size") or text_hidden
    return around + vision.count("depth") * layer + _qwen_merger(vision, hidden, out)


def _qwen25(vision: Keys, keys: Keys, text_hidden: int) -> int:
    del keys
    hidden, wide = vision.count("hidden_size"), vision.count("intermediate_size")
    layer = 4 * hidden * (hidden + 1) + 3 * hidden * wide + 2 * wide + hidden + 2 * hidden
    out = vision.optional("out_hidden_size") or text_hidden
    around = _qwen_patches(vision, hidden) + hidden
    return around + vision.count("depth") * layer + _qwen_merger(vision, hidden, out)


def _plain(vision: Keys, text_hidden: int) -> int:
    """An upper estimate: gated networks as wide as stated or four times the hidden size."""
    hidden = vision.count("hidden_size")
    wide = vision.optional("intermediate_size") or 4 * hidden
    layers = vision.count("num_hidden_layers", "depth")
    embedding, patches = _patches(vision)
    encoder = layers * (4 * hidden * (hidden + 1) + 3 * hidden * (wide + 1) + 4 * hidden)
    merged = 4 * hidden
    projector = merged * (merged + text_hidden) + text_hidden * (text_hidden + 2)
    return embedding + (patches + 4) * hidden + encoder + projector


_TOWERS: Mapping[str, tuple[Mapping[str, object], Count]] = {
    "clip_vision_model": (_CLIP_DEFAULTS, _clip),
    "siglip_vision_model": (_SIGLIP_DEFAULTS, _siglip),
    "pixtral": (_PIXTRAL_DEFAULTS, _pixtral),
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_vision"), (_QWEN2_DEFAULTS, _qwen2)),
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_vl_vision"), (_QWEN25_DEFAULTS, _qwen25)),
}
_BY_MODEL = {"qwen2_vl": "qwen2_vl", "qwen2_5_vl": "qwen2_5_vl"}
