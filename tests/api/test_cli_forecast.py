"""`rooftune forecast`: offline, on a file, with or without a model folder."""

import json
from functools import partial
from pathlib import Path

import pytest

from advisor.canonical import as_json
from advisor.recommender.outlook import Outlook, TechniqueOutlook
from advisor.recommender.screening import Forecast, Worth
from advisor.techniques import TECHNIQUES
from api.cli.answer import Exit
from api.cli.forecast import ending
from tests.api.front import Run
from tests.api.world import TWO_REQUESTS
from tests.fakes.model_configs import LLAMA_32_1B
from tests.fakes.model_folder import write_model_folder
from tests.fakes.values import DEVICE

LENGTHS = b"prompt_tokens,output_tokens\n100,10\n200,40\n50,5\n"
CONFIG = {**LLAMA_32_1B, "max_position_embeddings": 4096}


@pytest.fixture
def run(rooftune: Run) -> Run:
    """Run `rooftune forecast`: exit code, standard output, standard error."""
    return partial(rooftune, "forecast")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model folder without weights: a forecast needs none."""
    return write_model_folder(tmp_path / "model", CONFIG)


@pytest.fixture
def sample(tmp_path: Path) -> str:
    """Two requests with text."""
    path = tmp_path / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)
    return str(path)


def test_a_file_with_a_model_and_a_card(run: Run, model: str, sample: str) -> None:
    """Strict JSON with a forecast per technique; without a service anywhere."""
    code, out, _ = run(sample, "--model", model, "--hardware", "h100-sxm", "--json")
    held = json.loads(out)["outlook"]

    assert code == 0
    assert [item["technique"] for item in held["techniques"]] == [item.key for item in TECHNIQUES]
    assert held["hardware"] == "H100 SXM"
    assert held["paging"]["reserved_tokens"] == 4096
    assert "in bfloat16" in held["regime"]


def test_a_person_reads_a_table_and_sentences(run: Run, model: str, sample: str) -> None:
    """What is unknown is said with its reason."""
    code, out, _ = run(sample, "--model", model, "--hardware", "l4", "--concurrency", "4")

    assert code == 0
    assert "worth testing" in out
    assert "Forecast at 4 in flight" in out
    assert "holds tokens with blocks of 16" in out


def test_a_file_of_facts_names_this_machine(
    run: Run, model: str, sample: str, tmp_path: Path
) -> None:
    """Bare facts, or a device as the service lists it."""
    bare, listed, wrong = (tmp_path / name for name in ("bare.json", "listed.json", "wrong.json"))
    bare.write_text(json.dumps(as_json(DEVICE)))
    listed.write_text(json.dumps({"id": "x", "facts": as_json(DEVICE)}))
    wrong.write_text("[]")
    found = [
        run(sample, "--model", model, "--hardware", str(path), "--json")
        for path in (bare, listed, wrong)
    ]

    assert [json.loads(out)["outlook"]["hardware"] for _, out, _ in found[:2]] == [DEVICE.name] * 2
    assert found[2][0] == Exit.USAGE


def test_the_users_command_is_the_baseline(run: Run, model: str, sample: str) -> None:
    """Its settings count; what is not kept is listed, and no secret of it."""
    baseline = "vllm serve x --max-model-len 1024 --max-num-seqs 1 --api-key sk-secret"
    arguments = (sample, "--model", model, "--hardware", "h100-sxm", "--baseline", baseline)
    _, out, _ = run(*arguments, "--json")
    text = run(*arguments)[1]
    held = json.loads(out)

    assert held["outlook"]["paging"]["reserved_tokens"] == 1024
    assert held["baseline_notes"][0].startswith("--api-key (text) is ignored")
    assert "not kept     --api-key" in text
    assert "secret" not in out + text


def test_the_cache_of_the_device_and_what_fits_are_told(run: Run, model: str, sample: str) -> None:
    """Tokens that the KV cache holds about, its hit share, the model's own limit."""
    code, out, _ = run(sample, "--model", model, "--hardware", "l4", "--json")
    text = " ".join(run(sample, "--model", model, "--hardware", "l4")[1].split())
    held = json.loads(out)

    assert code == 0
    assert held["kv_cache"]["exact"] is False
    assert held["kv_cache"]["tokens"] > 100_000
    assert 0 <= held["kv_cache_hit_share"] <= 1
    assert 4096 in [item["max_model_len"] for item in held["fits"]]
    assert "The KV cache holds about" in text
    assert held["kv_cache"]["low"] < held["kv_cache"]["tokens"] < held["kv_cache"]["high"]


