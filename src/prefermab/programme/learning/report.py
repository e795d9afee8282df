"""The report on a log, as blocks: the first page, then all figures with their uncertainty."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.common.pages import Block, Bullets, Grid, Heading, Text
from prefermab.programme.evidence.results import NOTABLE_DIFFERENCE, OffPolicy
from prefermab.programme.learning.effects import Effects
from prefermab.programme.learning.holdout import HeldOut, features_verdict
from prefermab.programme.learning.report_parts import (
    MARKOV,
    MOST_ROWS_SHOWN,
    calibration_picture,
    estimate_tables,
    frame_grid,
    gain_picture,
    text_cells,
)
from prefermab.programme.learning.verdict import Assessment
from prefermab.programme.logs.allocation import Allocation
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.log_warnings import FEWEST_SEEN
from prefermab.programme.logs.reading import Log, LogCounts
from prefermab.programme.tables.table import format_people

BALANCE = {"": "{what}", "acted on": "{acted:.3f}", "others": "{others:.3f}",
           "difference": "{difference:+.2f}"}  # fmt: skip
"""Columns of the table that compares people who were acted on with the others."""

COMPARED_WITH = {"before": "as chosen so far", "random": "at random", "none": "nobody acted on"}
"""The rules that a model is compared with, in words."""


def report_blocks(
    paragraphs: Sequence[str],
    log: Log,
    fit: Fit,
    effects: Effects,
    held_out: Sequence[HeldOut],
    assessment: Assessment,
    off_policy: OffPolicy | None = None,
) -> list[Block]:
    """The blocks of the report; `paragraphs` are its first page."""
    allocation = assessment.allocation
    assert allocation is not None
    return [
        Text(paragraphs[0]),
        *_differences(assessment, allocation),
        *gain_picture(assessment),
        *(Text(each) for each in paragraphs[1:]),
        *_comparison(assessment),
        *_off_policy_blocks(off_policy),
        *group_table(effects.groups, shown=assessment.verdict == "shown"),
        *_allocation(assessment, allocation),
        *_data(log),
        *_estimates(log, fit, effects),
        *_held_out(held_out),
        *_assumptions(),
    ]


def _comparison(assessment: Assessment) -> list[Block]:
    comparison = assessment.comparison
    if comparison is None:
        return []
    earned = comparison.earned
    rows = [text_cells("by the model", f"{earned['model']:.3f}", "", "")]
    for name, words in COMPARED_WITH.items():
        gain = comparison.gains[name]
        interval = f"{gain.low:+.3f} to {gain.high:+.3f}"
        rows.append(text_cells(words, f"{earned[name]:.3f}", f"{gain.estimate:+.3f}", interval))
    return [
        Heading("The model and other ways of choosing"),
        Text(
            f"Reward per person over {comparison.rounds} rounds for a budget of "
            f"{comparison.budget:.3g} a person and round. The gain was measured on "
            f"{comparison.people:,} people of the log in each of several random orders, always "
            "with a rule that was learned from other people. Predictions for them were corrected "
            "by their observed outcomes (a doubly robust estimate). In simulated logs without a "
            "hidden cause, 89 to 92 of 100 such intervals contain the true gain "
            "(docs/results/gain.md). `as chosen so far` depends on states and features in the same "
            "way as the actions of the log did."
        ),
        Grid(["chosen", "reward per person", "the model earns more", "90 % interval"], rows),
    ]


def _differences(assessment: Assessment, allocation: Allocation) -> list[Block]:
    """The differences between people who were acted on and the others, and how strong a hidden
    cause would have to be."""
    apart = allocation.balance.filter(pl.col("difference").abs() > NOTABLE_DIFFERENCE)
    if apart.is_empty():
        return []
    comparison = assessment.comparison
    odds = None if comparison is None else comparison.hidden_cause
    strong = "" if odds is None else (
        " A hidden cause beyond these would have to change the odds of being acted on by a factor "
        f"of {odds:.1f} to undo the gain."
    )  # fmt: skip
    return [
        Text(
            "**People who were acted on differ from the others** in the columns of this table "
            "(means or shares; the difference is in standard deviations). The estimates account "
            f"for the columns of the log, and for no other cause.{strong}"
        ),
        frame_grid(apart, BALANCE),
    ]


def _off_policy_blocks(off_policy: OffPolicy | None) -> list[Block]:
    """Off-policy estimates, if the log has probabilities."""
    if off_policy is None:
        return []
    return [
        Heading("Checked by the log's own lots"),
        Text(
            "The log says with which probability each action was taken. A rule was learned from "
            "half of the people, and judged by the random actions on the other half:"
        ),
        *off_policy.blocks(),
    ]


def group_table(groups: pl.DataFrame, *, shown: bool) -> list[Block]:
    """The table of effects by group; empty if there are no features."""
    if groups.is_empty():
        return []
    columns = {
        "group and action": "{feature} {group}, {action}", "people": "{people:,}", "seen": "{n:,}",
        "gain per round": "{gain:+.3f}", "90 % interval": "{low:+.3f} to {high:+.3f}",
    }  # fmt: skip
    rest = (
        f"; the first {MOST_ROWS_SHOWN} rows, all are in the data"
        if len(groups) > MOST_ROWS_SHOWN
        else ""
    )
    return [
        Heading("Whom it helps"),
        Text(
            "The effect of an action on the reward of the next round, for people with the same "
            "value of a feature (numbers in thirds), averaged over these people and their states. "
            "A group may differ because of other features that its people have in "
            f"common{rest}:"
        ),
        *(
            []
            if shown
            else [Text("No gain is shown: these effects are mostly assumptions of the fit.")]
        ),
        frame_grid(groups, columns),
    ]


def _allocation(assessment: Assessment, allocation: Allocation) -> list[Block]:
    """The table that compares rounds with an action with the others, and the test for traces."""
    traces = [w.sentence for w in assessment.warnings if w.code == "hidden_cause"]
    clear = (
        "People who were acted on more often showed no difference from others in the same state "
        "and with the same features, neither before nor when nobody acted on them."
    )
    return [
        Heading("Who was acted on"),
        Text(
            "Rounds with an action compared with all others: mean of a number, share of a "
            "category or state, and the difference in standard deviations. `reward before` is the "
            "mean reward of a person's earlier rounds. The estimates account for the columns of "
            "the log, and for no other cause."
        ),
        frame_grid(allocation.balance, BALANCE),
        Text(traces[0][:1].upper() + traces[0][1:] if traces else clear),
    ]


def _data(log: Log) -> list[Block]:
    found, labels, seen = log.found, log.labels, log.transitions
    unit = "days apart" if found.dates else "apart in the time column"
    counts = np.zeros(log.shape[:2], int)
    np.add.at(counts, (seen.state, seen.action), 1)
    rows = [
        text_cells(f"{state} (reward {reward:g})", *(f"{n:,}" for n in each))
        for state, reward, each in zip(labels.states, labels.rewards, counts, strict=True)
    ]
    head = [f"{a} (cost {c:g})" for a, c in zip(labels.actions, labels.costs, strict=True)]
    unknown = np.isnan(log.features)
    missing = [
        f"`{name}`: unknown for {format_people(int(unknown[:, at].sum()))}"
        for at, name in enumerate(log.feature_names)
        if unknown[:, at].any()
    ]
    return [
        Heading("Data found"),
        Text(
            f"{found.rows:,} rows from {found.first} to {found.last}: "
            f"{format_people(found.people)}, {found.rounds:,} rounds, {found.apart} {unit}, "
            f"{found.present:,.1f} people in a round on average; {len(seen):,} transitions between "
            "rounds that follow each other. "
            f"Features: {', '.join(f'`{name}`' for name in log.feature_names) or 'none'}."
        ),
        Text("Transitions from each state under each action:"),
        Grid(["state", *head], rows),
        Heading("Gaps"),
        Bullets(
            [
                f"{found.gaps:,} gaps between two rows of a person, {found.missing_rounds:,} "
                "rounds in all: there is no transition across a gap",
                f"{format_people(found.joined_later)} joined after the first round, and "
                f"{format_people(found.left_earlier)} have no row in the last",
                f"{format_people(found.single)} with one row only: it gives features and no "
                "transition",
                f"{found.unknown_states:,} rows have no state and {found.unknown_actions:,} no "
                "action: transitions that need them are left out",
                *_left_out(found),
                *missing,
            ]
        ),
    ]


def _left_out(found: LogCounts) -> list[str]:
    """Sentences about the columns `available` and `reached`."""
    texts = []
    if found.unavailable:
        texts.append(
            f"{found.unavailable:,} transitions start while the person was not available: they "
            "are left out"
        )
    if found.not_reached:
        texts.append(
            f"{found.not_reached:,} of {found.tried:,} actions did not reach the person: they "
            "count as tried, since that is what a plan decides and what costs"
        )
    return texts


def _estimates(log: Log, fit: Fit, effects: Effects) -> list[Block]:
    kappa = float(np.exp(np.log(fit.kappas).mean()))
    few = [row for row in effects.effects.iter_rows(named=True) if 0 < row["n"] < FEWEST_SEEN]
    gaps = [
        ("**Nothing seen**: ", unseen_actions(log), "What follows there is assumed, not learned."),
        (
            "**Few transitions**: ",
            [f"{row['action']} in {row['state']} ({row['n']})" for row in few],
            "There the effect is mostly estimated from other states and people, shrunk towards 0.",
        ),
    ]
    notes = [Text(f"{head}{'; '.join(cells)}. {tail}") for head, cells, tail in gaps if cells]
    return [
        Heading("What the log says"),
        Text(
            "Averages over the people of the log, with 90 % posterior intervals. People with the "
            "same features differ as if the chances of each were known from "
            f"{kappa:,.0f} transitions: the larger this number, the more alike they are."
        ),
        *estimate_tables(effects, notes),
    ]


def unseen_actions(log: Log) -> list[str]:
    """Pairs of action and state without any transition, in words."""
    seen = np.zeros(log.shape[:2], bool)
    seen[log.transitions.state, log.transitions.action] = True
    labels = log.labels
    return [f"{labels.actions[a]} in {labels.states[s]}" for s, a in np.argwhere(~seen)]


def _held_out(held_out: Sequence[HeldOut]) -> list[Block]:
    if not held_out:
        return [
            Heading("Predictions checked"),
            Text(
                "The log is too short to hold back enough people or rounds: the prediction error "
                "is not known."
            ),
        ]
    return [
        Heading("Predictions checked"),
        Text(
            "Some of the log was held back and predicted from the rest. The error is the mean "
            "negative log-probability of the next state; `better` is how much lower it is than in "
            "the row above, with its standard error (clustered by person)."
        ),
        *(block for held in held_out for block in _one_held_out(held)),
    ]


def _one_held_out(held: HeldOut) -> list[Block]:
    losses = [
        text_cells(
            f"{r['where']}: {r['predictor']}", f"{r['n']:,}",
            "" if r["loss"] is None else f"{r['loss']:.4f}",
            "" if r["better"] is None else f"{r['better']:+.4f} ± {r['stderr']:.4f}",
        )
        for r in held.losses.iter_rows(named=True)
    ]  # fmt: skip
    bins = {
        "predicted": "{predicted:.3f}", "observed": "{observed:.3f}",
        "interval": "{low:.3f} to {high:.3f}", "n": "{n:,}",
    }  # fmt: skip
    return [
        Heading(held.held, 3),
        Grid(["predicted from", "n", "error", "better"], losses),
        Text(f"**Verdict**: {features_verdict(held)}"),
        Text(
            "Each possible next state of each transition is one prediction. For tenths of them by "
            "size: the predicted probability, and how often the state occurred (95 % interval)."
        ),
        frame_grid(held.calibration, bins),
        *calibration_picture(held.calibration, held.name),
    ]


def _assumptions() -> list[Block]:
    return [
        Heading("What this assumes"),
        Bullets(
            [
                "Who was acted on was decided by what is in the log, or by chance (no unmeasured "
                "confounding). If something else decided it that also moves states, effects are "
                "wrong.",
                *MARKOV,
            ]
        ),
    ]
