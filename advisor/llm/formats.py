"""How the elements of a weight matrix are stored and multiplied (handbook 7.1 and 7.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput, UnknownName

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
BITS_PER_BYTE = 8


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; an unknown dtype raises `UnknownName`."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        raise UnknownName("dtype", dtype, list(DTYPE_BYTES)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """One way to store the matrix weights of the blocks.

    `bits` is the width of one weight; every `group` weights share a scale of `scale_bits` and a
    zero point of `zero_bits` (group None: one per channel or tensor, which is not counted).
    `units` names the dtype whose units multiply: "bfloat16" where weights are unpacked before the
    product, "float8", "int8" or "float4" where activations are quantized too.
    """

    name: str
    bits: float
    units: str
    group: int | None = None
    scale_bits: float = 0.0
    zero_bits: float = 0.0

    def __post_init__(self) -> None:
        if self.bits <= 0 or self.scale_bits < 0 or self.zero_bits < 0:
            raise InvalidInput(f"weight format {self.name}", "has a negative width")
        if self.group is not None and self.group < 1:
            raise InvalidInput(f"weight format {self.name}", "has an empty group")

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes of one weight with its part of scale and zero point."""
        shared = 0.0 if self.group is None else (self.scale_bits + self.zero_bits) / self.group
        return (self.bits + shared) / BITS_PER_BYTE


def plain(dtype: str) -> WeightFormat:
    """Weights as saved, without quantization."""
    return WeightFormat(name=dtype, bits=float(BITS_PER_BYTE * dtype_bytes(dtype)), units=dtype)


FORMATS: Mapping[str, WeightFormat] = {
    item.name: item
    for item in (
        plain("float32"),
        plain("bfloat16"),
        plain("float16"),
        WeightFormat(name="W8A8", bits=8.0, units="int8"),
        WeightFormat(name="W8A16", bits=8.0, units="bfloat16"),
        WeightFormat(name="fp8", bits=8.0, units="float8"),
        WeightFormat(
            name="fp8-block128", bits=8.0, units="float8", group=128 * 128, scale_bits=32.0
        ),
        WeightFormat(name="W4A16", bits=4.0, units="bfloat16", group=128, scale_bits=16.0),
        WeightFormat(
            name="W4A16-zero", bits=4.0, units="bfloat16", group=128, scale_bits=16.0, zero_bits=4.0
        ),
        WeightFormat(name="mxfp4", bits=4.0, units="float4", group=32, scale_bits=8.0),
        WeightFormat(name="nvfp4", bits=4.0, units="float4", group=16, scale_bits=8.0),
    )
}


def weight_format(name: str) -> WeightFormat:
    """Exact look-up by name; raises `UnknownName` that lists the known ones."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownName("weight format", name, list(FORMATS)) from None
