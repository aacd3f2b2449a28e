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


# From vLLM's source (0.31 and 0.32), with the traceback lines that say in which phase it was.
MEMORY_ENDS = {
    "INFO Starting to load model x\n  File worker.py, line 1, in load_model\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": (
        FailureKind.OUT_OF_MEMORY_LOADING
    ),
    "ERROR Failed to load model - not enough GPU memory. Try lowering (original error: CUDA out of"
    " memory)": FailureKind.OUT_OF_MEMORY_LOADING,
    "INFO Model loading took 14.2 GiB memory and 3.1 seconds\n  File gpu_worker.py, line 9, in"
    " determine_available_memory\n  File gpu_model_runner.py, line 9, in profile_run\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory.": FailureKind.OUT_OF_MEMORY_PROFILING,
    "INFO Model loading took 14.2 GiB memory\nRuntimeError: CUDA out of memory occurred when"
    " warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs`": (
        FailureKind.OUT_OF_MEMORY_PROFILING
    ),
    "INFO Model loading took 14.2 GiB memory\n  File runner.py, line 9, in capture_model\n"
    "RuntimeError: CUDA error: out of memory": FailureKind.OUT_OF_MEMORY_PROFILING,
    "INFO Model loading took 1 GiB\nINFO: Application startup complete.\nRuntimeError: [enforce"
    " fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory": (
        FailureKind.OUT_OF_MEMORY_SERVING
    ),
}
QUANTIZATIONS = (
    "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum",
    "ValueError: Quantization scheme is not supported for the current GPU. Min capability: 89.",
    "ValueError: gguf quantization is currently not supported in cpu.",
    "ValueError: torch.float32 is not supported for quantization method awq. Supported dtypes",
    (
        "Quantization method specified in the model config (fp8) does not match the quantization"
        " method specified in the `quantization` argument (awq)."
    ),
    "ValueError: Failed to find a kernel that can implement the ScaledMM linear layer. Reasons:",
)
PAIRS = (
    "ValueError: attention_backend and attention_config.backend are mutually exclusive",
    "ValueError: Async scheduling is not compatible with disable_padded_drafter_batch=True.",
    "ValueError: `--data-parallel-hybrid-lb` and `--nnodes 2` cannot be enabled together. Enable",
    "  Value error, max_num_batched_tokens (512) is smaller than max_model_len (2048). This",
)


@pytest.mark.parametrize("log", MEMORY_ENDS)
def test_the_phase_in_which_memory_ended_is_named(log: str) -> None:
    """Their remedies differ: smaller weights, a smaller batch, a smaller cache."""
    failure = classify(f"{log}\nRuntimeError: Engine core initialization failed.", exit_code=1)

    assert failure.kind is MEMORY_ENDS[log]


@pytest.mark.parametrize("line", QUANTIZATIONS)
def test_weights_that_cannot_be_served_are_no_unknown_setting(line: str) -> None:
    """The engine's own words stand in the detail."""
    failure = classify(f"INFO loading\n{line}\n", exit_code=1)

    assert (failure.kind, failure.setting) == (
        FailureKind.UNSUPPORTED_QUANTIZATION,
        "quantization",
    )


@pytest.mark.parametrize("line", PAIRS)
def test_two_settings_that_exclude_each_other_are_named(line: str) -> None:
    """Neither of them is wrong alone."""
    failure = classify(f"INFO loading\n{line}\n", exit_code=1)

    assert failure.kind is FailureKind.INCOMPATIBLE_SETTINGS
    assert any(
        word in failure.detail for word in ("exclusive", "compatible", "together", "prefill")
    )


def test_what_clients_sent_wrong_is_not_why_a_served_engine_ended() -> None:
    """After the start a refused request's error stands in the log as well."""
    log = "Application startup complete.\nValueError: This model's maximum context length is 2048\n"
    failure = classify(log, exit_code=139)

    assert failure.kind is FailureKind.EXITED
    assert "exit code 139, signal SIGSEGV" in failure.detail


@pytest.mark.parametrize(
    "begun, kind",
    [
        ("INFO Starting to load model", FailureKind.OUT_OF_MEMORY_LOADING),
        ("INFO Loading weights took 2 s", FailureKind.OUT_OF_MEMORY_PROFILING),
        ("INFO Application startup complete", FailureKind.EXITED),
    ],
)
def test_the_kernel_kills_in_a_phase_too(begun: str, kind: FailureKind) -> None:
    """How far the log came says which memory was asked for last; who serves has it all."""

    assert classify(begun, exit_code=137).kind is kind


def test_a_failure_is_raised_with_its_setting_and_bound() -> None:
    """What a retry needs reaches whoever decides on it."""
    log = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (524). Each decode"
    error = classify(log, exit_code=1).error()

    assert (error.kind, error.setting, error.bound) == ("invalid_setting", "max_num_seqs", 524)
    assert classify("", exit_code=0).error(FailureKind.DIED).kind == FailureKind.DIED
