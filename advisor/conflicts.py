"""Settings that vLLM refuses, or drops, in combination: known before an engine is started.

A table for pruning; the engine's own refusal is final. Sources: vLLM 0.31 and 0.32
(`config/scheduler.py`, `config/speculative.py`, `config/vllm.py`, `config/model.py`, attention
backends), handbook 13, cases E-07, E-14 and E-15.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor.llm import ModelShape
from advisor.llm.mixers import LatentAttention
from advisor.roofline.memory import tensor_parallel_sizes
from advisor.serving import ServingConfig

CPU = "cpu"
# Tokens in a KV block are a multiple of this: `get_supported_kernel_block_sizes` of the usual
# attention backends. Latent attention has kernels of its own.
_BLOCK_STEP, _CPU_BLOCK_STEP = 16, 32
# Drafts that the next step can be scheduled before; others switch asynchronous scheduling off.
_ASYNC_DRAFTS = frozenset(
    {"eagle", "eagle3", "mtp", "draft_model", "ngram_gpu", "dspark", "dflash"}
)
_FOUR_BIT_KV = "nvfp4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """Speculation as its settings ask for it; None where vLLM decides.

    `by_batch_size`: the number of draft tokens depends on the batch. `vocabulary` is the draft
    model's, `rejection` the method by which drafts are judged.
    """

    method: str
    tokens: int | None = None
    tensor_parallel: int | None = None
    vocabulary: int | None = None
    heterogeneous_vocabulary: bool = False
    lookup_min: int | None = None
    lookup_max: int | None = None
    by_batch_size: bool = False
    rejection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """Settings of one engine as they were stated; None where they were not, and nothing is judged.

    `max_model_len` is the length that will be served, if it is known. `model` is the target's.
    """

    build: str
    model: ModelShape | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    chunked_prefill: bool | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    async_scheduling: bool | None = None
    drafting: Drafting | None = None
    reports_drafts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Settings that exclude each other. `ignored`: the engine starts, and drops one of them."""

    settings: tuple[str, ...]
    reason: str
    remedy: str
    ignored: bool = False

    @property
    def text(self) -> str:
        """One sentence for a user."""
        return f"{self.reason}; {self.remedy}"


Rule = Callable[[Combination], Conflict | None]


def conflicts(asked: Combination) -> tuple[Conflict, ...]:
    """Every rule that the combination breaks, in the order of the table."""
    found = (rule(asked) for rule in RULES)
    return tuple(conflict for conflict in found if conflict is not None)


def refusals(asked: Combination) -> Iterator[Conflict]:
    """Those of `conflicts` that the engine would not start with."""
    return (conflict for conflict in conflicts(asked) if not conflict.ignored)


def combination_of(
    config: ServingConfig,
    build: str,
    *,
    model: ModelShape | None = None,
    draft_vocabulary: int | None = None,
) -> Combination:
    """What a configuration states; without a length the model's own is served."""
    levers, length = config.levers, config.functional.max_model_len
    if length is None and model is not None:
        length = model.max_position_embeddings
    drafting = None
    if (speculation := levers.speculative_config) is not None:
        drafting = Drafting(
            method=speculation.method,
            tokens=speculation.num_speculative_tokens,
            vocabulary=draft_vocabulary,
            lookup_min=getattr(speculation, "prompt_lookup_min", None),
            lookup_max=getattr(speculation, "prompt_lookup_max", None),
        )
    return Combination(
        build=build,
        model=model,
        max_model_len=length,
        max_num_seqs=levers.max_num_seqs,
        max_num_batched_tokens=levers.max_num_batched_tokens,
        chunked_prefill=levers.enable_chunked_prefill,
        block_size=levers.block_size,
        kv_cache_dtype=levers.kv_cache_dtype,
        drafting=drafting,
    )


def _unchunked_prompt(asked: Combination) -> Conflict | None:
    """Without chunks a whole prompt is one step's work (case E-14 a)."""
    tokens, length = asked.max_num_batched_tokens, asked.max_model_len
    if asked.chunked_prefill is not False or tokens is None or length is None or tokens >= length:
        return None
    return Conflict(
        settings=("enable_chunked_prefill", "max_num_batched_tokens", "max_model_len"),
        reason=f"without chunked prefill max_num_batched_tokens ({tokens}) must not be below"
        f" max_model_len ({length})",
        remedy=f"raise max_num_batched_tokens to {length} or leave chunked prefill on",
    )


def _step_below_batch(asked: Combination) -> Conflict | None:
    """Every running request takes a token of the step (case E-14 c)."""
    tokens, sequences = asked.max_num_batched_tokens, asked.max_num_seqs
    if tokens is None or sequences is None or tokens >= sequences:
        return None
    return Conflict(
        settings=("max_num_batched_tokens", "max_num_seqs"),
        reason=f"max_num_batched_tokens ({tokens}) is below max_num_seqs ({sequences})",
        remedy=f"raise max_num_batched_tokens or lower max_num_seqs to {tokens}",
    )


