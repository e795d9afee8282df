"""The paper's claims, each as a number with a 95 % interval over training seeds.

A claim holds if the whole interval is on its side of the line, fails if all of it is on the other
side, and is open in between.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from prefermab.paper.results import LEARN_BY_SAMPLES, Results
from prefermab.paper.runner import PAPER_RECIPES
from prefermab.paper.tables import Setting, Table

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"


@dataclasses.dataclass(frozen=True)
class Trend:
    """A claim, what was measured for it, and what that says."""

    claim: str
    measured: str
    estimate: float
    low: float
    high: float
    verdict: str


def trend(
    claim: str,
    measured: str,
    values: np.ndarray,
    line: float = 0.0,
    below: bool = False,
    of: Callable[[np.ndarray], float] | None = None,
) -> Trend:
    """A claim that `values`, one a seed, lie above a line (or below it) on average: a t interval,
    or, for another statistic `of` them, a bootstrap over seeds.

    >>> import numpy as np
    >>> from prefermab.paper.claims import trend
    >>> trend("more is more", "gain", np.array([1.0, 1.2, 0.9, 1.1])).verdict
    'holds'
    """
    values = np.asarray(values, float)
    if of is None:
        estimate, (low, high) = float(values.mean()), t_interval(values)
    else:
        estimate, (low, high) = of(values), bootstrap(values, of)
    sided = (high < line, low > line) if below else (low > line, high < line)
    verdict = HOLDS if sided[0] else FAILS if sided[1] else OPEN
    if np.isnan(estimate):
        verdict = OPEN
    return Trend(claim, measured, estimate, low, high, verdict)


def t_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of independent values."""
    if values.size < 2:
        return -np.inf, np.inf
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def bootstrap(values: np.ndarray, of: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """95 % interval of a statistic of rows, by drawing rows again 2,000 times."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (2000, len(values)))
    drawn = np.array([of(values[pick]) for pick in picks])
    # Taken from among the values: one may be infinite, and then there is nothing between two.
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of the middle half.

    >>> import numpy as np
    >>> from prefermab.paper.claims import interquartile_mean
    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0]))
    1.5
    """
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def samples_to_reach(goal: float, samples: np.ndarray, rewards: np.ndarray) -> float:
    """Samples after which a curve first reaches a goal; infinite if it never does.

    >>> import numpy as np
    >>> from prefermab.paper.claims import samples_to_reach
    >>> samples_to_reach(2.0, np.array([0, 100, 200]), np.array([1.0, 2.5, 3.0]))
    100.0
    """
    reached = np.flatnonzero(rewards >= goal)
    return float(samples[reached[0]]) if reached.size else np.inf


def slope(sizes: np.ndarray, errors: np.ndarray) -> float:
    """The power of size by which errors fall: a straight line through their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(errors, 1e-6)), 1)[0])


def trends_of(results: Results, table: Table) -> list[Trend]:
    """The paper's claims that a table tests."""
    asked = {
        "table1": unique_arms,
        "table2": robust_to_shift,
        "table3": robust_to_shift,
        "table4": robust_to_shift,
        "table5": shaping_helps,
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
    """Under distribution shift a model earns more than Random and 95 % of the informed policy."""
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


def shaping_helps(results: Results, table: Table) -> list[Trend]:
    """StateShaping raises the reward of recipe `paper`, and of the paper to the letter."""
    without, shaped = (row for row in table.sections[0].rows if row.policy == "prefermab")
    found = []
    for column, plain, better in zip(table.columns, without.settings, shaped.settings, strict=True):
        for recipe in [r for r in results.recipes if r in PAPER_RECIPES]:
            gain = _by_seed(results, recipe, better) - _by_seed(results, recipe, plain)
            what = f"`{recipe}`, r(s) = {column}: with - without"
            found.append(trend("StateShaping helps", what, gain))
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
