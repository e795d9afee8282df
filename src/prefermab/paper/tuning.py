"""Fine-tuning beside DDLPO from scratch: samples needed, curves, and the claims about them."""

import numpy as np

from prefermab.paper.claims import Trend, interquartile_mean, samples_to_reach, trend
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
            what = f"`{recipe}`, {title}: samples as a share of DDLPO's, interquartile means"
            for claim, line in SHARES:
                found.append(trend(claim, what, pairs, line, below=True, of=share_of_samples))
    return [*found, *untrained_trends(results)]


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
