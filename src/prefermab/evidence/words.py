"""What a log and a model come to, in sentences for who decides about the programme."""

import math

import polars as pl

from prefermab.evaluation import ROUNDS
from prefermab.logs.reading import Log
from prefermab.model import Model
from prefermab.wording import plain


def headline(log: Log, model: Model, comparison: pl.DataFrame) -> str:
    """What a person earns with the model and as was chosen so far, and how the log compares."""
    rows = {row["policy"]: row for row in comparison.iter_rows(named=True)}
    own, former = rows["prefermab"], rows["as logged"]
    unit, good = log.found.unit, _good_state(log)
    digits = _digits(own["mean"])
    with_, so_far = (f"{row['mean']:,.{digits}f}" for row in (own, former))
    if good is None:
        earns = f"earns {with_} in {ROUNDS} {unit}s with the model and {so_far} as chosen so far"
    else:
        earns = (
            f"is in the state {good} in {with_} of {ROUNDS} {unit}s with the model and in {so_far} "
            "as chosen so far"
        )
    return (
        f"Simulated from this log, a person {earns}, for the same budget of "
        f"{plain(model.budget)} a {unit}: {_gain(former, digits)}. "
        f"{_beside_the_log(log, model, former['mean'], good)} "
        f"{ROUNDS} rounds are a trial of the paper's, and what `pm.evaluate` plays."
    )


def _gain(row: dict, digits: int) -> str:
    """How much more, or less, and how sure that is."""
    more = row["gain"] >= 0
    sign = 1 if more else -1
    ends = sorted((sign * row["gain_low"], sign * row["gain_high"]))
    low, high = (f"{end:,.{digits}f}" for end in ends)
    doubt = ", so it may be none" if ends[0] <= 0 else ""
    return (
        f"{abs(row['gain']):,.{digits}f} {'more' if more else 'less'} (90 % interval {low} to "
        f"{high}{doubt})"
    )


def _beside_the_log(log: Log, model: Model, simulated: float, good: str | None) -> str:
    """Whether the simulation of the former choice gives what the log has."""
    each, unit = simulated / ROUNDS, log.found.unit
    if good is None:
        digits = _digits(log.earned)
        was = f"people earned {log.earned:,.{digits}f} a {unit}"
        told = f"{each:,.{digits}f}"
    else:
        was = f"people were so in {100 * log.earned:.1f} % of their {unit}s"
        told = f"{100 * each:.1f} %"
    spent, may = log.spent / log.found.present, model.budget / model.n_arms
    other = ""
    if not 0.95 < may / max(spent, 1e-12) < 1.05:
        other = f" with this budget, {may:.3g} a person instead of {spent:.3g},"
    return f"In the log itself {was}; the simulation of the former choice{other} gives {told}."


def _good_state(log: Log) -> str | None:
    """The state that alone earns 1, where all others earn nothing."""
    rewards = log.meaning.rewards
    if sorted(rewards) != [0.0] * (len(rewards) - 1) + [1.0]:
        return None
    return log.meaning.states[int(rewards.argmax())]


def _digits(value: float) -> int:
    """Digits after the point that show three in all."""
    return 2 if value == 0 else min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
