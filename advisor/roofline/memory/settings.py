"""What of an engine's settings decides how its cache is laid out and how large it is."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput, UnknownName
from advisor.llm import ModelShape
from advisor.llm.formats import DTYPE_BYTES
from advisor.llm.mixers import LatentAttention

AUTO = "auto"
CPU_BLOCK = 128
CUDA_BLOCK = 16
LATENT_BLOCK = 64  # FlashMLA and its relatives on CUDA
# Recurrent states that vLLM keeps in another dtype than the model's (models/config.py, 0.32).
_STATE_DTYPES: Mapping[str, str] = {"NemotronHForCausalLM": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Settings by vLLM's own names; `dtype` is the one served, never ``auto``.

    `state_dtype` is ``mamba_ssm_cache_dtype`` (None: as vLLM chooses). `hybrid_manager` False is
    ``--disable-hybrid-kv-cache-manager``: windowed layers then keep every token.
    """

    dtype: str
    max_model_len: int
    max_num_batched_tokens: int = 2048
    kv_cache_dtype: str = AUTO
    block_size: int = CUDA_BLOCK
    tensor_parallel: int = 1
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    num_speculative_tokens: int = 0
    hybrid_manager: bool = True
    state_dtype: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_batched_tokens", "block_size", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, f"{getattr(self, name)} is below 1")
        if self.num_speculative_tokens < 0:
            raise InvalidInput("num_speculative_tokens", "is negative")
        for dtype in (self.dtype, self.state_dtype):
            if dtype is not None and dtype not in DTYPE_BYTES:
                raise UnknownName("dtype", dtype, list(DTYPE_BYTES))

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled and not yet settled at most: two batches with async scheduling."""
        return (2 if self.async_scheduling else 1) * self.max_num_batched_tokens

    def recurrent_dtype(self, model: ModelShape) -> str:
        """Dtype of recurrent states: the stated one, the architecture's own, else the served."""
        return self.state_dtype or _STATE_DTYPES.get(model.architecture, self.dtype)


def engine_block_size(model: ModelShape, kind: str, stated: int | None = None) -> int:
    """Tokens of a block before a recurrent layer enlarges it: stated, or vLLM's own choice."""
    if stated is not None:
        return stated
    if kind == "cpu":
        return CPU_BLOCK
    latent = any(isinstance(group.mixer, LatentAttention) for group in model.layers)
    return LATENT_BLOCK if latent else CUDA_BLOCK
