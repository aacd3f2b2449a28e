"""Models as their arithmetic needs them, read from a `config.json`."""

from advisor.llm.config import ARCHITECTURES, UNSTATED_DTYPE, read_config
from advisor.llm.formats import DTYPE_BYTES, WeightFormat, dtype_bytes, weight_format
from advisor.llm.shape import LayerGroup, ModelShape, dense_model

__all__ = [
    "ARCHITECTURES",
    "DTYPE_BYTES",
    "UNSTATED_DTYPE",
    "LayerGroup",
    "ModelShape",
    "WeightFormat",
    "dense_model",
    "dtype_bytes",
    "read_config",
    "weight_format",
]
