"""Speculative decoding: what drafts yield, cost and gain (handbook 6)."""

from advisor.roofline.speculation.acceptance import (
    Acceptance,
    conditional,
    geometric,
    one_hot_acceptance,
    sampled_acceptance,
    tempered,
    tokens_over_requests,
)
from advisor.roofline.speculation.closed_form import (
    acceptance_from_survival,
    batch_speedup,
    best_draft_tokens,
    best_draft_tokens_measured,
    break_even_acceptance,
    break_even_batch,
    expected_tokens,
    operations_factor,
    speedup,
    tokens_from_survival,
)
from advisor.roofline.speculation.counters import DecodeYield, decode_yield, tokens_per_step
from advisor.roofline.speculation.drafting import Drafter, MeasuredDrafter, ModelDrafter
from advisor.roofline.speculation.gain import (
    Speculating,
    batch_grid,
    speculating_requests,
    verified_experts,
)
from advisor.roofline.speculation.methods import METHODS, Method, method
from advisor.roofline.speculation.schedule import DraftSchedule, checked_ranges, draft_schedule

__all__ = [
    "METHODS",
    "Acceptance",
    "DecodeYield",
    "DraftSchedule",
    "Drafter",
    "MeasuredDrafter",
    "Method",
    "ModelDrafter",
    "Speculating",
    "acceptance_from_survival",
    "batch_grid",
    "batch_speedup",
    "best_draft_tokens",
    "best_draft_tokens_measured",
    "break_even_acceptance",
    "break_even_batch",
    "checked_ranges",
    "conditional",
    "decode_yield",
    "draft_schedule",
    "expected_tokens",
    "geometric",
    "method",
    "one_hot_acceptance",
    "operations_factor",
    "sampled_acceptance",
    "speculating_requests",
    "speedup",
    "tempered",
    "tokens_from_survival",
    "tokens_over_requests",
    "tokens_per_step",
    "verified_experts",
]
