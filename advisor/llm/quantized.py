"""`quantization_config`: how a checkpoint's matrices are packed, and which of them are not."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm.feed_forward import Experts
from advisor.llm.formats import FORMATS, WeightFormat
from advisor.llm.keys import Keys
from advisor.llm.mixers import LatentAttention, Mamba2, NoMixer
from advisor.llm.shape import LayerGroup

_USUAL_GROUP = 128
_BYTE, _NIBBLE = 8, 4
_REGEX = "re:"
_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "backbone.", "")
_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_LATENT = ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_RECURRENT = ("linear_attn.in_proj_qkvz", "linear_attn.out_proj")
_STATE_SPACE = ("in_proj", "out_proj")
_NETWORK = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_EXPERTS = ("gate_proj", "up_proj", "down_proj")
_PARTLY = "of some layers only a part of the matrices is packed: counted as if none of them were"
_WIDEST = "matrices are packed in several formats: all are counted in the widest"
Matcher: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """A format, which modules are packed in it, and whether the output head is."""

    format: WeightFormat
    packs: Matcher
    head: bool = False
    notes: tuple[str, ...] = ()


def packing(keys: Keys, architecture: str) -> Packing | None:
    """What the config says of its checkpoint's format; None where nothing is quantized.

    Raises `UnsupportedArchitecture` naming a method that is not described.
    """
    section = keys.section("quantization_config") or keys.section("compression_config")
    if section is None:
        return None
    method = section.text("quant_method").lower()
    reader = _METHODS.get(method)
    if reader is None:
        named = f"quantization_config.quant_method {method!r}"
        raise UnsupportedArchitecture(f"{architecture} with {named}", tuple(_METHODS))
    return reader(section)


def packed_layers(
    layers: Sequence[LayerGroup], found: Packing
) -> tuple[tuple[LayerGroup, ...], tuple[str, ...]]:
    """Layers, one by one, with the halves marked that stay in the model's dtype, and notes."""
    marked: list[LayerGroup] = []
    partly = False
    for index, group in enumerate(layers):
        halves = (_mixer_modules(group), _network_modules(group))
        packed = [[_is_packed(found, index, name) for name in names] for names in halves]
        partly = partly or any(any(half) and not all(half) for half in packed)
        marked.append(
            replace(
                group,
                plain_mixer=not all(packed[0]),
                plain_feed_forward=not all(packed[1]),
            )
        )
    return tuple(marked), (*found.notes, *((_PARTLY,) if partly else ()))


def _is_packed(found: Packing, index: int, module: str) -> bool:
    return found.packs(f"layers.{index}.{module}")


def _mixer_modules(group: LayerGroup) -> tuple[str, ...]:
    mixer = group.mixer
    if isinstance(mixer, NoMixer):
        return ()
    if isinstance(mixer, LatentAttention):
        left_out = {"q_proj"} if mixer.query_rank is not None else {"q_a_proj", "q_b_proj"}
        return tuple(f"self_attn.{name}" for name in _LATENT if name not in left_out)
    if isinstance(mixer, Mamba2):
        return tuple(f"mamba.{name}" for name in _STATE_SPACE)
    return _RECURRENT if mixer.kind == "gated_delta" else _ATTENTION


def _network_modules(group: LayerGroup) -> tuple[str, ...]:
    network = group.feed_forward
    if network is None:
        return ()
    if not isinstance(network, Experts):
        return _NETWORK
    routed = tuple(f"mlp.experts.0.{name}" for name in _EXPERTS)
    if not network.shared_intermediate:
        return routed
    named = "mlp.shared_expert" if network.shared_gate else "mlp.shared_experts"
    return (*routed, *(f"{named}.{name}" for name in _EXPERTS))


# ---------------------------------------------------------------------- names of modules


def _matches(pattern: str, module: str) -> bool:
    """Whether a pattern of a config names this module, in any of the spellings of its path."""
    names = [prefix + module for prefix in _PREFIXES]
    if pattern.startswith(_REGEX):
        return any(re.match(pattern.removeprefix(_REGEX), name) for name in names)
    if "*" in pattern:
        return any(
            fnmatch.fnmatchcase(name, form) for name in names for form in (pattern, f"{pattern}.*")
        )
    return any(f".{pattern}." in f".{name}." for name in names)


def _spelled(module: str) -> tuple[str, ...]:
    """The module as its own checkpoints and as others call it (Mixtral, fused projections)."""
    others = [module]
    for ours, theirs in (
        ("mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1"),
        ("mlp.experts.0.up_proj", "block_sparse_moe.experts.0.w3"),
        ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2"),
        ("mamba.", "mixer."),
    ):
        if ours in module:
            others.append(module.replace(ours, theirs))
    return tuple(others)


def _any_of(patterns: Sequence[str]) -> Matcher:
    for pattern in patterns:
        if pattern.startswith(_REGEX):
            try:
                re.compile(pattern.removeprefix(_REGEX))
            except re.error:
                raise InvalidInput(
                    "config.quantization_config", f"{pattern!r} is no expression"
                ) from None
    return lambda module: any(
        _matches(pattern, name) for pattern in patterns for name in _spelled(module)
    )


def _all_but(patterns: Sequence[str]) -> Matcher:
    left_out = _any_of(patterns)
    return lambda module: not left_out(module)


# ---------------------------------------------------------------------- formats


