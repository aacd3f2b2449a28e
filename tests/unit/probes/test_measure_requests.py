"""Which requests a load of `rooftune measure` sends, and how prefix caches are kept from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.asked import MeasurePlan, Salt, Stop
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Rank
from advisor.measurement.rounds import PlannedLoad
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.trace import Request, RequestKind
from probes.load.plan import ReplayRule
from probes.measure.attached import AttachedServer, address_of
from probes.measure.sending import Shot, load_plan_of, open_loop_of, rule_of, salted
from probes.measure.server import Identity
from probes.measure.workload import Dealer, Workload, read_workload
from probes.scripts.pruned_draft import kept, shortened

PLAN = MeasurePlan(kind=LoopKind.CLOSED, levels=(2,))


def chat(index: int, session: str | None = None, arrival_s: float | None = None) -> Request:
    return Request(
        id=f"r{index}",
        index=index,
        line=index + 1,
        kind=RequestKind.CHAT,
        messages=json.dumps([{"role": "user", "content": f"question {index}"}]),
        session=session,
        arrival_s=arrival_s,
    )


def workload(*requests: Request) -> Workload:
    return Workload(
        digest="w",
        requests=requests,
        prompt_tokens=(10,) * len(requests),
        output_tokens=(5,) * len(requests),
    )


def server(engine: str | None = "vllm") -> AttachedServer:
    return AttachedServer(
        address=address_of("https://host/prefix/v1/", api_key="secret"),
        identity=Identity(model="m", engine=engine, version=None, max_model_len=None),
        has_counters=False,
    )


def shot(dealer: Dealer, count: int, level: float = 2) -> Shot:
    planned = PlannedLoad(level=level, repeat=1, requests=count)
    return Shot(planned=planned, deal=dealer.deal(count), digest="d", not_fitting=0)


def bodies(asked: AttachedServer, plan: MeasurePlan, made: Shot) -> list[dict[str, Any]]:
    sent = load_plan_of(asked, plan, made, open_loop_of(plan, made))
    return [dict(request.body) for request in sent.requests]


def test_every_load_begins_with_the_same_requests_where_caches_are_kept_apart() -> None:
    """Loads then differ by nothing else; a larger load goes on where a smaller one ends."""
    dealer = Dealer(workload=workload(*map(chat, range(9))), seed=1, repeats=True)
    first, second = dealer.deal(3), dealer.deal(5)
    names = [request.id for request in second.workload.requests]

    assert [request.id for request in first.workload.requests] == names[:3]
    assert (first.again, second.again) == (False, True)
    assert len(set(names)) == 5


def test_without_that_each_load_gets_requests_that_were_not_sent_before() -> None:
    """Until none are left: then it says so."""
    dealer = Dealer(workload=workload(*map(chat, range(9))), seed=1, repeats=False)
    deals = [dealer.deal(3) for _ in range(4)]
    names = [request.id for deal in deals[:3] for request in deal.workload.requests]

    assert len(set(names)) == 9
    assert [deal.again for deal in deals] == [False, False, False, True]


def test_conversations_stay_whole_and_in_order() -> None:
    """Whatever is drawn around them."""
    turns = [chat(0, "a"), chat(1), chat(2, "a"), chat(3), chat(4, "a")]
    for seed in range(8):
        dealt = Dealer(workload=workload(*turns), seed=seed, repeats=True).deal(5)
        places = [request.index for request in dealt.workload.requests if request.session == "a"]
        assert places == [0, 2, 4]


def test_a_load_larger_than_the_workload_sends_it_again_under_other_names() -> None:
    """A copy is another request of another conversation, with a cache of its own."""
    dealer = Dealer(workload=workload(chat(0, "a"), chat(1, "a")), seed=1, repeats=True)
    made = shot(dealer, 4)
    sent = bodies(server(), PLAN, made)
    names = [request.id for request in made.workload.requests]

    assert made.deal.laps == (0, 0, 1, 1)
    assert len(set(names)) == 4
    assert {request.session for request in made.workload.requests} == {"a", "a#1"}
    assert sent[0]["cache_salt"] == sent[1]["cache_salt"]
    assert sent[0]["cache_salt"] != sent[2]["cache_salt"]


def test_a_salt_is_one_for_a_load_and_another_for_the_next() -> None:
    """What requests of one load share is the user's own sharing (case S-10)."""
    dealer = Dealer(workload=workload(*map(chat, range(4))), seed=1, repeats=True)
    first = {body["cache_salt"] for body in bodies(server(), PLAN, shot(dealer, 4))}
    second = {body["cache_salt"] for body in bodies(server(), PLAN, shot(dealer, 4))}

    assert len(first) == len(second) == 1
    assert first != second


