"""What the paper claims, tested on what was worked out."""

from collections.abc import Sequence

import numpy as np

from prefermab.paper.results import LEARN_BY_SAMPLES, Results
from prefermab.paper.tables import Setting, Table
from prefermab.paper.trends import (
    Trend,
    interquartile_mean,
    samples_to_reach,
    slope,
    trend,
)


def trends_of(results: Results, table: Table) -> list[Trend]:
    """The claims that a table is meant to show."""
    asked = {
        "table1": unique_arms,
        "table2": shift,
        "table3": shift,
        "table4": shift,
        "table5": shaping,
        "table7": near_topline,
        "table9": any_opt_in,
        "table10": any_opt_in,
        "table12": features_of_topline,
        "table13": near_topline,
        "table14": near_topline,
        "table15": near_topline,
        "table16": unique_arms,
        "prop1": larger_samples,
    }.get(table.name)
    return [] if asked is None else asked(results, table)


def unique_arms(results: Results, table: Table) -> list[Trend]:
    """Fewer unique arms cost reward, and so do masked features."""
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


def shift(results: Results, table: Table) -> list[Trend]:
    """Under shift a model still earns more than Random, and most of what the informed do."""
    found = []
    for section in table.sections:
        settings = next(row for row in section.rows if row.policy == "prefermab").settings
        for recipe in results.recipes:
            ahead = [
                _by_seed(results, recipe, at) - results.rewards("random", at).mean()
                for at in settings
            ]
            worst = min(ahead, key=lambda gain: gain.mean())
            what = f"`{recipe}`, {section.title}: over Random, in the column where it is least"
            found.append(trend("Better than the baselines under shift", what, worst))
            least = _least_share(results, recipe, settings)
            what = f"`{recipe}`, {section.title}: share of the informed policy where it is least"
            found.append(trend("Robust: keeps 95 % of the informed policy", what, least, 0.95))
    return found


def shaping(results: Results, table: Table) -> list[Trend]:
    """StateShaping raises the reward of recipe `paper`."""
    if "paper" not in results.recipes:
        return []
    without, shaped = (row for row in table.sections[0].rows if row.policy == "prefermab")
    found = []
    for column, plain, better in zip(table.columns, without.settings, shaped.settings, strict=True):
        gain = _by_seed(results, "paper", better) - _by_seed(results, "paper", plain)
        found.append(trend("StateShaping helps", f"`paper`, r(s) = {column}: with - without", gain))
    return found


def near_topline(results: Results, table: Table) -> list[Trend]:
    """Zero-shot, a model earns at least 95 % of what DDLPO's best epoch does on its own arms."""
    found = []
    for section in table.sections:
        where = [
            at
            for row in section.rows
            if row.policy == "ddlpo"
            for at, shown in zip(row.settings, row.published, strict=True)
            if shown
        ]
        for recipe in results.recipes if where else ():
            best = results.topline(where[0])["best"].mean(axis=1)
            ratio = results.zero_shot(recipe, where[0]).mean(axis=1) / best
            what = f"`{recipe}`, {section.title}: share of DDLPO's best epoch on the same arms"
            found.append(trend("Zero-shot near the topline (95 %)", what, ratio, 0.95))
    return found


def any_opt_in(results: Results, table: Table) -> list[Trend]:
    """At opt-in rates far from the one in training a model keeps its share of the informed."""
    found = []
    for section in table.sections:
        settings = next(row for row in section.rows if row.policy == "prefermab").settings
        for recipe in results.recipes:
            least = _least_share(results, recipe, settings)
            what = f"`{recipe}`, {section.title}: share of Whittle at the rate where it is least"
            found.append(trend("Any opt-in rate (95 % of Whittle)", what, least, 0.95))
    return found


def features_of_topline(results: Results, table: Table) -> list[Trend]:
    """Features do not raise what DDLPO earns."""
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


def larger_samples(results: Results, table: Table) -> list[Trend]:
    """Proposition 1: the error falls with the number of arms, at least as fast as 1/√arms."""
    sizes, errors = generalization_errors(results, table)
    found = []
    for recipe, each in errors.items():
        falls = np.array([slope(sizes, one) for one in each])
        what = f"`{recipe}`: power of the number of arms by which the error falls (Prop. 1: -0.5)"
        found.append(trend("Better generalization with more arms", what, falls, 0.0, below=True))
    return found


def generalization_errors(
    results: Results, table: Table
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numbers of training arms, and how far below Whittle each seed of each recipe stays."""
    settings = table.sections[0].rows[0].settings
    sizes = np.array([float(at.unique_arms or 0) for at in settings])
    errors = {}
    for recipe in results.recipes:
        gaps = [results.informed(at).mean() - _by_seed(results, recipe, at) for at in settings]
        errors[recipe] = np.stack(gaps, axis=1)
    return sizes, errors


def samples_needed(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Samples of each arm until DDLPO's best reward is reached: where, then who, one a seed."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for title, setting in results.where():
        own = results.curve(None, setting)
        best = np.nanmax(own["reward"], axis=1)
        found[title] = {"DDLPO": _reach(best, own)}
        for recipe in [r for r in results.recipes if r in LEARN_BY_SAMPLES]:
            found[title][recipe] = _reach(best, results.curve(recipe, setting))
    return found


def tuning_trends(results: Results) -> list[Trend]:
    """Fine-tuning reaches DDLPO's best with at most 12.5 % of its samples."""
    found = []
    for title, needed in samples_needed(results).items():
        for recipe in [name for name in needed if name != "DDLPO"]:
            pairs = np.stack([needed[recipe], needed["DDLPO"]], axis=1)
            what = f"`{recipe}`, {title}: samples as a share of DDLPO's, interquartile means"
            claim = "Fine-tuning needs at most 12.5 % of DDLPO's samples"
            found.append(trend(claim, what, pairs, 0.125, below=True, of=_share_of_samples))
    return found


def _share_of_samples(pairs: np.ndarray) -> float:
    ours, theirs = interquartile_mean(pairs[:, 0]), interquartile_mean(pairs[:, 1])
    return ours / theirs if theirs > 0 else np.inf


def _reach(goals: np.ndarray, curve: dict[str, np.ndarray]) -> np.ndarray:
    return np.array(
        [
            samples_to_reach(goal, curve["samples"], np.nan_to_num(reward, nan=-np.inf))
            for goal, reward in zip(goals, curve["reward"], strict=True)
        ]
    )


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
