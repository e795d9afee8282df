"""The report on a log, block by block: the first page, then every figure with its uncertainty."""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from prefermab import plots
from prefermab.pages import Block, Bullets, Cell, Grid, Heading, Picture, Text
from prefermab.plots import svg_of
from prefermab.programme.logs.effects import Effects
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.holdout import HeldOut, features_verdict
from prefermab.programme.logs.reading import Found, Log
from prefermab.programme.logs.verdict import Assessment
from prefermab.programme.logs.warnings import FEW
from prefermab.programme.tables import format_people

MOST_ROWS = 40
"""Rows of a table in the report; the rest is in the data beside it."""

OTHERS = {"before": "as chosen so far", "random": "at random", "none": "nobody acted on"}
"""The ways of choosing that a model is compared with, in words."""


def report_blocks(
    paragraphs: Sequence[str],
    log: Log,
    fit: Fit,
    effects: Effects,
    held_out: Sequence[HeldOut],
    assessment: Assessment,
) -> list[Block]:
    """The report; `paragraphs` are its first page."""
    return [
        Text(paragraphs[0]),
        *gain_picture(assessment),
        *(Text(each) for each in paragraphs[1:]),
        *_comparison(assessment),
        *_groups(effects.groups, shown=assessment.verdict == "shown"),
        *_allocation(assessment),
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
    rows = [_cells("by the model", f"{earned['model']:.3f}", "", "")]
    for name, words in OTHERS.items():
        gain = comparison.gains[name]
        interval = f"{gain.low:+.3f} to {gain.high:+.3f}"
        rows.append(_cells(words, f"{earned[name]:.3f}", f"{gain.estimate:+.3f}", interval))
    return [
        Heading("The model and other ways of choosing"),
        Text(
            f"Reward per person over {comparison.rounds} rounds for a budget of "
            f"{comparison.budget:.3g} a person and round. The gain was measured on people of the "
            f"log, {comparison.people:,} in each of several random orders, with what had been "
            "learned from people before them and nothing from themselves; predictions for them "
            "were corrected by what really came. In made-up logs without a hidden cause such "
            "intervals hold the truth in 89 to 94 of 100 (docs/results/gain.md). `as chosen so "
            "far` follows the states and the features that actions went by in the log."
        ),
        Grid(["chosen", "reward per person", "the model earns more", "90 % interval"], rows),
    ]


def _groups(groups: pl.DataFrame, *, shown: bool) -> list[Block]:
    """Whom an action helps; nothing where there are no features."""
    if groups.is_empty():
        return []
    columns = {
        "group and action": "{feature} {group}, {action}", "people": "{people:,}", "seen": "{n:,}",
        "gain per round": "{gain:+.3f}", "90 % interval": "{low:+.3f} to {high:+.3f}",
    }  # fmt: skip
    rest = f"; the first {MOST_ROWS} rows, all are in the data" if len(groups) > MOST_ROWS else ""
    return [
        Heading("Whom it helps"),
        Text(
            "What an action changes in the reward of the next round for people with the same value "
            "of a feature (numbers in thirds), averaged over these people and the states that were "
            "seen of them. A group may differ because of what else its people have in "
            f"common{rest}:"
        ),
        *([] if shown else [Text("No gain is shown: these are assumptions of the fit.")]),
        _grid(groups, columns),
    ]


def _allocation(assessment: Assessment) -> list[Block]:
    """Who was acted on."""
    columns = {
        "": "{what}", "acted on": "{acted:.3f}", "others": "{others:.3f}",
        "difference": "{difference:+.2f}",
    }  # fmt: skip
    traces = [w.sentence for w in assessment.warnings if w.code == "hidden_cause"]
    clear = (
        "Beyond states and features, those who were acted on more often did not differ from others "
        "before, nor when nobody acted on them."
    )
    return [
        Heading("Who was acted on"),
        Text(
            "Rounds in which somebody was acted on and all others: mean of a number, share of a "
            "category or state, and the difference in standard deviations. `reward before` is what "
            "a person had earned a round until then. Differences in this table are accounted for; "
            "a cause that is not in it is not."
        ),
        _grid(assessment.allocation.balance, columns),
        Text(traces[0][:1].upper() + traces[0][1:] if traces else clear),
    ]


def _data(log: Log) -> list[Block]:
    found, labels, seen = log.found, log.labels, log.transitions
    unit = "days apart" if found.dates else "apart in the time column"
    counts = np.zeros(log.shape[:2], int)
    np.add.at(counts, (seen.state, seen.action), 1)
    rows = [
        _cells(f"{state} (reward {reward:g})", *(f"{n:,}" for n in each))
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
                "rounds in all: no transition is made up across a gap",
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


def _left_out(found: Found) -> list[str]:
    """What the columns `available` and `reached` show."""
    texts = []
    if found.unavailable:
        texts.append(
            f"{found.unavailable:,} transitions start where the person was not available: they are "
            "left out"
        )
    if found.not_reached:
        texts.append(
            f"{found.not_reached:,} of {found.tried:,} actions did not reach the person: they "
            "count as tried, since that is what a plan decides and what costs"
        )
    return texts


def _estimates(log: Log, fit: Fit, effects: Effects) -> list[Block]:
    kappa = float(np.exp(np.log(fit.kappas).mean()))
    few = [row for row in effects.effects.iter_rows(named=True) if 0 < row["n"] < FEW]
    shown = effects.transitions.filter(pl.col("chance") >= 0.001)
    chances = {
        "from, under → to": "{state}, {action} → {next}", "seen": "{n:,}",
        "chance": "{chance:.3f}", "90 % interval": "{low:.3f} to {high:.3f}",
    }  # fmt: skip
    changes = {
        "state and action": "{state}, {action}", "seen": "{n:,}", "effect": "{effect:+.3f}",
        "90 % interval": "{low:+.3f} to {high:+.3f}",
    }  # fmt: skip
    gaps = [
        ("**Nothing seen**: ", unseen_actions(log), "What follows there is assumed, not learned."),
        (
            "**Few transitions**: ",
            [f"{row['action']} in {row['state']} ({row['n']})" for row in few],
            "There the effect is mostly what other states and people suggest, shrunk towards 0.",
        ),
    ]
    return [
        Heading("What the log says"),
        Text(
            "Averages over the people of the log, with 90 % intervals for what the log leaves "
            "open. People with the same features differ as if the chances of each were known from "
            f"{kappa:,.0f} transitions: the more, the more alike they are."
        ),
        Text("What an action changes in the reward of the next state:"),
        _grid(effects.effects, changes),
        *(Text(f"{head}{'; '.join(cells)}. {tail}") for head, cells, tail in gaps if cells),
        Text(
            "Chances of the next state, those of at least 0.001"
            + (f", the first {MOST_ROWS}:" if len(shown) > MOST_ROWS else ":")
        ),
        _grid(shown, chances),
    ]


def unseen_actions(log: Log) -> list[str]:
    """Actions and states without any transition."""
    seen = np.zeros(log.shape[:2], bool)
    seen[log.transitions.state, log.transitions.action] = True
    labels = log.labels
    return [f"{labels.actions[a]} in {labels.states[s]}" for s, a in np.argwhere(~seen)]


def _held_out(held_out: Sequence[HeldOut]) -> list[Block]:
    if not held_out:
        return [
            Heading("Predictions checked"),
            Text(
                "The log is too short to hold back enough people or rounds: how well it predicts "
                "is not known."
            ),
        ]
    return [
        Heading("Predictions checked"),
        Text(
            "Some of the log was held back and predicted from the rest. The error is the mean "
            "negative log-probability of what came; `better` is how much lower it is than in the "
            "row above, with its standard error (people are independent, rounds are not)."
        ),
        *(block for held in held_out for block in _one_held_out(held)),
    ]


def _one_held_out(held: HeldOut) -> list[Block]:
    losses = [
        _cells(
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
            "Every next state of every transition is a prediction. For tenths of them by size: "
            "what was predicted and how often it came (95 % interval)."
        ),
        _grid(held.calibration, bins),
        *calibration_picture(held.calibration, held.name),
    ]


def _assumptions() -> list[Block]:
    return [
        Heading("What this assumes"),
        Bullets(
            [
                "Whom the log's actions went to was decided by what is in the log, or by chance. "
                "If it was decided by something else that also moves states, effects are wrong.",
                "Where people go next depends on the present state, the action and the features "
                "only, and stays so over time.",
                "People do not influence each other.",
                "The budget is shared by many people, so that no single one changes what is left "
                "for others.",
            ]
        ),
    ]


def _cells(*texts: str) -> list[Cell]:
    return [Cell(text) for text in texts]


def _grid(frame: pl.DataFrame, columns: Mapping[str, str]) -> Grid:
    """The first rows of a frame; `columns` are formats of a row's values by heading."""
    rows = frame.head(MOST_ROWS).iter_rows(named=True)
    return Grid(list(columns), [_cells(*(c.format(**r) for c in columns.values())) for r in rows])


def calibration_picture(bins: pl.DataFrame, name: str) -> Sequence[Picture]:
    """Predicted against observed; none without a plotting library."""
    with contextlib.suppress(plots.NoPlotsError):
        figure = plots.blank(3.6, 3.4)
        panel = figure.subplots()
        panel.plot([0, 1], [0, 1], color=plots.GREY, lw=1, ls="--")
        reach = [bins["observed"] - bins["low"], bins["high"] - bins["observed"]]
        panel.errorbar(
            bins["predicted"], bins["observed"], yerr=np.clip(reach, 0, None), fmt="o", ms=4,
            color=plots.BLUE, ecolor=plots.INK, lw=1,
        )  # fmt: skip
        panel.set_xlabel("predicted", fontsize=9)
        panel.set_ylabel("observed", fontsize=9)
        plots.tidy_panel(panel)
        caption = "Probabilities predicted for what was held back, and how often it came."
        return [Picture(f"calibration-{name}", svg_of(figure, f"calibration-{name}"), caption)]
    return []


def gain_picture(assessment: Assessment) -> Sequence[Picture]:
    """The gain with its interval, and below it those of the placebo."""
    comparison, placebo = assessment.comparison, assessment.placebo
    if comparison is None:
        return []
    with contextlib.suppress(plots.NoPlotsError):
        several = [comparison.gain, *placebo]
        middle = np.array([gain.estimate for gain in several])
        reach = np.array([[g.estimate - g.low, g.high - g.estimate] for g in several]).T
        place = -np.concatenate([[0.0], 1.2 + 0.45 * np.arange(len(placebo))])
        figure = plots.blank(6.4, 2.6)
        panel = figure.subplots()
        panel.axvline(0, color=plots.GREY, lw=1, ls="--")
        own = plots.BLUE if assessment.verdict == "shown" else plots.INK
        for rows, colour, size in ((slice(0, 1), own, 7), (slice(1, None), plots.GREY, 4)):
            panel.errorbar(
                middle[rows], place[rows], xerr=reach[:, rows], fmt="o", ms=size, color=colour,
                ecolor=colour, capsize=3, lw=1.5,
            )  # fmt: skip
        ticks = [0.0, float(place[1:].mean())]
        panel.set_yticks(ticks, ["this log", "actions shuffled:\nno gain possible"])
        panel.set_ylim(float(place.min()) - 0.4, 0.5)
        label = f"gain per person over {comparison.rounds} rounds"
        panel.set_xlabel(label, fontsize=9, color=plots.INK)
        plots.tidy_panel(panel)
        caption = (
            "What a person gains compared with what was done so far, with 90 % intervals: in this "
            "log, and in copies of it with shuffled actions, in which nothing can be gained."
        )
        return [Picture("gain", svg_of(figure, "gain"), caption)]
    return []
