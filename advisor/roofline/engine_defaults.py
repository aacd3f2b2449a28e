"""What vLLM 0.32 chooses where a command says nothing (engine/arg_utils.py, get_batch_defaults).

Handbook 5.3. The card decides: its memory, and whether it is an A100.
"""

from dataclasses import dataclass
from typing import Literal

from advisor.hardware import DeviceFacts
from advisor.units import GIB

Usage = Literal["server", "offline"]
_LARGE_BYTES, _MIDDLE_BYTES = 160 * GIB, 70 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """Slots of the scheduler and its token budget for one step."""

    max_num_seqs: int
    max_num_batched_tokens: int


def engine_defaults(device: DeviceFacts, usage: Usage = "server") -> EngineDefaults:
    """Defaults on one device; the offline `LLM` class takes more tokens than the server."""
    offline = usage == "offline"
    if device.kind == "cpu":
        return EngineDefaults(
            max_num_seqs=256 if offline else 128,
            max_num_batched_tokens=4096 if offline else 2048,
        )
    if device.memory_bytes >= _LARGE_BYTES:
        return EngineDefaults(max_num_seqs=1024, max_num_batched_tokens=16384)
    if device.memory_bytes >= _MIDDLE_BYTES and "a100" not in device.name.lower():
        return EngineDefaults(max_num_seqs=1024, max_num_batched_tokens=16384 if offline else 8192)
    return EngineDefaults(max_num_seqs=256, max_num_batched_tokens=8192 if offline else 2048)
