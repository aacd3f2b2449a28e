"""Step models and loops that the tests of this folder share."""

from advisor.roofline.closed_loop.loop import ClosedLoop
from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits

FIXED_S, TOKEN_S, CONTEXT_S = 8e-3, 2e-5, 4e-8


def affine(budget: int = 2048, *, pair_s: float = 0.0) -> StepTables:
    """An affine step of known coefficients."""
    step = AffineStep(fixed_s=FIXED_S, token_s=TOKEN_S, context_s=CONTEXT_S, pair_s=pair_s)
    return step.tables(TableLimits(max_tokens=budget, max_requests=64, max_context=4096))


def loop(concurrency: int, prompt: int, output: int, **changes: float) -> ClosedLoop:
    """A loop of lengths between half of the stated ones and the stated ones."""
    whole = {"max_num_batched_tokens": 2048, "max_num_seqs": 256, "shortest": 0.5, **changes}
    return ClosedLoop(
        concurrency=concurrency,
        prompt_tokens=prompt,
        output_tokens=output,
        max_num_batched_tokens=int(whole["max_num_batched_tokens"]),
        max_num_seqs=int(whole["max_num_seqs"]),
        cache_tokens=int(whole["cache_tokens"]) if "cache_tokens" in whole else None,
        shortest=float(whole["shortest"]),
        delay_s=float(whole.get("delay_s", 0.0)),
        answer_s=float(whole.get("answer_s", 0.0)),
        lag_steps=int(whole.get("lag_steps", 0)),
    )
