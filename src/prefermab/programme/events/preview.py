"""What a log made of events looks like, in words: ten people, and what became of every event."""

import polars as pl

from prefermab.programme.events.convert import Counts, EventLog

PEOPLE, ROUNDS = 10, 8
"""How many people a preview shows, and how many rounds of each."""


def preview_lines(made: EventLog, nothing: str) -> list[str]:
    """Ten people, each with the states and actions of the first rounds.

    Args:
        made: The log.
        nothing: The action that means nothing was done; it is not repeated in the preview.

    Returns:
        A line for each person; ? is an unknown state.

    >>> import polars as pl
    >>> import prefermab as pm
    >>> from prefermab.programme.events.preview import preview_lines
    >>> calls = pl.DataFrame({"who": [7, 7], "week": [1, 3], "heard": ["well", "badly"]})
    >>> made = pm.tables.from_events(calls, {"who": "who", "when": "week", "round": 1,
    ...     "action": {"nothing": "none", "labels": {"call": "week = 1"}},
    ...     "state": {"value": "heard"}})
    >>> preview_lines(made, "none")
    ['7  from 1: well + call → ? → badly']
    """
    log = made.log
    ids = log["id"].unique(maintain_order=True)
    chosen = ids.gather_every(max(len(ids) // PEOPLE, 1)).head(PEOPLE)
    lines = []
    for (person,), rows in log.filter(pl.col("id").is_in(chosen.to_list())).group_by(
        ["id"], maintain_order=True
    ):
        first = rows.head(ROUNDS)
        steps = [
            (state or "?") + ("" if action == nothing else f" + {action or '?'}")
            for state, action in first.select("state", "action").iter_rows()
        ]
        more = f" → … ({rows.height - ROUNDS} more)" if rows.height > ROUNDS else ""
        lines.append(f"{person}  from {first['time'][0]}: {' → '.join(steps)}{more}")
    return lines


def count_lines(counts: Counts) -> list[str]:
    """What became of every event, in counts that add up."""
    lines = [f"{counts.read:,} events read"]
    lines += [f"{number:,} dropped: {what}" for what, number in counts.dropped.items() if number]
    without = counts.rows - counts.with_events
    lines += [
        f"{counts.used:,} used",
        f"{counts.people:,} people, {counts.rounds:,} rounds: {counts.rows:,} rows, "
        f"{counts.with_events:,} with an event ({counts.several:,} with several), {without:,} "
        "without",
        f"{counts.unknown_states:,} rows whose state is unknown"
        + (f", {counts.unlabelled:,} of them by a value without a label" * (counts.unlabelled > 0)),
        "actions: " + ", ".join(f"{label} {number:,}" for label, number in counts.actions.items()),
    ]
    return lines
