"""What an upload promises: with a model and a device, with lengths only, with neither."""

import io
from dataclasses import replace

import pytest

from advisor.estimate import Estimate, Source
from advisor.hardware import DATASHEETS, H100_SXM
from advisor.recommender.outlook import Outlook, Served, balance_tokens, outlook
from advisor.recommender.screening import Worth
from advisor.serving import FunctionalSettings, ServingConfig
from advisor.techniques import TECHNIQUES, Need
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.reading import read_trace
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import ChatTokenizer, token_columns
from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json
from tests.fakes.values import MODEL

CONFIG = ServingConfig(functional=FunctionalSettings(max_model_len=2048, kv_cache_space_gib=2))
SERVED = Served(model=MODEL, device=H100_SXM, baseline=CONFIG)
ROW = '{{"messages": [{{"role": "user", "content": "{0}"}}], "response": "{1}"}}\n'
TEXT = "".join(ROW.format("copy this " * 9, "copy this " * n) for n in (2, 5, 1, 20)).encode()
LENGTHS = b"prompt_tokens,output_tokens\n100,10\n200,40\n50,5\n900,80\n"


def traffic(body: bytes, *, counted: bool) -> TrafficSummary:
    """The summary of a file, with the tokens of a byte tokenizer or without any."""
    name = "sample.jsonl" if body.startswith(b"{") else "sample.csv"
    requests = read_trace(io.BytesIO(body), filename=name).requests
    tokenizer = ChatTokenizer(byte_tokenizer_json(), PLAIN_TEMPLATE, {})
    tokens = token_columns(requests, tokenizer) if counted else None
    return summarise(requests, tokens, block_size=16, lookup_tokens=4, other_lookups=(2,))


def needing_text(found: Outlook) -> list[Worth]:
    """What is said of techniques that need text."""
    keys = {item.key for item in TECHNIQUES if Need.TEXT in item.needs}
    return [
        said.worth for item in found.techniques if item.technique in keys for said in item.forecasts
    ]


def test_text_on_a_known_device_says_something_of_every_technique() -> None:
    """Each has an interval or a reason, for the load to serve and for its own loads."""
    found = outlook(traffic(TEXT, counted=True), SERVED, concurrency=8)
    said = [item for technique in found.techniques for item in technique.forecasts]

    assert [item.technique for item in found.techniques] == [item.key for item in TECHNIQUES]
    assert all((item.predicted is None) <= (item.reason is not None) for item in said)
    assert Worth.TEST in {item.worth for item in said}
    assert (found.hardware, found.model) == ("H100 SXM", "LlamaForCausalLM")
    assert found.unmeasurable == {}


def test_lengths_alone_give_null_with_a_reason_never_zero() -> None:
    """A length-only upload on a known device: nothing is said of what needs text."""
    found = outlook(traffic(LENGTHS, counted=False), SERVED, concurrency=8)
    keys = {item.key for item in TECHNIQUES if Need.TEXT in item.needs}
    without = [
        said for item in found.techniques if item.technique in keys for said in item.forecasts
    ]

    assert without
    assert {
        (said.predicted, said.worth) for said in without if said.worth is not Worth.NOT_APPLICABLE
    } == {(None, Worth.UNKNOWN)}
    assert all("only lengths" in str(said.reason) for said in without)
    assert found.static_speedup is not None
    assert found.paging is not None


def test_without_a_target_only_lengths_speak() -> None:
    """The bound on static batches needs no model; everything else names what is missing."""
    found = outlook(traffic(LENGTHS, counted=False), None, concurrency=8)
    by_worth = {item.technique: said.worth for item in found.techniques for said in item.forecasts}
    static = [item.key for item in TECHNIQUES if item.static_slots is not None]

    assert found.static_speedup is not None
    assert {key for key, worth in by_worth.items() if worth is not Worth.UNKNOWN} <= set(static)
    assert set(found.unmeasurable) == {"paging", "regime"}
    assert (found.hardware, found.model, found.paging, found.regime) == (None, None, None, None)


