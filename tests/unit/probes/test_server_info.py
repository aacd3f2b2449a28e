"""What an engine's resolved configuration adds to its facts."""

import pytest

from advisor.serving import EngineFacts
from probes.vllm.server_info import with_server_info

INFO = {
    "vllm_config": {
        "scheduler_config": {
            "max_num_seqs": 128,
            "max_num_batched_tokens": 2048,
            "async_scheduling": False,
            "enable_chunked_prefill": True,
        },
        "cache_config": {"cache_dtype": "auto", "enable_prefix_caching": True},
        "parallel_config": {"tensor_parallel_size": 2, "distributed_executor_backend": "mp"},
    },
    "system_env": {"torch_version": "2.13.0", "nvidia_driver_version": "580.65"},
}


def test_defaults_that_no_command_states_are_known() -> None:
    """Also that asynchronous scheduling is off, which the CPU build does without a word."""
    facts = with_server_info(EngineFacts(max_num_seqs=None), INFO)

    assert facts == EngineFacts(
        max_num_seqs=128,
        max_num_batched_tokens=2048,
        async_scheduling=False,
        chunked_prefill=True,
        prefix_caching=True,
        kv_cache_dtype="auto",
        tensor_parallel=2,
        executor="mp",
        torch_version="2.13.0",
        driver_version="580.65",
    )


@pytest.mark.parametrize(
    "info",
    [{}, {"vllm_config": None}, {"vllm_config": {"scheduler_config": {"max_num_seqs": "all"}}}],
)
def test_what_it_does_not_state_stays_as_the_log_said(info: dict[str, object]) -> None:
    """An engine without development routes answers nothing."""
    facts = EngineFacts(max_num_seqs=16, async_scheduling=True, executor="uni")

    assert with_server_info(facts, info) == facts
