"""Reading a traffic file into a load to simulate."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.roofline.memory import engine_block_size
from advisor.serving import ServingConfig
from advisor.simulator.engine import SchedulerWords
from advisor.simulator.from_traffic import LoadTally
from advisor.traffic.drafting.lookup import LookupTally
from advisor.traffic.figures import LookupAcceptance
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.model_folder import ModelFolder
from advisor.traffic.reading.reader import open_trace
from advisor.traffic.tokens import token_columns
from advisor.traffic.trace import TraceReport
from api.cli.reading import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The requests of a file, and what n-gram drafts of the asked length would get accepted.

    `drafted` is 0 where no drafts are asked for, `replayed` None where no text says what is
    accepted.
    """

    tally: LoadTally
    report: TraceReport
    drafted: int
    replayed: LookupAcceptance | None

    def with_acceptance(self, words: SchedulerWords, stated: str | None) -> SchedulerWords:
        """The scheduler's words with what of drafts is accepted: as stated, else as replayed.

        Drafts whose acceptance nobody knows raise `InvalidInput`.
        """
        if not self.drafted:
            if stated is not None:
                raise InvalidInput("--acceptance", "is given, but no drafts are configured")
            return words
        if stated is not None:
            return replace(words, survival=_shares(stated, self.drafted))
        if self.replayed is None:
            raise InvalidInput(
                "--acceptance", "is needed: without text nobody knows which drafts are accepted"
            )
        return replace(words, survival=self.replayed.per_position, coverage=self.replayed.coverage)


def _shares(stated: str, drafted: int) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in stated.split(","))
    except ValueError:
        raise InvalidInput("--acceptance", f"{stated} is not a list of shares") from None
    if len(shares) != drafted:
        raise InvalidInput("--acceptance", f"has {len(shares)} shares for {drafted} positions")
    return shares


def gather(
    file: Path,
    options: ReadOptions,
    bars: Steps,
    *,
    folder: ModelFolder,
    config: ServingConfig,
    kind: str,
) -> Gathered:
    """Reads a file once, with the model's tokenizer where it has one."""
    size = engine_block_size(folder.shape, kind, config.levers.block_size)
    drafts = config.levers.speculative_config
    drafted = 0 if drafts is None else drafts.num_speculative_tokens
    with file.open("rb") as stream, tempfile.TemporaryFile() as spool:
        opened = open_trace(
            stream,
            filename=file.name,
            spool=spool,
            options=options,
            progress=bars.of("reading", file.stat().st_size),
        )
        report = opened.report
        tally = LoadTally(size, file_block_tokens=report.block_tokens)
        lookups = LookupTally((max(1, drafted),))
        if opened.facts is not None and report.block_tokens is None:
            tally.add_facts(opened.facts)
            return Gathered(tally=tally, report=report, drafted=drafted, replayed=None)
        tokenizer = folder.tokenizer()
        told, count = bars.of("counting", report.accepted), 0
        for requests in opened.batches():
            tokens = token_columns(requests, tokenizer)
            tally.add(requests, tokens)
            if drafted:
                for place, request in enumerate(requests):
                    prompt, output = tokens.prompts.array(place), tokens.outputs.array(place)
                    lookups.add(request, prompt, output)
            count += len(requests)
            told(count)
    known = range(count) if drafted else ()
    replayed = lookups.finish(known).of(known, drafted) if known else None
    return Gathered(tally=tally, report=report, drafted=drafted, replayed=replayed)
