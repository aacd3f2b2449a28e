"""`rooftune simulate`: a traffic file on a simulated engine, offline."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.simulator.predicted import PERCENTILES
from tests.api.front import Run
from tests.fakes.model_configs import LLAMA_31_70B, LLAMA_32_1B
from tests.fakes.model_folder import write_model_folder

SMALL = {**LLAMA_32_1B, "max_position_embeddings": 4096}
LARGE = {**LLAMA_31_70B, "max_position_embeddings": 4096}
NGRAM = 'speculative_config={"method":"ngram","num_speculative_tokens":2}'


@pytest.fixture
def run(rooftune: Run) -> Run:
    """Run `rooftune simulate`: exit code, standard output, standard error."""
    return partial(rooftune, "simulate")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model folder without weights: a simulation needs none."""
    return write_model_folder(tmp_path / "model", SMALL)


def traffic(path: Path, rate_per_s: float, count: int = 60, *, timed: bool = True) -> str:
    """Requests of 200 + 50 tokens on average, with or without times."""
    draw = np.random.default_rng(5)
    times = np.cumsum(draw.exponential(1 / rate_per_s, count))
    lines = ["timestamp,prompt_tokens,output_tokens" if timed else "prompt_tokens,output_tokens"]
    for at in times:
        lengths = f"{draw.integers(50, 350)},{draw.integers(10, 90)}"
        lines.append(f"{at:.4f},{lengths}" if timed else lengths)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def quiet(tmp_path: Path) -> str:
    """Four requests a second."""
    return traffic(tmp_path / "quiet.csv", 4.0)


