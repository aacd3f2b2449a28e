"""Failure kinds from logs."""

from pathlib import Path

import pytest

from advisor.states import FailureKind
from probes.vllm.failures import Failure, classify, last_lines

# One line per refusal, from the format strings of vLLM 0.32.
REFUSALS = {
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    " when initializing the engine": (FailureKind.NO_KV_MEMORY, None, None),
    "ValueError: To serve at least one request with the model's max seq len (32768), (16.0 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (3.59 GiB). Based on the"
    " available memory, the estimated maximum model length is 7344. Try increasing": (
        FailureKind.NO_KV_MEMORY,
        "max_model_len",
        7344,
    ),
    "ValueError: Available memory on node 0 (3.1/20.96 GiB) on kv cache allocation is less than"
    " requested memory for kv (64.0 GiB). Decrease --kv-cache-memory-bytes": (
        FailureKind.NO_KV_MEMORY,
        None,
        None,
    ),
    "ValueError: Free memory on device cuda:0 (30.0/80.0 GiB) on startup is less than desired GPU"
    " memory utilization (0.9, 72.0 GiB).": (FailureKind.OUT_OF_MEMORY, None, None),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": (
        FailureKind.OUT_OF_MEMORY,
        None,
        None,
    ),
    "OSError: [Errno 98] Address already in use": (FailureKind.PORT_IN_USE, None, None),
    "OSError: models/none is not a local folder and is not a valid model identifier": (
        FailureKind.MODEL_NOT_FOUND,
        None,
        None,
    ),
    "safetensors_rust.SafetensorError: Error while deserializing header: header too large": (
        FailureKind.BAD_WEIGHTS,
        None,
        None,
    ),
    "ValueError: max_num_batched_tokens (128) must be greater than or equal to max_num_seqs"
    " (256).": (
        FailureKind.INVALID_SETTING,
        "max_num_seqs",
        128,
    ),
    "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (524). Each decode": (
        FailureKind.INVALID_SETTING,
        "max_num_seqs",
        524,
    ),
    "api_server.py: error: unrecognized arguments: --max-num-sequences=4": (
        FailureKind.INVALID_SETTING,
        None,
        None,
    ),
}


@pytest.mark.parametrize("line", REFUSALS)
def test_a_refusal_is_named_with_its_bound(line: str) -> None:
    """The engine's last words follow its reason and name nothing."""
    log = f"INFO loading\n{line}\nRuntimeError: Engine core initialization failed.\n"
    failure = classify(log, exit_code=1)

    assert (failure.kind, failure.setting, failure.bound) == REFUSALS[line]
    assert "exit code 1" in failure.detail


def test_a_state_cache_too_small_gives_the_bound(shared: Path) -> None:
    """Case E-12: not an unknown crash; 856 is kept for pruning."""
    log = (shared / "cases" / "e12_mamba.log").read_text()
    failure = classify(log, exit_code=1)

    assert (failure.kind, failure.setting) == (FailureKind.INVALID_SETTING, "max_num_seqs")
    assert failure.bound == 856
    assert "max_num_seqs too high" in failure.detail


def test_an_unknown_end_keeps_the_exit_code_and_the_last_lines() -> None:
    """A person has to see what it said."""
    failure = classify("\n".join(f"line {i}" for i in range(50)), exit_code=3)

    assert failure.kind is FailureKind.EXITED
    assert failure.detail.splitlines()[0].endswith("(exit code 3)")
    assert failure.detail.splitlines()[-1] == "line 49"


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_from_outside_is_the_kernels_answer_to_no_memory(exit_code: int) -> None:
    """The log ends without a word then."""
    assert classify("INFO loading", exit_code=exit_code).kind is FailureKind.OUT_OF_MEMORY


def test_progress_bars_are_not_last_lines() -> None:
    """They hide the reason."""
    log = "the reason\nLoading safetensors checkpoint shards: 100% Completed | 1/1\n\n"

    assert last_lines(log) == ("the reason",)


def test_a_normal_log_names_no_failure(shared: Path) -> None:
    """No pattern matches what a healthy engine says."""
    log = (shared / "engine" / "vllm-0.32.0-cpu-startup-and-serve.log").read_text()

    assert classify(log, exit_code=1) == Failure(
        kind=FailureKind.EXITED, detail=classify(log, exit_code=1).detail
    )
