"""`rooftune workload purge`: delete a sample's texts and everything made of them."""

import typer

from api.cli.answer import Json, console, print_json
from api.cli.connection import connect
from api.codec import json_value


def purge(ctx: typer.Context, workload: str, *, as_json: Json = False) -> None:
    """Delete a sample's texts and all that was made of them; studies keep their figures."""
    with connect(ctx) as client:
        client.delete_workload(workload, purge=True)
        found = client.workload(workload)
    if as_json:
        print_json(json_value(found))
        return
    out = console()
    out.print(f"purged {workload}; studies keep their figures")
    for sweep in found.swept:
        done = "removed its files" if sweep.at is not None else "removes its files at its next look"
        out.print(f"{sweep.host}/{sweep.device}: {done}", markup=False)