def test_text_without_a_tokenizer_has_no_lengths() -> None:
    """Nothing can be said, and why is said three times."""
    found = outlook(traffic(TEXT, counted=False), None, concurrency=8)

    assert set(needing_text(found)) == {Worth.UNKNOWN}
    assert set(found.unmeasurable) == {"paging", "static_speedup", "regime"}


def test_paging_compares_shares_and_requests() -> None:
    """Contiguous reservation holds the mean request in `max_model_len` (handbook 2.4)."""
    summary = traffic(LENGTHS, counted=False)
    paging = outlook(summary, SERVED, concurrency=8).paging
    total = summary.total_tokens

    assert paging is not None
    assert total is not None
    assert (paging.block_size, paging.reserved_tokens) == (16, 2048)
    assert paging.contiguous_share == pytest.approx(total.mean / 2048)
    assert paging.paged_share == summary.paged_share
    assert paging.paged_requests is not None
    assert paging.contiguous_requests is not None
    assert paging.paged_requests / paging.contiguous_requests == pytest.approx(
        paging.paged_share / paging.contiguous_share, rel=2e-3
    )  # whole blocks


def test_a_cache_of_unknown_size_holds_an_unknown_number() -> None:
    """An engine on a GPU chooses the size itself; shares need no size."""
    free = replace(SERVED, baseline=ServingConfig(functional=FunctionalSettings()))
    paging = outlook(traffic(LENGTHS, counted=False), free, concurrency=8).paging

    assert paging is not None
    assert paging.reserved_tokens == MODEL.max_position_embeddings
    assert (paging.paged_requests, paging.contiguous_requests) == (None, None)


def test_a_request_longer_than_the_limit_has_no_paging_picture() -> None:
    """It could not be served at all."""
    short = ServingConfig(functional=FunctionalSettings(max_model_len=512))
    found = outlook(traffic(LENGTHS, counted=False), replace(SERVED, baseline=short), concurrency=8)

    assert found.paging is None
    assert "980 tokens" in found.unmeasurable["paging"]


def test_the_regime_follows_the_load() -> None:
    """Few tokens in a step wait for memory, many for arithmetic."""
    summary = traffic(LENGTHS, counted=False)
    few, many = (outlook(summary, SERVED, concurrency=load).regime for load in (1, 1000))

    assert "decoding is bound by memory bandwidth" in str(few)
    assert "decoding is bound by compute" in str(many)


@pytest.mark.parametrize("name, effective", [("h100-sxm", 279), ("h200-sxm", 198), ("b200", 250)])
def test_the_balance_holds_the_handbooks_effective_knee(name: str, effective: int) -> None:
    """Measured kernels of handbook 3.2 lie inside the range assumed for their device."""
    knee = balance_tokens(DATASHEETS[name], "bfloat16")

    assert knee.low < effective < knee.high
    assert knee.source is Source.ROOFLINE


def test_an_unknown_rate_is_a_reason() -> None:
    """No rate is made up for a number format that the datasheet does not state."""
    single = replace(SERVED, baseline=CONFIG.changed({"dtype": "float32"}))
    found = outlook(traffic(LENGTHS, counted=False), single, concurrency=8)

    assert found.regime is None
    assert "float32" in found.unmeasurable["regime"]


def test_a_measured_device_narrows_nothing_but_its_peaks() -> None:
    """The ends of the range come from the ends of rate and bandwidth."""
    sure = balance_tokens(H100_SXM, "bfloat16")
    half = Estimate(
        value=3.35e12, low=1.675e12, high=3.35e12, source=Source.LITERATURE, basis="a test"
    )
    unsure = balance_tokens(replace(H100_SXM, bandwidth_bytes_per_s=half), "bfloat16")

    assert unsure.high == pytest.approx(2 * sure.high)
    assert unsure.low == sure.low