def asked(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run(*arguments, "--json")
    assert out, err
    return code, json.loads(out)


def test_every_figure_has_an_interval_and_a_source(run: Run, model: str, quiet: str) -> None:
    """Percentiles of all times, rates, memory; what is left out is named."""
    code, held = asked(run, quiet, "--model", model, "--hardware", "l4")
    said = held["predicted"]

    assert code == 0
    assert held["requests"] == 60
    assert held["keeps_up"] is True
    for name in ("ttft", "tpot", "e2e"):
        marks = [said[f"{name}_p{place}_s"]["value"] for place in PERCENTILES if place < 99]
        assert marks == sorted(marks)
        assert f"{name}_p99_s" not in said, "60 requests say nothing of a 99th percentile"
    assert "cached_prompt_share" not in said, "lengths do not say what prompts share"
    assert {"output_tokens_per_s", "kv_usage_peak", "preemptions", "running_mean"} < set(said)
    for one in said.values():
        assert one["low"] <= one["value"] <= one["high"]
        assert one["source"] == "simulated"
        assert one["not_modelled"] == held["not_modelled"] != []


def test_a_person_reads_sentences_and_a_table(run: Run, model: str, quiet: str) -> None:
    """The verdict, what binds, and times with their intervals."""
    code, out, _ = run(quiet, "--model", model, "--hardware", "l4")

    assert code == 0
    assert "60 requests at the file's times." in out
    assert "It keeps up:" in out
    assert "What binds:" in out
    assert "TTFT" in out
    assert "Not modelled" in out


def test_traffic_without_times_needs_a_closed_loop(run: Run, model: str, tmp_path: Path) -> None:
    """It says so; with requests in flight it is served."""
    file = traffic(tmp_path / "lengths.csv", 1.0, timed=False)
    code, _, err = run(file, "--model", model, "--hardware", "l4")
    closed, held = asked(run, file, "--model", model, "--hardware", "l4", "--concurrency", "4")

    assert code == 2
    assert "--concurrency" in err
    assert closed == 0
    assert held["loop"] == "closed"
    assert 3 < held["predicted"]["running_mean"]["value"] <= 4
    assert held["closed_form"] is None


def test_a_model_too_large_is_told_with_what_would_fit(
    run: Run, quiet: str, tmp_path: Path
) -> None:
    """The term in the way, what is missing, and the nearest changes; nothing is simulated."""
    large = write_model_folder(tmp_path / "large", LARGE)
    code, held = asked(run, quiet, "--model", large, "--hardware", "h100-sxm")
    _, out, _ = run(quiet, "--model", large, "--hardware", "h100-sxm")

    assert code == 1
    assert held["fit"]["verdict"] == "does not fit"
    assert held["fit"]["binding"] == "weights"
    assert held["fit"]["missing_bytes"] > 0
    assert held["predicted"] == {}
    assert "tensor_parallel_size" in {change["setting"] for change in held["fit"]["changes"]}
    assert "would fit" in out


def test_an_engine_that_cannot_keep_up_is_a_negative_answer(
    run: Run, model: str, tmp_path: Path
) -> None:
    """One slot for many requests: the queue grows, and the slot is what binds."""
    busy = traffic(tmp_path / "busy.csv", 40.0)
    options = (busy, "--model", model, "--hardware", "l4", "--config", "max_num_seqs=1")
    code, held = asked(run, *options)

    assert code == 1
    assert held["keeps_up"] is False
    assert held["binds"] == "max_num_seqs"
    assert held["highest_rate_per_s"]["fast"] < held["offered_per_s"]
    assert held["closed_form"]["exact_enough"] is False


def test_a_goal_is_missed_open_or_met(run: Run, model: str, quiet: str) -> None:
    """Below the interval, inside it, above it."""
    plain = (quiet, "--model", model, "--hardware", "l4")
    said = asked(run, *plain)[1]["predicted"]["tpot_p95_s"]
    limits = (said["low"] / 2, said["value"], said["high"] * 2)

    codes = [asked(run, *plain, "--tpot-p95", str(limit))[0] for limit in limits]

    assert codes == [1, 4, 0]


def test_a_command_and_pairs_say_the_same(run: Run, model: str, quiet: str) -> None:
    """vLLM's own words either way; what is not kept is named."""
    plain = (quiet, "--model", model, "--hardware", "l4")
    command = "vllm serve x --max-num-seqs 4 --no-enable-prefix-caching --seed 1"
    pairs = ("--config", "max_num_seqs=4", "--config", "enable_prefix_caching=false")
    _, by_command = asked(run, *plain, "--config", command)
    _, by_pairs = asked(run, *plain, *pairs)

    assert by_command["settings"]["max_num_seqs"] == 4
    assert by_command["settings"] == by_pairs["settings"]
    assert by_command["predicted"] == by_pairs["predicted"]
    assert "--seed" in by_command["notes"][0]
    assert by_pairs["notes"] == []


def test_drafts_need_their_acceptance(run: Run, model: str, quiet: str) -> None:
    """From lengths nobody can tell; stated shares are used, and good drafts shorten TPOT."""
    plain = (quiet, "--model", model, "--hardware", "l4")
    code, _, err = run(*plain, "--config", NGRAM)
    _, without = asked(run, *plain)
    good, drafted = asked(run, *plain, "--config", NGRAM, "--acceptance", "0.9,0.8")

    assert code == 2
    assert "--acceptance" in err
    assert good == 0
    assert drafted["predicted"]["accepted_draft_share"]["value"] == pytest.approx(0.85, abs=0.05)
    assert (
        drafted["predicted"]["tpot_mean_s"]["value"] < without["predicted"]["tpot_mean_s"]["value"]
    )


def test_drafts_are_replayed_where_there_is_text(run: Run, model: str, tmp_path: Path) -> None:
    """An answer that repeats its prompt gets its drafts accepted, without a stated share."""
    text = " ".join(f"word{place}" for place in range(120))
    rows = [{"timestamp": 5.0 * at, "prompt": f"{at} {text}", "response": text} for at in range(4)]
    file = tmp_path / "copied.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = (str(file), "--model", model, "--hardware", "l4")
    code, held = asked(run, *plain, "--config", NGRAM)

    assert code == 0
    assert held["settings"]["speculation"]["coverage"] > 0.5
    assert held["predicted"]["accepted_draft_share"]["value"] > 0.5


def test_the_drafts_that_pay_follow_their_acceptance(run: Run, model: str, quiet: str) -> None:
    """Nearly all accepted: they pay; none accepted: none does. Without drafts no word of it."""
    plain = (quiet, "--model", model, "--hardware", "l4")
    good = asked(run, *plain, "--config", NGRAM, "--acceptance", "0.95,0.9")[1]
    bad = asked(run, *plain, "--config", NGRAM, "--acceptance", "0,0")[1]
    _, out, _ = run(*plain, "--config", NGRAM, "--acceptance", "0,0")

    assert good["paying_drafts"]["num_speculative_tokens"] == 2
    assert bad["paying_drafts"] == {}
    assert "No draft length pays" in " ".join(out.split())
    assert asked(run, *plain)[1]["paying_drafts"] is None


def test_a_price_of_ones_own_takes_the_place_of_the_list(
    run: Run, model: str, quiet: str, tmp_path: Path
) -> None:
    """Twice the price of an hour is twice that of a token; a card nobody knows is refused."""
    plain = (quiet, "--model", model, "--hardware", "l4")
    own = []
    for hour in (1, 2):
        file = tmp_path / f"{hour}.toml"
        file.write_text(f"l4 = {hour}\n")
        own.append(asked(run, *plain, "--prices", str(file))[1])
    listed = asked(run, *plain)[1]["price_per_million_output_tokens"]
    once, twice = (one["price_per_million_output_tokens"]["value"] for one in own)
    (tmp_path / "bad.toml").write_text("l5 = 1\n")
    code, _, err = run(*plain, "--prices", str(tmp_path / "bad.toml"))

    assert twice == pytest.approx(2 * once)
    assert own[0]["currency"] == "USD"
    assert listed["low"] < listed["value"] < listed["high"]
    assert (code, "l5" in err) == (2, True)


def test_prompts_of_one_text_share_their_blocks(run: Run, model: str, tmp_path: Path) -> None:
    """The second of two equal prompts comes from the cache, unless caching is off."""
    text = "word " * 400
    rows = [{"timestamp": at, "prompt": text, "response": "and so on and on"} for at in (0.0, 30.0)]
    file = tmp_path / "same.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = (str(file), "--model", model, "--hardware", "l4")
    _, on = asked(run, *plain)
    _, off = asked(run, *plain, "--config", "enable_prefix_caching=false")

    assert on["prefix_sharing"] == "tokens"
    assert on["predicted"]["cached_prompt_share"]["value"] > 0.3
    assert off["predicted"]["cached_prompt_share"]["value"] == 0


def test_requests_longer_than_the_model_are_counted(run: Run, model: str, tmp_path: Path) -> None:
    """They are refused as the engine would, and said so."""
    file = tmp_path / "long.csv"
    file.write_text("timestamp,prompt_tokens,output_tokens\n0,100,10\n1,5000,10\n2,200,10\n")
    _, held = asked(run, str(file), "--model", model, "--hardware", "l4")
    _, out, _ = run(str(file), "--model", model, "--hardware", "l4")

    assert held["refused"] == 1
    assert "1 requests are refused" in out


def test_more_engines_serve_more(run: Run, model: str, tmp_path: Path) -> None:
    """Two replicas with one slot each wait less than one; the highest rate doubles."""
    busy = traffic(tmp_path / "busy.csv", 10.0)
    plain = (busy, "--model", model, "--hardware", "l4", "--config", "max_num_seqs=1")
    _, one = asked(run, *plain)
    _, two = asked(run, *plain, "--replicas", "2")

    assert two["predicted"]["ttft_mean_s"]["value"] < one["predicted"]["ttft_mean_s"]["value"]
    assert two["highest_rate_per_s"]["centre"] == pytest.approx(
        2 * one["highest_rate_per_s"]["centre"]
    )


def test_a_picture_is_one_page_that_needs_no_network(
    run: Run, model: str, quiet: str, tmp_path: Path
) -> None:
    """Plotly is in the page; the title says what was simulated."""
    picture = tmp_path / "picture.html"
    code, _, _ = run(quiet, "--model", model, "--hardware", "l4", "--plot", str(picture))
    page = picture.read_text(encoding="utf-8")

    assert code == 0
    assert "<h1>quiet.csv on L4</h1>" in page
    assert "KV cache in use" in page
    assert '<script src="http' not in page


@pytest.mark.parametrize(
    "options",
    [
        ("--hardware", "tpu"),
        ("--hardware", "l4", "--routing", "nearest"),
        ("--hardware", "l4", "--config", "scheduling_policy=lifo"),
        ("--hardware", "l4", "--config", "max_num_seqs=0"),
        ("--hardware", "l4", "--config", "tensor_parallel_size=64"),
        ("--hardware", "l4", "--acceptance", "0.5"),
        ("--hardware", "l4", "--rate", "0"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    run: Run, model: str, quiet: str, options: tuple[str, ...]
) -> None:
    """Exit code 2 and a sentence, no trace of the program."""
    code, _, err = run(quiet, "--model", model, *options)

    assert code == 2
    assert "Traceback" not in err


def test_the_same_seed_gives_the_same_bytes(run: Run, model: str, quiet: str) -> None:
    """With drawn acceptance and random routing too."""
    options = (quiet, "--model", model, "--hardware", "l4", "--config", NGRAM)
    drawn = (*options, "--acceptance", "0.6,0.3", "--replicas", "2", "--routing", "random")
    first, again, other = (run(*drawn, "--seed", seed, "--json")[1] for seed in ("1", "1", "2"))

    assert first == again
    assert first != other