def _block_step(asked: Combination) -> Conflict | None:
    model = asked.model
    plain = model is not None and not isinstance(model.attention, LatentAttention)
    step = _CPU_BLOCK_STEP if asked.build == CPU and plain else _BLOCK_STEP
    if asked.block_size is None or asked.block_size % step == 0:
        return None
    return Conflict(
        settings=("block_size",),
        reason=f"block_size {asked.block_size} is no multiple of {step}, which the attention"
        f" kernels of the {asked.build} build need",
        remedy=f"take {max(step, asked.block_size // step * step)}",
    )


def _heads_per_rank(asked: Combination) -> Conflict | None:
    """Heads, KV heads and widths must shard (case E-15)."""
    size, model = asked.tensor_parallel, asked.model
    if model is None or size in (legal := tensor_parallel_sizes(model, size)):
        return None
    return Conflict(
        settings=("tensor_parallel_size",),
        reason=f"the model's heads and widths do not divide over {size} devices",
        remedy=f"take one of {', '.join(map(str, legal))}",
    )


def _draft_vocabulary(asked: Combination) -> Conflict | None:
    """A draft's token ids are the target's (case E-07)."""
    drafting, model = asked.drafting, asked.model
    if drafting is None or model is None or drafting.vocabulary is None:
        return None
    if drafting.heterogeneous_vocabulary or drafting.vocabulary == model.vocab_size:
        return None
    return Conflict(
        settings=("speculative_config",),
        reason=f"vocab {drafting.vocabulary} != {model.vocab_size}: draft and target differ in the"
        " size of their vocabulary",
        remedy="take a draft of the same vocabulary, or set use_heterogeneous_vocab",
    )


def _draft_ranks(asked: Combination) -> Conflict | None:
    drafting = asked.drafting
    if drafting is None or drafting.tensor_parallel in (None, 1, asked.tensor_parallel):
        return None
    return Conflict(
        settings=("speculative_config", "tensor_parallel_size"),
        reason=f"draft TP {drafting.tensor_parallel} is neither 1 nor {asked.tensor_parallel}",
        remedy=f"set draft_tensor_parallel_size to 1 or {asked.tensor_parallel}",
    )


def _lookup_bounds(asked: Combination) -> Conflict | None:
    drafting = asked.drafting
    if drafting is None or drafting.lookup_min is None or drafting.lookup_max is None:
        return None
    if 1 <= drafting.lookup_min <= drafting.lookup_max:
        return None
    return Conflict(
        settings=("speculative_config",),
        reason=f"prompt_lookup_min ({drafting.lookup_min}) is not between 1 and prompt_lookup_max"
        f" ({drafting.lookup_max})",
        remedy="exchange the two",
    )


def _async_draft(asked: Combination) -> Conflict | None:
    drafting = asked.drafting
    if asked.async_scheduling is not True or drafting is None or drafting.method in _ASYNC_DRAFTS:
        return None
    return Conflict(
        settings=("async_scheduling", "speculative_config"),
        reason=f"asynchronous scheduling cannot run drafts of method {drafting.method}",
        remedy="leave async_scheduling unset; the engine then switches it off",
    )


def _draft_length_by_batch(asked: Combination) -> Conflict | None:
    """Ranks would draft different lengths; vLLM falls back to the fixed one (handbook 13.22)."""
    drafting = asked.drafting
    if drafting is None or not drafting.by_batch_size or asked.data_parallel <= 1:
        return None
    return Conflict(
        settings=("speculative_config", "data_parallel_size"),
        reason="a draft length by batch size does not work with data parallelism",
        remedy="remove num_speculative_tokens_per_batch_size or serve replicas of one rank",
        ignored=True,
    )


def _synthetic_on_cpu(asked: Combination) -> Conflict | None:
    """Seen on the CPU build: an assertion in the sampler."""
    drafting = asked.drafting
    if asked.build != CPU or drafting is None or drafting.rejection != "synthetic":
        return None
    return Conflict(
        settings=("speculative_config",),
        reason="the CPU build has no synthetic rejection of drafts",
        remedy="measure verification with a pruned draft instead",
    )


def _reported_drafts(asked: Combination) -> Conflict | None:
    if not asked.reports_drafts or asked.drafting is not None:
        return None
    return Conflict(
        settings=("per_request_spec_decode_metrics",),
        reason="figures of drafts per request need a speculative_config",
        remedy="leave per_request_spec_decode_metrics unset",
    )


def _latent_four_bit(asked: Combination) -> Conflict | None:
    """Handbook 13.23; `nvfp4_ds_mla` is the form for latent attention."""
    model = asked.model
    if (
        asked.kv_cache_dtype != _FOUR_BIT_KV
        or model is None
        or not isinstance(model.attention, LatentAttention)
    ):
        return None
    return Conflict(
        settings=("kv_cache_dtype",),
        reason="a 4-bit KV cache does not hold the latent attention of this model",
        remedy="take fp8 or auto",
    )


RULES: tuple[Rule, ...] = (
    _unchunked_prompt,
    _step_below_batch,
    _block_step,
    _heads_per_rank,
    _draft_vocabulary,
    _draft_ranks,
    _lookup_bounds,
    _async_draft,
    _draft_length_by_batch,
    _synthetic_on_cpu,
    _reported_drafts,
    _latent_four_bit,
)
