"""Three load clients under one roof: ours, `vllm bench serve`, AIPerf.

Each sends the same bodies to the same completions route, in the same order, so many at a time, and
answers with the same three figures by the same definitions:

- TTFT: from the send to the first frame that carries a token, median over all requests;
- TPOT: (last token - first token) / (tokens - 1) per request, median over all requests;
- throughput: output tokens over the span from the first send to the end of the last answer.

Medians, as the first request of a client that has just started pays for its first connection. None
of the three warms up or leaves requests out here: ours takes its latencies over all records, not
over the steady window that its load points use.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from advisor.errors import Unavailable
from advisor.measurement.latency import quantiles
from advisor.measurement.records import Outcome
from advisor.traffic.trace import Request, RequestKind
from db import guardian
from probes.load.plan import LoadPlan, ReplayRule, load_plan
from probes.load.runner import run_load
from probes.settings import engine_environment
from tests.fakes.records import point

ROOT = Path(__file__).parents[2]
AIPERF = ROOT / ".venv-clients" / "bin" / "aiperf"
LIMIT_S = 180.0
# The subcommand that `vllm bench serve` runs; the console script itself asks for the version of a
# distribution called vllm, which the CPU build is not.
BENCH = (
    "from vllm.entrypoints.cli.benchmark.serve import BenchmarkServingSubcommand as bench;"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser;"
    "parser = Parser(); bench.add_cli_args(parser); bench.cmd(parser.parse_args())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server under load. `reset` empties its prefix cache, `tokenizer` is a folder."""

    host: str
    port: int
    model: str
    tokenizer: Path
    reset: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`prompts` in order, `concurrency` at a time, `tokens` generated for each."""

    prompts: tuple[str, ...]
    concurrency: int
    tokens: int

    @property
    def body(self) -> dict[str, Any]:
        """What our client adds to a request, and so the others are told to add as well."""
        return {"min_tokens": self.tokens, "return_token_ids": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one client said of one load: medians of TTFT and TPOT, and throughput."""

    ttft_s: float
    tpot_s: float
    tokens_per_s: float

    @override
    def __str__(self) -> str:
        return (
            f"TTFT {self.ttft_s * 1e3:.1f} ms, TPOT {self.tpot_s * 1e3:.2f} ms,"
            f" {self.tokens_per_s:.2f} tokens/s"
        )


# Runs one load in a folder of its own.
Contender = Callable[[Site, Load, Path], Seen]


def ours(site: Site, load: Load, folder: Path) -> Seen:
    """The product's client and its own statistics; it writes nothing into the folder."""
    loaded = run_load(planned(site, load))
    records = [record for record in loaded.records if record.outcome is Outcome.OK]
    tokens = sum(record.output_tokens or 0 for record in records)
    refuse_incomplete("the product's client", load, len(records), tokens)
    ttft = quantiles([record.ttft_s for record in records])
    tpot = quantiles([record.tpot_s for record in records])
    if ttft is None or tpot is None:
        raise Unavailable("no token time was seen", "look at the server's log")
    found = point(*records, concurrency=load.concurrency)
    return Seen(ttft_s=ttft.p50, tpot_s=tpot.p50, tokens_per_s=found.throughput_tokens_per_s.value)


def planned(site: Site, load: Load) -> LoadPlan:
    """The load as our client takes it."""
    return load_plan(
        requests_of(load),
        host=site.host,
        port=site.port,
        model=site.model,
        concurrency=load.concurrency,
        rule=ReplayRule(cap_tokens=load.tokens, default_tokens=load.tokens, fixed=True),
    )


def requests_of(load: Load) -> list[Request]:
    """Plain completions at temperature 0."""
    return [
        Request(
            id=f"r{index}",
            index=index,
            line=index + 1,
            kind=RequestKind.COMPLETION,
            prompt=prompt,
            temperature=0.0,
        )
        for index, prompt in enumerate(load.prompts)
    ]


def vllm_bench(python: str) -> Contender:
    """`vllm bench serve` of the engine environment of this interpreter."""

    def run(site: Site, load: Load, folder: Path) -> Seen:
        dataset = folder / "sharegpt.json"
        turns = [{"conversations": [{"value": p}, {"value": ""}]} for p in load.prompts]
        dataset.write_text(json.dumps(turns), encoding="utf-8")
        _finish([python, "-c", BENCH, *_bench_arguments(site, load, dataset)], folder)
        return read_vllm_bench((folder / "result.json").read_text(encoding="utf-8"), load)

    return run


