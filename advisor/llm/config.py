"""The shape of a model in its `config.json`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput, UnknownName, UnsupportedArchitecture
from advisor.llm.families import (
    BY_MODEL_TYPE,
    FAMILIES,
    NESTED_DEFAULTS,
    Blueprint,
    can_be_counted,
    tower,
    unknown,
)
from advisor.llm.formats import dtype_bytes
from advisor.llm.keys import Keys
from advisor.llm.quantized import packed_layers, packing
from advisor.llm.shape import LayerGroup, ModelShape

# What transformers builds when a config.json names no dtype.
UNSTATED_DTYPE = "float32"
ARCHITECTURES = tuple(FAMILIES)
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_LLAMA = "LlamaForCausalLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """The text part of a config and the architecture that reads it."""

    keys: Keys
    architecture: str


def read_config(config: Mapping[str, object]) -> ModelShape:
    """The shape in a `config.json`.

    Exact for the architectures of `ARCHITECTURES` and multimodal models around them. Another one
    with the usual keys of a decoder is counted from above and says so in `notes`; else
    `UnsupportedArchitecture`, as for a quantization method that is not described. `InvalidInput`
    names a key that is missing or of the wrong kind.
    """
    whole = Keys(config)
    name = _stated_architecture(whole)
    text = _text_part(whole, name)
    plan = _blueprint(text)
    vision = tower(whole, plan.hidden_size)
    found = packing(whole, name) or packing(text.keys, name)
    layers, notes = (plan.layers, ()) if found is None else packed_layers(plan.layers, found)
    return ModelShape(
        architecture=name,
        hidden_size=plan.hidden_size,
        vocab_size=plan.vocab_size,
        layers=merged(layers),
        tied_embeddings=_tied(whole, text.keys, plan),
        dtype=_dtype(whole, text.keys),
        max_position_embeddings=plan.max_position_embeddings,
        weights=None if found is None else found.format,
        quantized_head=found is not None and found.head,
        position_parameters=plan.position_parameters,
        tower_parameters=0 if vision is None else vision.parameters,
        image_tokens=None if vision is None else vision.image_tokens,
        final_norms=plan.final_norms,
        head_bias=plan.head_bias,
        notes=(*plan.notes, *notes, *(() if vision is None else vision.notes)),
    )


def merged(layers: Sequence[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Equal layers as one group, in the order in which their kinds first occur."""
    counts: dict[LayerGroup, int] = {}
    for group in layers:
        one = replace(group, count=1)
        counts[one] = counts.get(one, 0) + group.count
    return tuple(replace(one, count=count) for one, count in counts.items())


def _stated_architecture(keys: Keys) -> str:
    stated = keys.words("architectures")
    if stated:
        return stated[0]
    model_type = keys.text("model_type")
    if not model_type:
        raise InvalidInput("config.architectures", "is missing")
    return BY_MODEL_TYPE.get(model_type, model_type)


def _text_part(whole: Keys, name: str) -> _Text:
    """The text model of a multimodal config, else the config itself."""
    for key in _TEXT_PARTS:
        part = whole.section(key)
        if part is not None:
            stated = part.words("architectures")
            kind = part.text("model_type")
            inner = BY_MODEL_TYPE.get(kind) or (stated[0] if stated else kind) or _LLAMA
            defaults = NESTED_DEFAULTS.get(inner, {})
            return _Text(keys=part.having(defaults), architecture=inner)
    known = name in FAMILIES
    architecture = name if known else BY_MODEL_TYPE.get(whole.text("model_type"), name)
    return _Text(keys=whole, architecture=architecture)


def _blueprint(text: _Text) -> Blueprint:
    family = FAMILIES.get(text.architecture)
    if family is not None:
        return family(text.keys)
    if can_be_counted(text.keys):
        return unknown(text.keys, text.architecture)
    raise UnsupportedArchitecture(text.architecture, ARCHITECTURES)


def _tied(whole: Keys, text: Keys, plan: Blueprint) -> bool:
    if text.stated("tie_word_embeddings"):
        return plan.tied_embeddings
    return whole.flag("tie_word_embeddings", default=plan.tied_embeddings)


def _dtype(whole: Keys, text: Keys) -> str:
    # transformers 5 writes `dtype`, earlier releases `torch_dtype`.
    for keys in (text, whole):
        value = keys.raw("dtype") or keys.raw("torch_dtype")
        if value:
            name = str(value).removeprefix("torch.")
            try:
                dtype_bytes(name)
            except UnknownName as error:
                raise InvalidInput(keys.name("dtype"), str(error)) from None
            return name
    return UNSTATED_DTYPE