def test_another_server_gets_no_field_that_only_vllm_knows() -> None:
    """It may refuse a request for one; answers then end where they end."""
    other = server(engine=None)
    dealer = Dealer(workload=workload(chat(0)), seed=1, repeats=False)
    (body,) = bodies(other, PLAN, shot(dealer, 1))

    assert set(body) & {"cache_salt", "ignore_eos", "min_tokens", "return_token_ids"} == set()
    assert body["stream"] is True
    assert not rule_of(PLAN, other, dealer.workload).fixed
    assert rule_of(PLAN, server(), dealer.workload).fixed
    natural = MeasurePlan(kind=LoopKind.CLOSED, levels=(2,), stop=Stop.NATURAL)
    assert not rule_of(natural, server(), dealer.workload).fixed


def test_a_word_before_the_prompt_changes_its_first_message_only() -> None:
    """Text, parts of text, plain prompts; token ids stay as they are."""
    messages: list[Any] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]

    assert salted({"messages": messages}, "[x] ")["messages"] == [
        {"role": "system", "content": "[x] be brief"},
        messages[1],
    ]
    assert salted({"messages": parts}, "[x] ")["messages"] == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "[x] "}, {"type": "text", "text": "hi"}],
        }
    ]
    assert salted({"prompt": "once"}, "[x] ")["prompt"] == "[x] once"
    assert salted({"prompt": [1, 2]}, "[x] ")["prompt"] == [1, 2]


def test_a_salt_is_decided_by_the_server_unless_it_was_asked_for() -> None:
    """vLLM's own field where it is understood; a prompt is never changed unasked."""
    assert server().salt(Salt.AUTO) is Salt.FIELD
    assert server(engine=None).salt(Salt.AUTO) is Salt.NONE
    assert server(engine=None).salt(Salt.PROMPT) is Salt.PROMPT


def test_an_address_keeps_its_path_and_hides_its_key() -> None:
    """With or without /v1 at its end; the scheme gives the port."""
    address = server().address

    assert (address.host, address.port, address.base_path) == ("host", 443, "/prefix")
    assert address.tls
    assert "secret" not in repr(address)
    assert address_of("host:8000").shown == "http://host:8000"
    assert server().rank is Rank.CLIENT_SIDE
    for wrong in ("ftp://host", "http://", "http://user:pass@host", "http://host:99999"):
        with pytest.raises(InvalidInput):
            address_of(wrong)


def test_recorded_arrivals_are_paced_as_many_times_as_fast_as_asked() -> None:
    """A level is a rate; the speed is that over the recorded one."""
    paced = workload(*(chat(i, arrival_s=0.5 * i) for i in range(5)))
    dealer = Dealer(workload=paced, seed=1, repeats=True, recorded=True)
    plan = MeasurePlan(kind=LoopKind.OPEN, levels=(1.0,), arrivals="recorded")
    made = shot(dealer, 9, level=4.0)
    sent = load_plan_of(server(), plan, made, open_loop_of(plan, made))

    assert len(made.workload.requests) == 5, "a recorded pace has no more requests than it has"
    assert sent.schedule.offsets_s == pytest.approx((0.0, 0.25, 0.5, 0.75, 1.0))


def test_requests_that_do_not_fit_are_left_out_and_counted() -> None:
    """By prompt and wanted output against the server's length (case T-18)."""
    given = Workload(
        digest="w",
        requests=(chat(0), chat(1)),
        prompt_tokens=(10, 100),
        output_tokens=(5, 5),
    )
    rule = ReplayRule(cap_tokens=50, default_tokens=10, fixed=True)
    fitting, split = given.fitting(rule, 64)

    assert [request.id for request in fitting.requests] == ["r0"]
    assert split.requests_share == 0.5
    with pytest.raises(InvalidInput, match="no request fits"):
        given.fitting(rule, 8)


def test_a_file_of_any_format_is_a_workload(tmp_path: Path) -> None:
    """Its own counts stand where no tokenizer is given; equal files have equal digests."""
    file = tmp_path / "lengths.csv"
    file.write_text("timestamp,prompt_tokens,output_tokens\n0.0,12,3\n1.5,20,4\n")
    found, again = (read_workload(file, ReadOptions()) for _ in range(2))

    assert found.prompt_tokens == (12, 20)
    assert found.output_tokens == (3, 4)
    assert found.arrivals_s == (0.0, 1.5)
    assert found.digest == again.digest


def test_a_pruned_draft_keeps_the_first_layers_and_what_belongs_to_none() -> None:
    """Embedding, norm and head stay; fields with an entry for each layer are cut as well."""
    config = {"num_hidden_layers": 4, "layer_types": ["a", "b", "c", "d"], "vocab_size": 9}
    names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    layers = [f"model.layers.{place}.mlp.weight" for place in (0, 1, 2, 10)]

    assert [name for name in [*names, *layers] if kept(name, 2)] == [*names, *layers[:2]]
    assert shortened(config, 2) == {
        "num_hidden_layers": 2,
        "layer_types": ["a", "b"],
        "vocab_size": 9,
    }
