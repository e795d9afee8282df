"""The report on a log: what was found, what is missing, what it says, and what a model gains."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from prefermab.evaluation import ROUNDS
from prefermab.evidence import pictures
from prefermab.evidence.heldout import HeldOut, verdict
from prefermab.evidence.words import headline
from prefermab.logs.fitting import Fit
from prefermab.logs.reading import Found, Log
from prefermab.logs.shapes import FEW, cautions
from prefermab.model import Model
from prefermab.pages import Block, Bullets, Cell, Grid, Heading, Text
from prefermab.wording import people, plain

SHOWN = 40
"""Rows of a table of transitions; the rest is in the data beside the report."""


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """All that was learned from a log."""

    log: Log
    fit: Fit
    model: Model
    transitions: pl.DataFrame
    effects: pl.DataFrame
    groups: pl.DataFrame
    held_out: HeldOut | None
    comparison: pl.DataFrame


def as_data(learned: Learned) -> dict[str, Any]:
    """Everything in the report, as JSON can hold it."""
    held, model = learned.held_out, learned.model
    return {
        "summary": [block.text for block in _summary(learned)],
        "warnings": [
            {"code": caution.code, "sentence": caution.sentence}
            for caution in cautions(learned.log)
        ],
        "found": dataclasses.asdict(learned.log.found),
        "states": list(model.state_names),
        "actions": list(model.action_names),
        "features": list(model.feature_names),
        "costs": learned.log.meaning.costs.tolist(),
        "rewards": learned.log.meaning.rewards.tolist(),
        "n_arms": model.n_arms,
        "budget": model.budget,
        "spent": learned.log.spent,
        "earned": learned.log.earned,
        "transitions": learned.transitions.to_dicts(),
        "effects": learned.effects.to_dicts(),
        "groups": learned.groups.to_dicts(),
        "held_out": None
        if held is None
        else {
            "rounds": held.rounds,
            "losses": held.losses.to_dicts(),
            "calibration": held.calibration.to_dicts(),
            "verdict": verdict(held),
        },
        "comparison": learned.comparison.to_dicts(),
    }


def blocks_of(learned: Learned) -> list[Block]:
    """The report, block by block."""
    return [
        *_summary(learned),
        *_data(learned.log),
        *_estimates(learned),
        *_groups(learned.groups),
        *_held_out(learned.held_out),
        *_comparison(learned),
        *_assumptions(),
    ]


def card(learned: Learned) -> str:
    """The card of a model that was learned from a log."""
    model = learned.model
    return (
        f"# Learned from {learned.log.where}, recipe `{model.recipe}`\n\n"
        f"States {', '.join(model.state_names)}; actions {', '.join(model.action_names)}; "
        f"features {', '.join(model.feature_names) or 'none'}.\n\n"
        + "\n\n".join(block.text for block in _summary(learned))
        + "\n"
    )


def _summary(learned: Learned) -> list[Text]:
    log, model = learned.log, learned.model
    rows = {row["policy"]: row for row in learned.comparison.iter_rows(named=True)}
    own = rows["prefermab"]
    others = "; ".join(
        f"beside {told} {_signed(rows[name]['gain'])} ({_signed(rows[name]['gain_low'])} to "
        f"{_signed(rows[name]['gain_high'])})"
        for name, told in (
            ("none", "no action"),
            ("random", "random actions"),
            ("as logged", "the logged policy"),
        )
    )
    acted = int((log.transitions.action > 0).sum())
    return [
        Text(headline(log, model, learned.comparison)),
        Text(
            f"The log has {people(log.found.people)} and {len(log.transitions):,} transitions, "
            f"{acted:,} of them under an action. For {people(model.n_arms)} and a budget of "
            f"{plain(model.budget)} a round, the model earns {own['mean']:.3f} per person in "
            f"{ROUNDS} simulated rounds ({own['low']:.3f} to {own['high']:.3f} in 90 % of the "
            f"worlds that the log allows). That is, {others}."
        ),
        *(Text(f"**Warning**: {caution.sentence}") for caution in cautions(log)),
    ]


def _data(log: Log) -> list[Block]:
    found, meaning, seen = log.found, log.meaning, log.transitions
    unit = "days apart" if found.dates else "apart in the time column"
    counts = np.zeros(log.shape[:2], int)
    np.add.at(counts, (seen.state, seen.action), 1)
    rows = [
        [Cell(f"{state} (reward {reward:g})"), *(Cell(f"{n:,}") for n in each)]
        for state, reward, each in zip(meaning.states, meaning.rewards, counts, strict=True)
    ]
    head = [f"{a} (cost {c:g})" for a, c in zip(meaning.actions, meaning.costs, strict=True)]
    unknown = np.isnan(log.features)
    missing = [
        f"`{name}`: unknown of {people(int(unknown[:, at].sum()))}"
        for at, name in enumerate(log.feature_names)
        if unknown[:, at].any()
    ]
    return [
        Heading("Data found"),
        Text(
            f"{found.rows:,} rows from {found.first} to {found.last}: {people(found.people)}, "
            f"{found.rounds:,} rounds, {found.apart} {unit}, {found.present:,.1f} people in "
            f"a round on average; {len(seen):,} transitions between rounds that follow each other. "
            f"Features: {', '.join(f'`{name}`' for name in log.feature_names) or 'none'}."
        ),
        Text("Transitions from each state under each action:"),
        Grid(["state", *head], rows),
        Heading("Gaps"),
        Bullets(
            [
                f"{found.gaps:,} gaps between two rows of a person, {found.missing_rounds:,} "
                "rounds in all: no transition is made up across a gap",
                f"{people(found.joined_later)} joined after the first round, and of "
                f"{people(found.left_earlier)} there is no row in the last",
                f"{people(found.single)} with one row only: features and no transition are known",
                f"{found.unknown_states:,} rows have no state and {found.unknown_actions:,} no "
                "action: transitions that need them are left out",
                *_left_out(found),
                *missing,
            ]
        ),
    ]


def _left_out(found: Found) -> list[str]:
    """What the columns of who was available and who was reached say."""
    told = []
    if found.unavailable:
        told.append(
            f"{found.unavailable:,} transitions start where nobody could be acted on: they are "
            "left out"
        )
    if found.not_reached:
        told.append(
            f"{found.not_reached:,} of {found.tried:,} actions did not reach the person: they "
            "count as tried, since that is what a plan decides and what costs"
        )
    return told


def _estimates(learned: Learned) -> list[Block]:
    kappa = float(np.exp(np.log(learned.fit.kappas).mean()))
    few = [row for row in learned.effects.iter_rows(named=True) if 0 < row["n"] < FEW]
    shown = learned.transitions.filter(pl.col("chance") >= 0.001)
    rows = [
        [Cell(f"{r['state']}, {r['action']} → {r['next']}"), Cell(f"{r['n']:,}"),
         Cell(f"{r['chance']:.3f}"), Cell(f"{r['low']:.3f} to {r['high']:.3f}")]
        for r in shown.head(SHOWN).iter_rows(named=True)
    ]  # fmt: skip
    effects = [
        [Cell(f"{r['state']}, {r['action']}"), Cell(f"{r['n']:,}"), Cell(_signed(r["effect"])),
         Cell(f"{_signed(r['low'])} to {_signed(r['high'])}")]
        for r in learned.effects.head(SHOWN).iter_rows(named=True)
    ]  # fmt: skip
    warnings = [
        ("**Nothing seen**: ", _unseen(learned.log), "What follows there is assumed, not learned."),
        (
            "**Few transitions**: ",
            [f"{row['action']} in {row['state']} ({row['n']})" for row in few],
            "There the effect is mostly what other states and people suggest, shrunk towards none.",
        ),
    ]
    return [
        Heading("What the log says"),
        Text(
            "Averages over the people of the log, with 90 % intervals over the worlds that the log "
            "allows. People with the same features differ as if the chances of each were known "
            f"from {kappa:,.0f} transitions: the more, the more alike they are."
        ),
        Text("What an action changes in the reward of the next state:"),
        Grid(["state and action", "seen", "effect", "90 % interval"], effects),
        *(Text(f"{head}{'; '.join(cells)}. {tail}") for head, cells, tail in warnings if cells),
        Text(
            "Chances of the next state, those of at least 0.001"
            + (f", the first {SHOWN}:" if len(shown) > SHOWN else ":")
        ),
        Grid(["from, under → to", "seen", "chance", "90 % interval"], rows),
    ]


def _groups(groups: pl.DataFrame) -> list[Block]:
    """Whom an action helps; nothing to say where there are no features."""
    if groups.is_empty():
        return []
    rows = [
        [Cell(f"{r['feature']} {r['group']}, {r['action']}"), Cell(f"{r['people']:,}"),
         Cell(f"{r['n']:,}"), Cell(_signed(r["gain"])),
         Cell(f"{_signed(r['low'])} to {_signed(r['high'])}")]
        for r in groups.head(SHOWN).iter_rows(named=True)
    ]  # fmt: skip
    return [
        Heading("Whom it helps"),
        Text(
            "What an action changes in the reward of the next round for people with the same value "
            "of a feature (numbers in thirds), averaged over these people and the states that were "
            "seen of them. A group may differ for what else its people have in common"
            + (f"; the first {SHOWN} rows, all are in the data:" if len(groups) > SHOWN else ":")
        ),
        Grid(["group and action", "people", "seen", "gain per round", "90 % interval"], rows),
    ]


def _unseen(log: Log) -> list[str]:
    """States and actions of which no transition was seen."""
    seen = np.zeros(log.shape[:2], bool)
    seen[log.transitions.state, log.transitions.action] = True
    meaning = log.meaning
    return [f"{meaning.actions[a]} in {meaning.states[s]}" for s, a in np.argwhere(~seen)]


def _held_out(held: HeldOut | None) -> list[Block]:
    if held is None:
        return [
            Heading("Weeks held out"),
            Text("The log has transitions in fewer than three rounds: none can be held out."),
        ]
    losses = [
        [Cell(f"{r['where']}: {r['predictor']}"), Cell(f"{r['n']:,}"), Cell(_known(r["loss"])),
         Cell("" if r["better"] is None else f"{r['better']:+.4f} ± {r['stderr']:.4f}")]
        for r in held.losses.iter_rows(named=True)
    ]  # fmt: skip
    bins = [
        [Cell(f"{r['predicted']:.3f}"), Cell(f"{r['observed']:.3f}"),
         Cell(f"{r['low']:.3f} to {r['high']:.3f}"), Cell(f"{r['n']:,}")]
        for r in held.calibration.iter_rows(named=True)
    ]  # fmt: skip
    return [
        Heading("Weeks held out"),
        Text(
            f"The last {held.rounds} rounds were foretold from those before. The loss is the mean "
            "of minus the log-probability of what came; `better` is how much lower it is than in "
            "the row above, with its standard error (people are independent, weeks are not)."
        ),
        Grid(["foretold from", "n", "loss", "better"], losses),
        Text(f"**Verdict**: {verdict(held)}"),
        Text(
            "Calibration: every next state of every transition is a prediction; tenths of them by "
            "size, what was foretold and how often it came (95 % interval)."
        ),
        Grid(["predicted", "observed", "interval", "n"], bins),
        *pictures.calibration(held.calibration),
    ]


def _comparison(learned: Learned) -> list[Block]:
    frame, model = learned.comparison, learned.model
    rows = [
        [Cell(r["policy"]), Cell(f"{r['mean']:.3f}"), Cell(f"{r['low']:.3f} to {r['high']:.3f}"),
         *([Cell(""), Cell("")] if r["policy"] == "prefermab" else
           [Cell(f"{_signed(r['gain'])} ({_signed(r['gain_low'])} to {_signed(r['gain_high'])})"),
            Cell(f"{r['ahead']:.0%}")]),
         Cell(f"{r['spent']:.2f}")]
        for r in frame.iter_rows(named=True)
    ]  # fmt: skip
    return [
        Heading("Simulated comparison"),
        Text(
            f"Reward per person over {ROUNDS} rounds, {people(model.n_arms)}, budget "
            f"{plain(model.budget)}, in {frame['worlds'][0]} worlds that the log allows, "
            f"{frame['trials'][0]} trials in each: all policies meet the same people and luck. "
            "Intervals hold 90 % of the worlds. `as logged` chooses as the log did in each state, "
            "with the same budget."
        ),
        Grid(
            [
                "policy",
                "reward per person",
                "90 % of worlds",
                "model earns more",
                "in worlds",
                "spent",
            ],
            rows,
        ),
        *pictures.comparison(frame, ROUNDS),
    ]


def _assumptions() -> list[Block]:
    return [
        Heading("What this takes for granted"),
        Bullets(
            [
                "Whom the log's actions went to was decided by what is in the log, or by chance. "
                "If it was decided by something else that also moves states, effects are off.",
                "Where people go next depends on the present state, the action and the features "
                "only, and stays so over time.",
                "People do not influence each other.",
                "The comparison is a simulation by what was learned here: it allows for what the "
                "log leaves open, not for what the three points above get wrong.",
            ]
        ),
    ]


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}"
