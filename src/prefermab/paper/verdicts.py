"""The claims that the paper's tables test, and those about fine-tuning beside DDLPO."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from prefermab.paper.claims import (
    FAILS,
    OPEN,
    Trend,
    interquartile_mean,
    larger_n,
    samples_to_reach,
    trend,
)
from prefermab.paper.results import LEARN_BY_SAMPLES, Results, both_toplines
from prefermab.paper.runner import PAPER_RECIPES
from prefermab.paper.tables import Section, Setting, Table


def trends_of(results: Results, table: Table) -> list[Trend]:
    """The paper's claims that a table tests."""
    return [found for test in CLAIM_TESTS.get(table.name, ()) for found in test(results, table)]


def unique_arms(results: Results, table: Table) -> list[Trend]:
    """Models earn less with fewer unique training arms, and with masked features."""
    found, rows = [], [row for row in table.sections[0].rows if row.policy == "prefermab"]
    for recipe in results.recipes:
        each = [[_by_seed(results, recipe, at) for at in row.settings] for row in rows]
        for row, columns in zip(rows, each, strict=True):
            gain = columns[0] - columns[-1]
            what = f"`{recipe}`, {_short(row.title)}{table.columns[0]} over {table.columns[-1]}"
            found.append(trend("More unique training arms help", what, gain))
        if len(rows) > 1:
            cost = np.mean(each[-1], axis=0) - np.mean(each[0], axis=0)
            what = f"`{recipe}`, 0/4 over 2/4 features masked, mean of the columns"
            found.append(trend("Masked features cost reward", what, cost))
    return found


def robust_to_shift(results: Results, table: Table) -> list[Trend]:
    """Under distribution shift, a model earns more than Random and at least 95 % of the informed
    policy."""
    found = []
    for section, recipe in _each(results, table):
        settings = _model_settings(section)
        found.append(_over_random(results, section, recipe, "under shift"))
        least = _least_share(results, recipe, settings)
        what = f"`{recipe}`, {section.title}: share of the informed policy where it is least"
        found.append(trend("Robust: keeps 95 % of the informed policy", what, least, 0.95))
    return found


def beats_baselines(results: Results, table: Table) -> list[Trend]:
    """Models earn more than Random, which earns more than No Action."""
    where = "with continuous states" if table.name == "table6" else "with sigmoid features"
    return [
        _over_random(results, section, recipe, where) for section, recipe in _each(results, table)
    ]


def shaping_helps(results: Results, table: Table) -> list[Trend]:
    """StateShaping raises the reward of the recipes `paper` and `paper-literal`."""
    without, shaped = (row for row in table.sections[0].rows if row.policy == "prefermab")
    found = []
    for column, plain, better in zip(table.columns, without.settings, shaped.settings, strict=True):
        for recipe in [r for r in results.recipes if r in PAPER_RECIPES]:
            gain = _by_seed(results, recipe, better) - _by_seed(results, recipe, plain)
            what = f"`{recipe}`, r(s) = {column}: with - without"
            found.append(trend("StateShaping helps", what, gain))
    return found


def near_topline(results: Results, table: Table) -> list[Trend]:
    """Zero-shot, a model earns at least 95 % of the reward of DDLPO's best epoch on DDLPO's own
    arms."""
    found = []
    for section, recipe in _each(results, table):
        for at in _topline_settings(section):
            for version in both_toplines(at):
                best = results.topline(version)["best"].mean(axis=1)
                ratio = results.zero_shot(recipe, at).mean(axis=1) / best
                seen = "with features" if version.features else "without features"
                what = f"`{recipe}`, {section.title}: share of DDLPO's best epoch on the same arms"
                claim = f"Zero-shot near the topline {seen} (95 %)"
                found.append(trend(claim, what, ratio, 0.95))
    return found


def more_with_budget(results: Results, table: Table) -> list[Trend]:
    """With the same number of arms, a larger budget gives a larger reward."""
    found, settings = [], [_model_settings(section) for section in table.sections]
    pairs = [
        (more, less)
        for more in settings
        for less in settings
        if more[0].n_arms == less[0].n_arms and more[0].budget > less[0].budget
    ]
    for more, less in pairs:
        for recipe in results.recipes:
            gains = [
                _by_seed(results, recipe, high) - _by_seed(results, recipe, low)
                for high, low in zip(more, less, strict=True)
            ]
            least = min(gains, key=lambda gain: gain.mean())
            what = (
                f"`{recipe}`, N = {more[0].n_arms}: budget {more[0].budget:g} over "
                f"{less[0].budget:g}, at the opt-in rate where it is least"
            )
            found.append(trend("Reward rises with the budget", what, least))
    return found


