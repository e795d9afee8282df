"""The first page of a report, in sentences for people who decide about the programme: whether a
gain is shown, what the log contains, how certain the gain is, whom acting helps, what could be
wrong, and what to do next."""

import math

import polars as pl

from prefermab.programme.learning.gain import Comparison
from prefermab.programme.learning.verdict import Assessment
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.reading import Log
from prefermab.programme.tables.table import format_number, format_people

MOST_GROUPS = 3
"""Most groups that the first page names."""


def first_page(
    log: Log, fit: Fit, groups: pl.DataFrame, assessment: Assessment, budget: float
) -> list[str]:
    """The first page, a paragraph each."""
    doubts = could_be_wrong(assessment)
    paragraphs = [
        headline(log, assessment, budget),
        in_the_log(log),
        f"**How sure is that?** {how_sure(assessment)}" if assessment.comparison else "",
        about_scores(fit),
        f"**For whom?** {for_whom(assessment, groups)}",
        f"**What could be wrong?** {' '.join(doubts)}" if doubts else "",
        f"**What next?** {next_step(assessment, log)}",
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def headline(log: Log, assessment: Assessment, budget: float) -> str:
    """Whether a gain is shown or, if that cannot be told, the reason."""
    comparison, unit = assessment.comparison, log.found.unit
    spoilt = [warning.sentence for warning in assessment.warnings if warning.spoils]
    opening = "**It cannot be told from this log whether a model would gain anything**: "
    opening += " ".join(spoilt[:1])
    if comparison is None:
        return opening
    money = f"for the same budget of {format_number(budget)} a {unit}"
    if assessment.verdict == "shown":
        return (
            f"**A gain is shown.** {_earns(log, comparison)}, {money}: "
            f"{_number(comparison.gain.estimate, comparison)} more (90 % interval "
            f"{_interval(comparison)})."
        )
    what = (
        f"the difference that was measured over {_counted(comparison.rounds, unit)} is "
        f"{_signed(comparison.gain.estimate, comparison)} a person, {money} (90 % interval "
        f"{_interval(comparison)})"
    )
    if assessment.verdict == "not shown":
        return f"**No gain is shown.** Compared with what was done so far, {what}: it may be 0."
    return f"{opening} Taken at face value, {what}, which proves nothing."


def in_the_log(log: Log) -> str:
    """What the log contains."""
    found, acted = log.found, int((log.transitions.action > 0).sum())
    passive = len(log.transitions) - acted
    text = (
        f"The log has {format_people(found.people)} in {_counted(found.rounds, found.unit)}. It "
        f"shows what followed {acted:,} times when somebody was acted on, and {passive:,} times "
        "when nobody did anything."
    )
    if found.not_reached:
        text += (
            f" {found.not_reached:,} of {found.tried:,} actions did not reach the person; they "
            "count as tried, because that is what a list decides."
        )
    return text


def how_sure(assessment: Assessment) -> str:
    """How the gain was measured, the placebo test, and the minimum detectable gain."""
    comparison = assessment.comparison
    if comparison is None:
        return ""
    placebo = [gain.estimate for gain in assessment.placebo]
    claimed = sum(gain.shown for gain in assessment.placebo)
    ends = " to ".join(_signed(end, comparison) for end in (min(placebo), max(placebo)))
    text = (
        "It was always measured on other people than those from whom the rule was learned. As a "
        f"check, the same was done {len(placebo)} times with the actions shuffled among people in "
        f"the same state, so that there is no gain: the estimates were {ends}, and a gain was "
        f"{'never' if claimed == 0 else f'{claimed} times'} claimed."
    )
    if assessment.verdict == "not shown":
        text += (
            " A log like this one would show a gain of "
            f"{_number(comparison.detectable, comparison)} or more in four of five cases; a "
            "smaller gain may be missed."
        )
    return text


def about_scores(fit: Fit) -> str:
    """A remark on the model's scores, if the log shows little effect of acting."""
    if fit.effect_probability > 0.5:
        return ""
    return (
        f"By this log it is {_percent(fit.effect_probability)} likely that acting changes "
        "anything. That is why the model's scores are near zero: the order of its list is "
        "mostly chance."
    )


def for_whom(assessment: Assessment, groups: pl.DataFrame) -> str:
    """Groups with a 90 % interval of the effect above 0, the largest effect first."""
    if assessment.verdict != "shown":
        return "As long as no gain is shown, nothing can be said about whom it would help."
    sure = groups.filter((pl.col("low") > 0) & (pl.col("group") != "unknown"))
    best = sure.sort("gain", descending=True).head(MOST_GROUPS)
    if best.is_empty():
        return "In no single group is it shown that acting helps; over all people together it is."
    named = [
        f"{row['feature']} {row['group']} ({row['action']} {row['gain']:+.2f} in the next round)"
        for row in best.iter_rows(named=True)
    ]
    return f"Acting helps most among people with {'; '.join(named)}."


def could_be_wrong(assessment: Assessment) -> list[str]:
    """Reasons to doubt the gain, the most serious first."""
    ordered = sorted(assessment.warnings, key=lambda warning: not warning.spoils)
    # The first warning that spoils the log is in the headline.
    sentences = [warning.sentence for warning in ordered[assessment.verdict == "cannot tell" :]]
    spoiling = {warning.code for warning in ordered if warning.spoils}
    comparison = assessment.comparison
    only_hidden_cause = spoiling <= {"hidden_cause"}
    if (
        only_hidden_cause
        and comparison is not None
        and comparison.gain.shown
        and comparison.hidden_cause
    ):
        sentences.append(
            "who was acted on may have been decided by something that is in no column. To undo the "
            "gain, such a hidden cause would have to change the odds of being acted on by a factor "
            f"of {comparison.hidden_cause:.1f} (1 is no change) and determine the outcome."
        )
    return [sentence[:1].upper() + sentence[1:] for sentence in sentences]


def next_step(assessment: Assessment, log: Log) -> str:
    """What to do now."""
    unit = log.found.unit
    codes = {warning.code for warning in assessment.warnings if warning.spoils}
    if codes & {"hidden_cause", "never_tried"}:
        return (
            f"In the coming {unit}s, choose a tenth or more of those who are acted on at random, "
            "write down who, and learn again."
        )
    if "too_few_to_judge" in codes:
        return f"Collect more people and {unit}s before anybody relies on a list."
    if codes:
        return "Correct the log as described above, and learn again."
    if assessment.verdict == "shown":
        return (
            f"Use the list, choose a small share of it at random for some {unit}s so that the gain "
            "can be checked, and learn again."
        )
    return (
        f"Go on as before or use the list: this log does not tell them apart. More {unit}s, more "
        "people, or more actions at random would."
    )


def _percent(chance: float) -> str:
    return "less than 1 %" if chance < 0.01 else f"{chance:.0%}".replace("%", " %")


def _earns(log: Log, comparison: Comparison) -> str:
    """The reward of a person with the model, and as chosen so far, in words."""
    span, good = _counted(comparison.rounds, log.found.unit), _good_state(log)
    before = comparison.earned["before"]
    with_, so_far = (
        _number(each, comparison) for each in (before + comparison.gain.estimate, before)
    )
    if good is None:
        return f"A person earns {with_} in {span} with the model and {so_far} as chosen so far"
    return (
        f"A person is in the state {good} in {with_} of {span} with the model and in {so_far} as "
        "chosen so far"
    )


def _interval(comparison: Comparison) -> str:
    return (
        f"{_number(comparison.gain.low, comparison)} to {_number(comparison.gain.high, comparison)}"
    )


def _number(value: float, comparison: Comparison) -> str:
    return f"{value:,.{_digits(comparison.earned['before'])}f}"


def _signed(value: float, comparison: Comparison) -> str:
    return f"{value:+,.{_digits(comparison.earned['before'])}f}"


def _counted(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _good_state(log: Log) -> str | None:
    """The state with the reward 1, if all other states have the reward 0."""
    rewards = log.labels.rewards
    if sorted(rewards) != [0.0] * (len(rewards) - 1) + [1.0]:
        return None
    return log.labels.states[int(rewards.argmax())]


def _digits(value: float) -> int:
    """The number of decimals with which three significant digits are shown."""
    return 2 if value == 0 else min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
