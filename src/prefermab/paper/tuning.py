"""Fine-tuning beside DDLPO from scratch: samples needed, curves, and the claims about them."""

import dataclasses

import numpy as np

from prefermab.paper.claims import FAILS, OPEN, Trend, interquartile_mean, samples_to_reach, trend
from prefermab.paper.results import LEARN_BY_SAMPLES, Results, both_toplines
from prefermab.paper.tables import Setting

SHARES = (
    ("Fine-tuning needs at most 12.5 % of DDLPO's samples", 0.125),
    ("Training from scratch is at least 3 times dearer than fine-tuning", 1 / 3),
)
"""Claims about the samples of fine-tuning, and the share of DDLPO's that each allows."""


def samples_needed(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """Samples of each arm until DDLPO's best reward is reached: where, then who, one a seed."""
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
    """What the paper says of fine-tuning, and of DDLPO before it is trained."""
    found = []
    for title, needed in samples_needed(results).items():
        for recipe in [name for name in needed if name != "DDLPO"]:
            pairs = np.stack([needed[recipe], needed["DDLPO"]], axis=1)
            tried = float(results.curve(recipe, results.where()[0][1])["samples"][-1])
            what = f"`{recipe}`, {title}: samples as a share of DDLPO's, interquartile means"
            found += [share_trend(claim, what, pairs, line, tried) for claim, line in SHARES]
    return [*found, *untrained_trends(results)]


def share_trend(claim: str, what: str, pairs: np.ndarray, line: float, tried: float) -> Trend:
    """A claim that the first of each pair is at most so large a share of the second. Where the
    samples tried were fewer than the claim allows, not to have reached the goal does not refute it.

    >>> import numpy as np
    >>> from prefermab.paper.tuning import share_trend
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
    """Before training, DDLPO earns a little more than Random: above it, and by less than a tenth of
    what its training gains over Random."""
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
    """Ours as a share of theirs, by interquartile means."""
    ours, theirs = interquartile_mean(pairs[:, 0]), interquartile_mean(pairs[:, 1])
    return ours / theirs if theirs > 0 else np.inf


def reach(goals: np.ndarray, curve: dict[str, np.ndarray]) -> np.ndarray:
    """Samples after which each seed's curve first reaches its goal."""
    return np.array(
        [
            samples_to_reach(goal, curve["samples"], reward)
            for goal, reward in zip(goals, curve["reward"], strict=True)
        ]
    )