def any_opt_in(results: Results, table: Table) -> list[Trend]:
    """At opt-in rates far from that of training, a model keeps its share of the informed policy."""
    found = []
    for section in table.sections:
        settings = next(row for row in section.rows if row.policy == "prefermab").settings
        for recipe in results.recipes:
            least = _least_share(results, recipe, settings)
            what = f"`{recipe}`, {section.title}: share of Whittle at the rate where it is least"
            found.append(trend("Any opt-in rate (95 % of Whittle)", what, least, 0.95))
    return found


def features_of_topline(results: Results, table: Table) -> list[Trend]:
    """Features do not raise the reward of DDLPO."""
    rows = {row.settings[0].features: row for row in table.sections[0].rows}
    found = []
    for i, column in enumerate(table.columns):
        with_them, without = (
            results.topline(rows[sees].settings[i])["best"].mean(axis=1) for sees in (True, False)
        )
        what = f"{column}: best epoch with - without, per arm"
        claim = "Features do not help DDLPO (by 1 % or more)"
        found.append(trend(claim, what, with_them / without - 1, 0.01, below=True))
    return found


def _each(results: Results, table: Table) -> list[tuple[Section, str]]:
    return [(section, recipe) for section in table.sections for recipe in results.recipes]


def _model_settings(section: Section) -> tuple[Setting, ...]:
    return next(row for row in section.rows if row.policy == "prefermab").settings


def _topline_settings(section: Section) -> list[Setting]:
    """The first setting for which a topline was published, as a list; empty if there is none."""
    found = [
        at
        for row in section.rows
        if row.policy == "ddlpo"
        for at, shown in zip(row.settings, row.published, strict=True)
        if shown
    ]
    return found[:1]


def _over_random(results: Results, section: Section, recipe: str, where: str) -> Trend:
    """The reward of a recipe over the better baseline, in the column where it is least."""
    gains = []
    for at in _model_settings(section):
        best = max(results.rewards(name, at).mean() for name in ("none", "random"))
        gains.append(_by_seed(results, recipe, at) - best)
    worst = min(gains, key=lambda gain: gain.mean())
    what = f"`{recipe}`, {section.title}: over Random, in the column where it is least"
    return trend(f"Better than the baselines {where}", what, worst)


def _by_seed(results: Results, recipe: str, setting: Setting) -> np.ndarray:
    return results.rewards(recipe, setting).mean(axis=1)


def _share_by_seed(results: Results, recipe: str, setting: Setting) -> np.ndarray:
    informed = results.informed(setting)
    rewards = results.rewards(recipe, setting)[:, : informed.size]
    return rewards.mean(axis=1) / informed.mean()


def _least_share(results: Results, recipe: str, settings: Sequence[Setting]) -> np.ndarray:
    """Each seed's share of the informed policy, in the setting where it is least on average."""
    kept = [_share_by_seed(results, recipe, at) for at in settings]
    return min(kept, key=lambda share: share.mean())


def _short(title: str) -> str:
    return f"{title.removeprefix('PreFeRMAB, ')}: " if title != "PreFeRMAB" else ""


CLAIM_TESTS: dict[str, tuple[Callable[[Results, Table], list[Trend]], ...]] = {
    "table1": (unique_arms,),
    "table2": (robust_to_shift,),
    "table3": (robust_to_shift,),
    "table4": (robust_to_shift,),
    "table5": (shaping_helps,),
    "table6": (beats_baselines,),
    "table7": (near_topline,),
    "table9": (any_opt_in,),
    "table10": (any_opt_in,),
    "table11": (beats_baselines,),
    "table12": (features_of_topline,),
    "table13": (near_topline,),
    "table14": (near_topline,),
    "table15": (near_topline, more_with_budget),
    "table16": (unique_arms,),
    "prop1": (larger_n,),
    "pools": (larger_n,),
}


CLAIMED_SHARES = (
    ("Fine-tuning needs at most 12.5 % of DDLPO's samples", 0.125),
    ("Training from scratch is at least 3 times dearer than fine-tuning", 1 / 3),
)
"""Claims about the samples of fine-tuning, and the share of DDLPO's samples that each allows."""


