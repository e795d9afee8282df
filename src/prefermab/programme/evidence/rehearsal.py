"""A trial played with made-up people, to try its analysis before it begins."""

from typing import Any

import numpy as np
import polars as pl

from prefermab.model import Model
from prefermab.programme.evidence.power import TrialProgramme, play_layouts
from prefermab.programme.evidence.programmes import draw_pool
from prefermab.programme.evidence.protocol import Protocol


def rehearse(
    protocol: Protocol,
    model: Model,
    programme: TrialProgramme,
    *,
    domain: Any = None,
    seed: int = 0,
) -> pl.DataFrame:
    """A made-up log of a trial: its own arms, with people drawn from a domain.

    Args:
        protocol: The trial.
        model: The model that is tried.
        programme: Share of people acted on, and what the other arm gets.
        domain: Where people come from; the model's own domain if None.
        seed: Random seed.

    Returns:
        A log with `id`, `time`, `state`, `action` and the model's `index`, and the states after the
        last round.

    Example::

        tried = pm.evidence.TrialProgramme(share=0.1)
        log = pm.evidence.rehearse(pm.evidence.read_protocol("trial"), pm.load("mine"), tried)
    """
    pool, rng = draw_pool(model, domain, seed=seed), np.random.default_rng([seed, 2])
    people, design, layout = protocol.facts["people"], protocol.design, protocol.layout
    who = rng.integers(0, pool.size, (1, people))
    played = play_layouts(pool, design, programme, who, [layout], rng)
    if "id" in protocol.assignment.columns:
        ids = protocol.assignment["id"]
    else:
        ids = pl.Series("id", np.arange(people))
    names = np.array(model.state_names, object)
    actions = np.array(model.action_names, object)
    rows = []
    for now in range(design.rounds + 1):
        last = now == design.rounds
        state = pl.Series("state", names[played.state[0, :, now]], dtype=pl.String)
        acted = played.acted[0, :, min(now, design.rounds - 1)].astype(int)
        action = pl.Series("action", actions[acted], dtype=pl.String)
        rows.append(
            pl.DataFrame(
                {
                    "id": ids,
                    "time": np.full(people, now + 1),
                    "state": state,
                    "action": pl.repeat(None, people, dtype=pl.String, eager=True)
                    if last
                    else action,
                    "index": pl.repeat(None, people, dtype=pl.Float64, eager=True)
                    if last
                    else pl.Series(played.index[0, :, now]),
                }
            )
        )
    return pl.concat(rows)
