"""The command that runs the campaigns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import benchmarks.attack
from benchmarks.attack import cluster, documents, kills, markdown, nights
from benchmarks.attack.tally import Tally
from benchmarks.record import RESULTS, Record, benchmark_parser


@dataclass(frozen=True)
class Campaign:
    """run: takes the dice, the count, the tally, and a folder of documents or None. count, smoke_count: in full, and
    in seconds."""

    run: Callable[[random.Random, int, Tally, Path | None], None]
    count: int
    smoke_count: int


CAMPAIGNS = {
    "mutated": Campaign(documents.mutated, 10_000, 20),
    "cut": Campaign(documents.cut, 20_000, 20),
    "markdown": Campaign(markdown.attack, 15_000, 20),
    "kills": Campaign(kills.attack, 90, 2),
    "nights": Campaign(nights.attack, 200, 2),
    "cluster": Campaign(cluster.attack, 50, 2),
}


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(benchmarks.attack.__doc__)
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=f"of {', '.join(CAMPAIGNS)}; all if none")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--count", type=int, help="of each campaign, in place of its own")
    parser.add_argument("--documents", type=Path, metavar="FOLDER", help="documents to mutate and cut as well")
    given = parser.parse_args(arguments)
    if unknown := set(given.campaigns) - CAMPAIGNS.keys():
        parser.error(f"no such campaign: {', '.join(sorted(unknown))}")
    name = "-".join(["attack", *given.campaigns])
    record = Record(name, given)
    record.note("seed", given.seed)
    for campaign_name in given.campaigns or CAMPAIGNS:
        campaign = CAMPAIGNS[campaign_name]
        count = given.count or (campaign.smoke_count if given.smoke else campaign.count)
        tally = Tally(None if given.smoke else RESULTS / name)
        started_s = time.monotonic()
        campaign.run(random.Random(f"{given.seed} {campaign_name}"), count, tally, given.documents)
        record.note(f"{campaign_name} minutes", round((time.monotonic() - started_s) / 60, 1))
        for kind, counted in (("outcome", tally.outcomes), ("FAULT", tally.faults)):
            for what, number in sorted(counted.items()):
                record.add({"campaign": campaign_name, "of": count, "what": kind, "which": what, "times": number})
        record.figure(f"{campaign_name}_faults", sum(tally.faults.values()))


if __name__ == "__main__":
    main()