def samples_needed(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Samples of each arm until DDLPO's best reward is reached: by setting, then by recipe or
    DDLPO, with one value for each seed."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for title, setting in results.where():
        for at in both_toplines(setting):
            own = results.curve(None, at)
            best = own["reward"].max(axis=1)
            needed = {"DDLPO": reach(best, own)}
            needed |= {who: reach(best, results.curve(who, at)) for who in learners(results)}
            found[f"{title}, DDLPO {topline_name(at)}"] = needed
    return found


def tuning_trends(results: Results) -> list[Trend]:
    """The paper's claims about fine-tuning, and about DDLPO before it is trained."""
    found = []
    for title, needed in samples_needed(results).items():
        for recipe in [name for name in needed if name != "DDLPO"]:
            pairs = np.stack([needed[recipe], needed["DDLPO"]], axis=1)
            tried = float(results.curve(recipe, results.where()[0][1])["samples"][-1])
            what = f"`{recipe}`, {title}: samples as a share of DDLPO's, interquartile means"
            found += [
                share_trend(claim, what, pairs, line, tried) for claim, line in CLAIMED_SHARES
            ]
    return [*found, *untrained_trends(results)]


def share_trend(claim: str, what: str, pairs: np.ndarray, line: float, tried: float) -> Trend:
    """Tests the claim that the first of each pair is at most the share `line` of the second.

    `tried` is the largest number of samples that was tried. If it is less than the claim allows, a
    goal that was not reached does not refute the claim.

    >>> import numpy as np
    >>> from prefermab.paper.verdicts import share_trend
    >>> never = np.array([[np.inf, 8000.0]] * 4)
    >>> [share_trend("c", "w", never, line, 1000).verdict for line in (0.1, 0.3)]
    ['does not hold', 'open']
    """
    found = trend(claim, what, pairs, line, below=True, of=share_of_samples)
    least = np.column_stack([np.minimum(pairs[:, 0], tried), pairs[:, 1]])
    if found.verdict == FAILS and share_of_samples(least) <= line:
        return dataclasses.replace(found, verdict=OPEN)
    return found


def untrained_trends(results: Results) -> list[Trend]:
    """Before training, DDLPO earns a little more than Random: the difference is above 0, and less
    than a tenth of what training gains over Random."""
    found = []
    for title, setting in results.where():
        for at in both_toplines(setting):
            own = results.curve(None, at)
            first, last, random = own["reward"][:, 0], own["reward"][:, -1], own["random"]
            who = f"DDLPO {topline_name(at)}, {title}"
            claim = "Untrained DDLPO earns more than Random"
            found.append(trend(claim, f"{who}: difference", first - random))
            share = (first - random) / (last - random).mean()
            what = f"{who}: difference as a share of what training gains over Random"
            claim = "Untrained DDLPO is only marginally above Random (10 %)"
            found.append(trend(claim, what, share, 0.1, below=True))
    return found


def tuning_shares(results: Results, setting: Setting) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Curves as shares of the last reward of DDLPO without features, the paper's topline."""
    without, seen = both_toplines(setting)
    own, other = results.curve(None, without), results.curve(None, seen)
    final = own["reward"][:, -1:]
    curves = {
        "DDLPO": (own["samples"], own["reward"] / final),
        "DDLPO with features": (other["samples"], other["reward"] / final),
    }
    for recipe in learners(results):
        curve = results.curve(recipe, setting)
        curves[recipe] = (curve["samples"], curve["reward"] / final)
    return curves


def learners(results: Results) -> list[str]:
    """The recipes that fine-tune from samples."""
    return [recipe for recipe in results.recipes if recipe in LEARN_BY_SAMPLES]


def topline_name(setting: Setting) -> str:
    """Whether DDLPO sees features, in words."""
    return "with features" if setting.features else "without features"


def share_of_samples(pairs: np.ndarray) -> float:
    """The first of each pair as a share of the second, by interquartile means."""
    first, second = interquartile_mean(pairs[:, 0]), interquartile_mean(pairs[:, 1])
    return first / second if second > 0 else np.inf


def reach(goals: np.ndarray, curve: dict[str, np.ndarray]) -> np.ndarray:
    """Samples after which each seed's curve first reaches its goal."""
    return np.array(
        [
            samples_to_reach(goal, curve["samples"], reward)
            for goal, reward in zip(goals, curve["reward"], strict=True)
        ]
    )
