"""What a log shows, in sentences for who decides about the programme: what was in it, whether a
gain is shown, how sure that is, for whom, what could be wrong, and what to do next."""

import math

import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.gain import Judged
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.verdict import Findings
from prefermab.programme.tables import people, plain

HELPED = 3
"""Groups that the first page names."""


def in_the_log(log: Log) -> str:
    """What was in the log."""
    found, acted = log.found, int((log.transitions.action > 0).sum())
    unit, few = found.unit, len(log.transitions) - acted
    told = (
        f"The log tells of {people(found.people)} in {_counted(found.rounds, unit)}. It says what "
        f"followed {acted:,} times that somebody was acted on, and {few:,} times that nobody did "
        "anything."
    )
    if found.not_reached:
        told += (
            f" {found.not_reached:,} of {found.tried:,} actions did not reach the person; they "
            "count as tried, because that is what a list decides."
        )
    return told


def headline(log: Log, found: Findings, budget: float) -> str:
    """Whether a gain is shown; if that cannot be told, why."""
    judged, unit = found.judged, log.found.unit
    spoilt = [caution.sentence for caution in found.cautions if caution.spoils]
    untold = "**It cannot be told from this log whether a model would gain anything**: "
    untold += " ".join(spoilt[:1])
    if judged is None:
        return untold
    money = f"for the same budget of {plain(budget)} a {unit}"
    if found.verdict == "shown":
        return (
            f"**A gain is shown.** {_earns(log, judged)}, {money}: "
            f"{_number(judged.gain.estimate, judged)} more (90 % interval {_interval(judged)})."
        )
    what = (
        f"the difference that was measured over {_counted(judged.rounds, unit)} is "
        f"{_signed(judged.gain.estimate, judged)} a person, {money} (90 % interval "
        f"{_interval(judged)})"
    )
    if found.verdict == "not shown":
        return f"**No gain is shown.** Beside what was done so far, {what}: it may be nothing."
    return f"{untold} Taken at face value, {what}, which proves nothing."


def how_sure(found: Findings) -> str:
    """How the gain was measured, and what the log could show at all."""
    judged = found.judged
    if judged is None:
        return ""
    placebo = [gain.estimate for gain in found.placebo]
    claimed = sum(gain.shown for gain in found.placebo)
    ends = " to ".join(_signed(end, judged) for end in (min(placebo), max(placebo)))
    told = (
        "It was measured on people from whom the model had learned nothing, part by part. As a "
        f"check, the same was done {len(placebo)} times with the actions shuffled among people in "
        f"the same state, so that nothing can be gained: that gave {ends}, and a gain was "
        f"{'never' if claimed == 0 else f'{claimed} times'} claimed."
    )
    if found.verdict == "not shown":
        told += (
            f" A log like this one would mostly show a gain of {_number(judged.noticed, judged)} "
            "or more; a smaller one can be there and stay unseen."
        )
    return told


def for_whom(found: Findings, groups: pl.DataFrame) -> str:
    """Groups in which an action surely helps, those with the most to gain first."""
    if found.verdict != "shown":
        return "As long as no gain is shown, nothing can be said about whom it would help."
    sure = groups.filter((pl.col("low") > 0) & (pl.col("group") != "unknown"))
    best = sure.sort("gain", descending=True).head(HELPED)
    if best.is_empty():
        return "In no group of people alone is it sure that acting helps; taken together it does."
    named = [
        f"{row['feature']} {row['group']} ({row['action']} {row['gain']:+.2f} in the next round)"
        for row in best.iter_rows(named=True)
    ]
    return f"Acting helps most among people with {'; '.join(named)}."


def could_be_wrong(found: Findings) -> list[str]:
    """What speaks against believing it, what spoils it first."""
    ordered = sorted(found.cautions, key=lambda caution: not caution.spoils)
    # The first that spoils the log stands in the headline.
    told = [caution.sentence for caution in ordered[found.verdict == "cannot tell" :]]
    judged, only = found.judged, {caution.code for caution in ordered if caution.spoils}
    if judged is not None and judged.gain.shown and judged.hidden and only <= {"hidden_cause"}:
        told.append(
            "who was acted on may have been decided by something that is in no column. To undo the "
            "gain, such a hidden cause would have to change the odds of being acted on "
            f"{judged.hidden:.1f} times (1 is not at all) and decide all that comes of it."
        )
    return [sentence[:1].upper() + sentence[1:] for sentence in told]


def next_step(found: Findings, log: Log) -> str:
    """What to do now."""
    unit = log.found.unit
    codes = {caution.code for caution in found.cautions if caution.spoils}
    if codes & {"hidden_cause", "never_tried"}:
        return (
            f"Let chance choose a share of those who are acted on in the coming {unit}s, a tenth "
            "or more, write down who, and learn again."
        )
    if "too_few_to_judge" in codes:
        return f"Collect more people and {unit}s before anybody relies on a list."
    if codes:
        return "Put right what is said above, and learn again."
    if found.verdict == "shown":
        return (
            f"Use the list, let chance choose a small share of it for some {unit}s so that the "
            "gain can be checked, and learn again."
        )
    return (
        f"Go on as before or by the list, as you like: this log does not tell them apart. More "
        f"{unit}s, more people, or more actions given at random would."
    )


def about_scores(fit: Fit) -> str:
    """What the model's scores are worth where the log shows little of what acting does."""
    if fit.acts > 0.5:
        return ""
    return (
        f"By this log it is {_percent(fit.acts)} likely that acting changes anything. The model's "
        "scores are near zero for this reason: the order of its list is mostly chance."
    )


def _percent(chance: float) -> str:
    return "less than 1 %" if chance < 0.01 else f"{chance:.0%}".replace("%", " %")


def _earns(log: Log, judged: Judged) -> str:
    """What a person has with the model and as chosen so far."""
    span, good = _counted(judged.rounds, log.found.unit), _good_state(log)
    before = judged.earned["before"]
    with_, so_far = (_number(each, judged) for each in (before + judged.gain.estimate, before))
    if good is None:
        return f"A person earns {with_} in {span} with the model and {so_far} as chosen so far"
    return (
        f"A person is in the state {good} in {with_} of {span} with the model and in {so_far} as "
        "chosen so far"
    )


def _interval(judged: Judged) -> str:
    return f"{_number(judged.gain.low, judged)} to {_number(judged.gain.high, judged)}"


def _number(value: float, judged: Judged) -> str:
    return f"{value:,.{_digits(judged.earned['before'])}f}"


def _signed(value: float, judged: Judged) -> str:
    return f"{value:+,.{_digits(judged.earned['before'])}f}"


def _counted(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _good_state(log: Log) -> str | None:
    """The state that alone earns 1, where all others earn nothing."""
    rewards = log.meaning.rewards
    if sorted(rewards) != [0.0] * (len(rewards) - 1) + [1.0]:
        return None
    return log.meaning.states[int(rewards.argmax())]


def _digits(value: float) -> int:
    """Digits after the point that show three in all."""
    return 2 if value == 0 else min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
