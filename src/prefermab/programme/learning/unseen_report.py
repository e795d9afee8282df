"""The first page and the report on a log in which most states are empty. They give no gain: the
method of `gain`, and the coverage of its interval, were only tested on logs with all states."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.common.pages import Block, Bullets, Grid, Heading, Text
from prefermab.programme.learning.effects import Effects
from prefermab.programme.learning.report import group_table
from prefermab.programme.learning.report_parts import (
    MARKOV,
    estimate_tables,
    frame_grid,
    text_cells,
)
from prefermab.programme.learning.summary import about_scores, could_be_wrong
from prefermab.programme.learning.verdict import Assessment
from prefermab.programme.learning.visits import PREDICTORS, Visits
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.log_warnings import LogWarning, log_warnings
from prefermab.programme.logs.reading import Log
from prefermab.programme.tables.table import format_people


def assess_unseen(log: Log, visits: Visits) -> Assessment:
    """The assessment of such a log: `cannot tell`, with its warnings."""
    refusal = LogWarning(
        "gain_not_measured",
        "what a model gains is measured from states in consecutive rounds, and most states of this "
        "log are empty; how far an estimate would be from the truth is not known, so none is "
        "given.",
        spoils=True,
    )
    warnings = (refusal, *log_warnings(log), *visits.warnings)
    return Assessment("cannot tell", None, (), None, warnings)


def first_page_unseen(log: Log, fit: Fit, visits: Visits, assessment: Assessment) -> list[str]:
    """The first page, a paragraph each."""
    assert log.histories is not None
    found, unit = log.found, log.found.unit
    doubts = could_be_wrong(assessment)
    paragraphs = [
        "**No gain of this model is estimated**: " + assessment.warnings[0].sentence,
        f"The log has {format_people(found.people)} in {found.rounds:,} {unit}s. "
        f"{log.histories.why} The model decides by the state last seen and the {unit}s since, and "
        "also plans for people who were never seen.",
        f"**How well are states predicted?** {_prediction(visits, unit)}",
        _effect(fit),
        f"**What could be wrong?** {' '.join(doubts)}" if doubts else "",
        f"**What next?** Use the list for a part of the people, chosen at random, and go on as "
        f"before with the others: such a trial measures the gain (`prefermab trial`). If some "
        f"people, chosen at random, are looked at each {unit}, the next log shows more.",
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _prediction(visits: Visits, unit: str) -> str:
    if visits.predicted is None:
        return "Not known: too few people were seen twice to hold some of them back."
    rows = visits.predicted.filter(pl.col("where") == "all")
    right, loss = (dict(zip(rows["predictor"], rows[name], strict=True)) for name in (
        "right", "loss"))  # fmt: skip
    fit, last, average = PREDICTORS
    better = loss[fit] < min(loss[last], loss[average])
    verdict = "" if better else (
        " So the fit predicts no better than these: what the model believes about people who were "
        "not seen lately is hardly better than an average."
    )  # fmt: skip
    return (
        f"Of {rows['n'][0]:,} states seen of {format_people(visits.people)} who were held back, "
        f"the fit predicts {right[fit]:.0%} right, from the state seen before, the {unit}s since "
        f"and the actions; the state last seen is right in {right[last]:.0%}, and the most common "
        f"state in {right[average]:.0%}. The error (mean negative log-probability) is "
        f"{loss[fit]:.3f}, {loss[last]:.3f} and {loss[average]:.3f}.{verdict}"
    )


def _effect(fit: Fit) -> str:
    """The posterior probability that acting has an effect, in a sentence."""
    little = about_scores(fit)
    return little or (
        f"By this log it is {fit.effect_probability:.0%} likely that acting changes anything, if "
        "chance or what is in the log decided who was acted on and who was seen."
    )


def report_unseen(
    paragraphs: Sequence[str], log: Log, fit: Fit, effects: Effects, visits: Visits
) -> list[Block]:
    """The report; `paragraphs` are its first page."""
    return [
        *(Text(each) for each in paragraphs),
        *_visit_tables(visits, log.found.unit),
        *group_table(effects.groups, shown=False),
        *_data(log),
        *_estimates(fit, effects),
        Heading("What this assumes"),
        Bullets(
            [
                "Who is acted on and who is seen was decided by what was known then (the state "
                "last seen, the rounds since, the features) or by chance, and not by the unseen "
                "state itself (missing at random). If people are seen because of their state, "
                "chances are wrong; this can be checked only in part.",
                *_assumed(log),
                *MARKOV,
            ]
        ),
    ]


def _assumed(log: Log) -> list[str]:
    histories = log.histories
    assert histories is not None
    if histories.way == "some":
        return [f"A state is seen with the same chance, {histories.chance:.0%}, whatever is done."]
    shown = f"{histories.chance:.0%} of the actions found the person and showed the state"
    rest = "" if histories.chance == 1 else "; the others changed nothing"
    return [f"The state of a row is the one in which the action found the person; {shown}{rest}."]


def _visit_tables(visits: Visits, unit: str) -> list[Block]:
    blocks: list[Block] = [Heading("Predictions checked")]
    if visits.predicted is None:
        blocks.append(Text("Too few people were seen twice to hold some of them back."))
    else:
        blocks += [
            Text(
                f"States seen of {format_people(visits.people)} who were held back, predicted from "
                f"the state seen before, the {unit}s since, what was done and the features; and "
                f"the first state of a person, from the features. `as last seen`: the state did "
                "not change, with the probability found among the other people; `average`: the "
                "shares of all states seen. The error is the mean negative log-probability of the "
                "state that was seen."
            ),
            frame_grid(
                visits.predicted,
                {f"{unit}s since": "{where}", "predicted by": "{predictor}", "n": "{n:,}",
                 "error": "{loss:.3f}", "right": "{right:.0%}"},
            ),
        ]  # fmt: skip
    if not visits.apart.is_empty():
        blocks += [
            Text(
                "Shares of states as the fit to everybody predicts them and as they were seen, "
                f"after few {unit}s and after many, and by how many standard errors they differ. "
                "Where people are seen because of their state, these do not fit together."
            ),
            frame_grid(
                visits.apart,
                {f"{unit}s since": "{rounds}", "state": "{state}", "n": "{n:,}",
                 "predicted": "{predicted:.1%}", "seen": "{seen:.1%}", "apart": "{errors:+.1f}"},
            ),
        ]  # fmt: skip
    return blocks


def _data(log: Log) -> list[Block]:
    found, labels = log.found, log.labels
    _, state, action = log.sighted
    counts = np.zeros(log.shape[:2], int)
    np.add.at(counts, (state, action), 1)
    rows = [
        text_cells(f"{name} (reward {reward:g})", *(f"{n:,}" for n in each))
        for name, reward, each in zip(labels.states, labels.rewards, counts, strict=True)
    ]
    head = [f"{a} (cost {c:g})" for a, c in zip(labels.actions, labels.costs, strict=True)]
    return [
        Heading("Data found"),
        Text(
            f"{found.rows:,} rows from {found.first} to {found.last}: "
            f"{format_people(found.people)}, {found.rounds:,} rounds. "
            f"Features: {', '.join(f'`{name}`' for name in log.feature_names) or 'none'}."
        ),
        Text("States seen, by what was done in that round:"),
        Grid(["state", *head], rows),
        Bullets(
            [
                f"{found.gaps:,} gaps between two rows of a person: what was known before a gap is "
                "not used after it",
                f"{found.unknown_actions:,} rows have no action: what was known before is not used "
                "after them",
                f"{found.tried:,} actions, of which {found.not_reached:,} are written down as not "
                "having reached the person",
            ]
        ),
    ]


def _estimates(fit: Fit, effects: Effects) -> list[Block]:
    kappa = float(np.exp(np.log(fit.kappas).mean()))
    return [
        Heading("What the log says"),
        Text(
            "Averages over the people of the log, with 90 % posterior intervals. These are too "
            "narrow: in simulated logs 79 % of the true chances lay within them "
            "(docs/results/unseen-log.md). People with the same features differ as if the chances "
            f"of each were known from {kappa:,.0f} transitions: the larger this number, the more "
            "alike they are. `seen` counts states that were seen with the action; for chances, "
            "states that were seen in both rounds."
        ),
        *estimate_tables(effects),
    ]