def integer_format(bits: int, group: int | None, *, zero: bool = False) -> WeightFormat:
    """Integers unpacked before a 16-bit product; `group` None has one scale per channel."""
    name = f"W{bits}A16{'-zero' if zero else ''}"
    usual = FORMATS.get(name)
    if usual is not None and usual.group == group:
        return usual
    return WeightFormat(
        name=f"{name}-{'channel' if group is None else f'g{group}'}",
        bits=float(bits),
        units="bfloat16",
        group=group,
        scale_bits=16.0,
        zero_bits=float(bits) if zero else 0.0,
    )


def _group(section: Keys) -> int | None:
    """`group_size`; -1 means one group per channel."""
    value = section.raw("group_size")
    if value in (None, -1):
        return None
    return section.count("group_size")


def _ignored(section: Keys) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        found.extend(section.words(key) or ())
    return tuple(found)


def _gptq(section: Keys) -> Packing:
    bits = section.count("bits")
    zero = not section.flag("sym", default=True)
    rules = section.section("dynamic")
    excluded: list[str] = []
    notes: tuple[str, ...] = ()
    for rule in () if rules is None else rules.values:
        if rule.startswith("-:"):
            excluded.append(_REGEX + rule.removeprefix("-:"))
        else:
            notes = (f"the rule {rule!r} of quantization_config.dynamic is not counted",)
    return Packing(
        format=integer_format(bits, _group(section), zero=zero),
        packs=_all_but([*_ignored(section), *excluded]),
        head=section.flag("lm_head", default=False),
        notes=notes,
    )


def _awq(section: Keys) -> Packing:
    bits = section.optional("bits", "w_bit") or 4
    group = _group(section) or section.optional("q_group_size") or _USUAL_GROUP
    zero = section.flag("zero_point", default=True)
    return Packing(format=integer_format(bits, group, zero=zero), packs=_all_but(_ignored(section)))


def _fp8(section: Keys) -> Packing:
    return Packing(
        format=_eight_bit_float(section.numbers("weight_block_size")),
        packs=_all_but(_ignored(section)),
    )


def _eight_bit_float(block: Sequence[int] | None) -> WeightFormat:
    if block is None:
        return FORMATS["fp8"]
    size = 1
    for side in block:
        size *= side
    usual = FORMATS["fp8-block128"]
    if size == usual.group:
        return usual
    return replace(usual, name=f"fp8-block{'x'.join(map(str, block))}", group=size)


def _mxfp4(section: Keys) -> Packing:
    """Only experts are packed (vLLM 0.32, quantization/mxfp4.py)."""
    ignored = _any_of(_ignored(section))
    return Packing(
        format=FORMATS["mxfp4"], packs=lambda module: ".experts." in module and not ignored(module)
    )


_MODELOPT: Mapping[str, str] = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8-block128",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
}


def _modelopt(section: Keys) -> Packing:
    held = section.section("quantization") or section
    algorithm = held.text("quant_algo").upper()
    name = _MODELOPT.get(algorithm)
    if name is None:
        raise UnsupportedArchitecture(f"modelopt with quant_algo {algorithm!r}", tuple(_MODELOPT))
    return Packing(format=FORMATS[name], packs=_all_but([*_ignored(section), *_ignored(held)]))


def _compressed(section: Keys) -> Packing:
    """`config_groups` of compressed-tensors: what each packs, less what is ignored."""
    groups = section.section("config_groups")
    if groups is None or not groups.values:
        raise InvalidInput(section.name("config_groups"), "is missing")
    formats: list[WeightFormat] = []
    targets: list[str] = []
    for name in groups.values:
        group = groups.section(name)
        weights = None if group is None else group.section("weights")
        if group is None or weights is None:
            continue
        formats.append(_group_format(weights, group.section("input_activations")))
        targets.extend(group.words("targets") or ())
    if not formats:
        raise InvalidInput(section.name("config_groups"), "packs no weights")
    ignored, wanted = _any_of(_ignored(section)), _any_of(targets)
    every_one = "Linear" in targets
    widest = max(formats, key=lambda item: item.bytes_per_parameter)
    return Packing(
        format=widest,
        packs=lambda module: (every_one or wanted(module)) and not ignored(module),
        notes=(_WIDEST,) if len(set(formats)) > 1 else (),
    )


def _group_format(weights: Keys, activations: Keys | None) -> WeightFormat:
    bits = weights.count("num_bits")
    group = _group(weights) if weights.text("strategy") not in {"channel", "tensor"} else None
    if weights.text("type", "int") == "float":
        return _float_format(weights, bits, group, activations)
    zero = not weights.flag("symmetric", default=True)
    if activations is None:
        return integer_format(bits, group, zero=zero)
    units = "float8" if activations.text("type", "int") == "float" else "int8"
    if bits == _BYTE and units == "int8":
        return FORMATS["W8A8"]
    base = integer_format(bits, group, zero=zero)
    name = base.name.replace("A16", "A8" if units == "int8" else "AFP8")
    return replace(base, name=name, units=units)


def _float_format(
    weights: Keys, bits: int, group: int | None, activations: Keys | None
) -> WeightFormat:
    if bits == _BYTE:
        found = _eight_bit_float(weights.numbers("block_structure"))
        if group is not None and weights.text("strategy") == "group":
            found = replace(found, name=f"fp8-g{group}", group=group, scale_bits=8.0)
    elif bits == _NIBBLE:
        found = FORMATS["nvfp4" if group == FORMATS["nvfp4"].group else "mxfp4"]
    else:
        raise InvalidInput(weights.name("num_bits"), f"no float of {bits} bits is known")
    if activations is None:
        return replace(found, name=f"{found.name}-A16", units="bfloat16")
    return found


_METHODS: Mapping[str, Callable[[Keys], Packing]] = {
    "gptq": _gptq,
    "gptqmodel": _gptq,
    "auto-round": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}