def test_another_rate_is_forecast_at_what_its_durations_make_of_it(
    run: Run, tmp_path: Path
) -> None:
    """Requests of a second each second are one in flight, at twice the rate two."""
    path = tmp_path / "timed.csv"
    rows = "".join(f"{at},10,5,{at + 1}\n" for at in range(8))
    path.write_text(f"start_timestamp,prompt_tokens,output_tokens,end_timestamp\n{rows}")
    once, twice = (
        json.loads(run(str(path), "--time-unit", "s", "--rate", rate, "--json")[1])
        for rate in ("1", "2")
    )

    assert (once["in_flight"], once["in_flight_basis"]) == (16, "assumed")
    assert twice["in_flight"] == 2
    assert twice["in_flight_basis"] == "mean of the recorded durations at 2 times the rate"


def test_columns_with_names_of_their_own_are_read(run: Run, tmp_path: Path) -> None:
    """``--columns our=theirs``; what is no pair is wrong usage."""
    path = tmp_path / "own.csv"
    path.write_bytes(b"n_in,n_out\n100,10\n200,40\n50,5\n")
    given = ("--columns", "prompt_tokens=n_in", "--columns", "output_tokens=n_out", "--json")
    code, out, _ = run(str(path), *given)

    assert code == Exit.INCONCLUSIVE
    assert json.loads(out)["report"]["accepted"] == 3
    assert run(str(path), "--columns", "n_in")[0] == Exit.USAGE


def test_lengths_alone_are_inconclusive(run: Run, tmp_path: Path) -> None:
    """Exit 4: without a model nobody can say of any technique; null with reasons, never zero."""
    path = tmp_path / "lengths.csv"
    path.write_bytes(LENGTHS)
    code, out, _ = run(str(path), "--json")
    held = json.loads(out)["outlook"]

    assert code == Exit.INCONCLUSIVE
    assert set(held["unmeasurable"]) == {"paging", "regime"}
    assert held["static_speedup"]["value"] > 1
    assert (held["model"], held["paging"]) == (None, None)


@pytest.mark.parametrize(
    "options, told",
    [
        (("--model", "MODEL"), "--hardware"),
        (("--hardware", "h100"), "h100-sxm"),
        (("--baseline", "python x"), "vllm serve"),
        (("--concurrency", "0"), "concurrency"),
        (("--model", "nowhere"), "nowhere"),
    ],
)
def test_wrong_usage_exits_2(
    *, run: Run, model: str, sample: str, options: tuple[str, ...], told: str
) -> None:
    """With what would be right."""
    code, _, err = run(sample, *(model if word == "MODEL" else word for word in options))

    assert code == Exit.USAGE
    assert told in err


@pytest.mark.parametrize(
    "worths, code",
    [
        ((Worth.SKIP, Worth.TEST, Worth.UNKNOWN), Exit.OK),
        ((Worth.SKIP, Worth.UNKNOWN), Exit.INCONCLUSIVE),
        ((Worth.SKIP, Worth.NOT_APPLICABLE), Exit.NEGATIVE),
    ],
)
def test_the_ending_says_what_was_found(worths: tuple[Worth, ...], code: Exit) -> None:
    """Something to test, nobody can say, nothing to test."""
    key = next(item for item in TECHNIQUES if item.static_slots is None)
    forecasts = tuple(
        Forecast(technique=key.key, concurrency=8, predicted=None, worth=worth) for worth in worths
    )
    found = Outlook(
        concurrency=8,
        hardware=None,
        model=None,
        techniques=(
            TechniqueOutlook(
                technique=key.key,
                title=key.title,
                suits=key.suits,
                breaks=key.breaks,
                forecasts=forecasts,
            ),
        ),
        paging=None,
        static_speedup=None,
        regime=None,
    )

    assert ending(found) == code


def test_where_the_memory_goes_and_what_would_fit_is_told(
    run: Run, model: str, sample: str
) -> None:
    """The breakdown of a card; a length beyond its cache names the nearest change."""
    arguments = (sample, "--model", model, "--hardware", "l4")
    text = " ".join(run(*arguments)[1].split())
    held = json.loads(run(*arguments, "--json")[1])

    assert "Memory: weights" in text
    assert held["memory"]["verdict"] == "fits"
    assert held["memory"]["budget"]["terms"][0]["name"] == "weights"

    baseline = "vllm serve x --max-model-len 4000000 --gpu-memory-utilization 0.5"
    long = " ".join(run(*arguments, "--baseline", baseline)[1].split())
    assert "It does not fit" in long
    assert "Nearest change that fits: max_model_len" in long
