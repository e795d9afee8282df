"""The report on a log: what was found, what is missing, what it says, and what a model gains."""

import numpy as np
import polars as pl

from prefermab.pages import Block, Bullets, Cell, Grid, Heading, Text
from prefermab.programme.logs import pictures
from prefermab.programme.logs.heldout import HeldOut, verdict
from prefermab.programme.logs.learned import Learned, first_page
from prefermab.programme.logs.reading import Found, Log
from prefermab.programme.logs.shapes import FEW
from prefermab.programme.logs.verdict import Findings
from prefermab.programme.tables import people

SHOWN = 40
"""Rows of a table of transitions; the rest is in the data beside the report."""


def blocks_of(learned: Learned) -> list[Block]:
    """The report, block by block."""
    return [
        *_summary(learned),
        *_comparison(learned),
        *_groups(learned.groups, learned.findings.verdict == "shown"),
        *_allocation(learned.findings),
        *_data(learned.log),
        *_estimates(learned),
        *_held_out(learned.held_out),
        *_assumptions(),
    ]


def _summary(learned: Learned) -> list[Block]:
    first, *others = first_page(learned)
    return [Text(first), *pictures.gain(learned.findings), *(Text(each) for each in others)]


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


def _groups(groups: pl.DataFrame, shown: bool) -> list[Block]:
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
        *([] if shown else [Text("No gain is shown: take this for what the fit supposes.")]),
        Grid(["group and action", "people", "seen", "gain per round", "90 % interval"], rows),
    ]


def _unseen(log: Log) -> list[str]:
    """States and actions of which no transition was seen."""
    seen = np.zeros(log.shape[:2], bool)
    seen[log.transitions.state, log.transitions.action] = True
    meaning = log.meaning
    return [f"{meaning.actions[a]} in {meaning.states[s]}" for s, a in np.argwhere(~seen)]


def _held_out(several: list[HeldOut]) -> list[Block]:
    if not several:
        return [
            Heading("Predictions checked"),
            Text(
                "The log is too short to hold back enough of it, neither people nor rounds: "
                "nothing says how well it predicts."
            ),
        ]
    return [
        Heading("Predictions checked"),
        Text(
            "Some of the log was held back and predicted from the rest. The error is the mean of "
            "minus the log-probability of what came; `better` is how much lower it is than in the "
            "row above, with its standard error (people are independent, rounds are not)."
        ),
        *(block for held in several for block in _one_held_out(held)),
    ]


def _one_held_out(held: HeldOut) -> list[Block]:
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
        Heading(held.held, 3),
        Grid(["predicted from", "n", "error", "better"], losses),
        Text(f"**Verdict**: {verdict(held)}"),
        Text(
            "Every next state of every transition is a prediction; tenths of them by size, what "
            "was predicted and how often it came (95 % interval)."
        ),
        Grid(["predicted", "observed", "interval", "n"], bins),
        *pictures.calibration(held.calibration, held.name),
    ]


BESIDE = {
    "before": "as chosen so far",
    "random": "at random",
    "none": "nobody acted on",
}


def _comparison(learned: Learned) -> list[Block]:
    judged = learned.findings.judged
    if judged is None:
        return []
    rows = [[Cell("by the model"), Cell(f"{judged.earned['model']:.3f}"), Cell(""), Cell("")]]
    rows += [
        [Cell(told), Cell(f"{judged.earned[name]:.3f}"), Cell(_signed(judged.gains[name].estimate)),
         Cell(f"{_signed(judged.gains[name].low)} to {_signed(judged.gains[name].high)}")]
        for name, told in BESIDE.items()
    ]  # fmt: skip
    per = judged.budget
    return [
        Heading("The model beside other ways of choosing"),
        Text(
            f"Reward per person over {judged.rounds} rounds for a budget of {per:.3g} a person and "
            f"round. People of the log, {judged.people:,} in each of several random orders, were "
            "judged by what had been learned from people before them, none by what they taught "
            "themselves; what was foretold for them was put right by what really came. In made-up "
            "logs such intervals hold the truth in 86 to 98 of 100 (docs/results/gain.md). `as "
            "chosen so far` follows the states and the features that actions went by in the log."
        ),
        Grid(["chosen", "reward per person", "the model earns more", "90 % interval"], rows),
    ]


def _allocation(found: Findings) -> list[Block]:
    """Who was acted on."""
    frame = found.allocation.balance
    rows = [
        [Cell(r["what"]), Cell(f"{r['acted']:.3f}"), Cell(f"{r['others']:.3f}"),
         Cell(f"{r['difference']:+.2f}")]
        for r in frame.head(SHOWN).iter_rows(named=True)
    ]  # fmt: skip
    traces = [c.sentence for c in found.cautions if c.code == "hidden_cause"]
    clear = (
        "Beyond states and features, those who were acted on more often did not differ from others "
        "before, nor when nobody acted on them."
    )
    return [
        Heading("Who was acted on"),
        Text(
            "Rounds in which somebody was acted on beside all others: mean of a number, share of a "
            "category or state, and the difference in standard deviations. `reward before` is what "
            "a person had earned a round until then. Differences in what stands here are allowed "
            "for; a cause that is not here is not."
        ),
        Grid(["", "acted on", "others", "difference"], rows),
        Text(traces[0][:1].upper() + traces[0][1:] if traces else clear),
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
                "The budget is shared by many people, so that no single one changes what is left "
                "for others.",
            ]
        ),
    ]


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}"