def _bench_arguments(site: Site, load: Load, dataset: Path) -> list[str]:
    return [
        "--backend=vllm",
        f"--host={site.host}",
        f"--port={site.port}",
        "--endpoint=/v1/completions",
        f"--model={site.tokenizer}",
        f"--served-model-name={site.model}",
        "--dataset-name=sharegpt",
        f"--dataset-path={dataset}",
        f"--sharegpt-output-len={load.tokens}",
        f"--num-prompts={len(load.prompts)}",
        "--disable-shuffle",
        "--ignore-eos",
        "--temperature=0",
        f"--extra-body={json.dumps(load.body)}",
        f"--max-concurrency={load.concurrency}",
        # Its test request is the first prompt, which would then be in the prefix cache.
        "--ready-check-timeout-sec=0",
        "--disable-tqdm",
        "--save-result",
        "--save-detailed",
        f"--result-dir={dataset.parent}",
        "--result-filename=result.json",
    ]


def read_vllm_bench(text: str, load: Load) -> Seen:
    """The figures of its result file."""
    said = json.loads(text)
    refuse_incomplete("vllm bench serve", load, said["completed"], said["total_output_tokens"])
    return Seen(
        ttft_s=said["median_ttft_ms"] / 1e3,
        tpot_s=said["median_tpot_ms"] / 1e3,
        tokens_per_s=said["output_throughput"],
    )


def aiperf(program: Path = AIPERF) -> Contender:
    """AIPerf of the environment that `make public-clients` installs."""

    def run(site: Site, load: Load, folder: Path) -> Seen:
        if not program.exists():
            raise Unavailable("AIPerf is not installed", "make public-clients installs it")
        dataset = folder / "prompts.jsonl"
        rows = [json.dumps({"text": prompt}) + "\n" for prompt in load.prompts]
        dataset.write_text("".join(rows), encoding="utf-8")
        results = folder / "aiperf"
        _finish([str(program), *_aiperf_arguments(site, load, dataset, results)], folder)
        text = (results / "profile_export_aiperf.json").read_text(encoding="utf-8")
        return read_aiperf(text, load)

    return run


def _aiperf_arguments(site: Site, load: Load, dataset: Path, results: Path) -> list[str]:
    sent = {**load.body, "max_tokens": load.tokens, "ignore_eos": True, "temperature": 0}
    return [
        "profile",
        f"--model={site.model}",
        f"--tokenizer={site.tokenizer}",
        f"--url=http://{site.host}:{site.port}",
        "--endpoint-type=completions",
        "--streaming",
        "--use-server-token-count",
        "--custom-dataset-type=single_turn",
        f"--input-file={dataset}",
        "--dataset-sampling-strategy=sequential",
        f"--extra-inputs={json.dumps(sent)}",
        f"--concurrency={load.concurrency}",
        f"--request-count={len(load.prompts)}",
        f"--artifact-dir={results}",
        # Its usual number of processes takes the cores away from an engine on a small machine.
        "--workers-max=1",
        "--record-processors=1",
        "--ui-type=none",
        "--no-gpu-telemetry",
        "--no-server-metrics",
    ]


def read_aiperf(text: str, load: Load) -> Seen:
    """The figures of its summary; what it calls inter-token latency is TPOT."""
    said = json.loads(text)
    requests, tokens = said["request_count"]["avg"], said["total_output_tokens"]["avg"]
    refuse_incomplete("AIPerf", load, int(requests), int(tokens))
    return Seen(
        ttft_s=said["time_to_first_token"]["p50"] / 1e3,
        tpot_s=said["inter_token_latency"]["p50"] / 1e3,
        tokens_per_s=said["output_token_throughput"]["avg"],
    )


def refuse_incomplete(client: str, load: Load, requests: int, tokens: int) -> None:
    """Raise `Unavailable` unless all was sent and generated: else nothing is comparable."""
    wanted = len(load.prompts)
    if (requests, tokens) != (wanted, wanted * load.tokens):
        raise Unavailable(
            f"{client} completed {requests} of {wanted} requests with {tokens} tokens",
            f"{wanted * load.tokens} were asked for",
        )


def environment(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """For a public client: no network but loopback, no home but the folder."""
    proxies = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    kept = {name: value for name, value in base.items() if name.lower() not in proxies}
    return {
        **kept,
        "HOME": str(folder),
        "HF_HOME": str(folder),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
    }


def _finish(argv: list[str], folder: Path) -> None:
    """Run a client to its end; its output stays in the folder. It may not outlive this process."""
    log = folder / "client.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            guardian.command(argv),
            cwd=folder,
            env=environment(folder, engine_environment()),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise Unavailable(f"{Path(argv[0]).name} took over {LIMIT_S:.0f} s", log.name) from None
    if code != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-400:]
        raise Unavailable(f"{Path(argv[0]).name} ended with {code}", f"it said: {said}")
