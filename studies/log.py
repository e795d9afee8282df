"""How large a log must be: models learned from logs, beside one given the true dynamics."""

from pathlib import Path

import jax
import numpy as np

from prefermab import domains
from prefermab.arms.features import FeatureMap
from prefermab.common import plots
from prefermab.common.files import write_atomically
from prefermab.common.pages import Cell, Grid, Picture, Text, blocks_as_markdown
from prefermab.common.plots import svg_of
from prefermab.domains.base import FiniteDomain
from prefermab.evaluation.compare import evaluate
from prefermab.policies import NoAction
from prefermab.programme.learning.effects import estimate_effects
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.logs.simulated import simulate_log
from prefermab.training.pretraining import pretrain

PEOPLE, LOG_SEEDS, EVALUATION_SEED = (100, 300, 1000, 2000, 5000), (0, 1, 2), 1
SETTINGS = {"synthetic": (21, 7.0), "armman": (25, 7.0)}
PICTURE = Path("docs/results/figures/log.svg")
HEAD = [
    "setting", "people", "transitions under an action", "reward per arm", "of the truth's model",
    "lowest log", "of its gain over no action", "truth within 90 % intervals",
]  # fmt: skip


def log() -> str:
    """Models learned from logs of different size, beside a model that was given the truth."""
    rows, curves = [], {}
    for name, (n_arms, budget) in SETTINGS.items():
        seen = domains.get(name)
        given = domains.get(name, feature_map=FeatureMap("identity"))
        assert isinstance(seen, FiniteDomain)
        top = earned(given, pretrain(given, n_arms=n_arms, budget=budget), n_arms, budget)
        nothing = earned(given, NoAction(), n_arms, budget)
        curves[name] = []
        for people in PEOPLE:
            found = np.array([one_log(seen, people, seed, n_arms, budget) for seed in LOG_SEEDS])
            reward, acted, within = found.T
            curves[name].append(reward / top)
            rows.append(
                [
                    f"{name} ({n_arms}, {budget:g})", f"{people:,}", f"{acted.mean():,.0f}",
                    f"{reward.mean():.3f}", f"{reward.mean() / top:.2%}",
                    f"{reward.min() / top:.2%}",
                    f"{(reward.mean() - nothing) / (top - nothing):.2%}", f"{within.mean():.0%}",
                ]
            )  # fmt: skip
            print(*rows[-1], flush=True)
    return page(rows, {name: np.array(shares) for name, shares in curves.items()})


def one_log(
    domain: FiniteDomain, people: int, seed: int, n_arms: int, budget: float
) -> tuple[float, int, float]:
    """For one log: the true reward of the model learned from it, the number of transitions under an
    action, and the share of the population's true probabilities that are within their intervals."""
    arms = domain.draw_arms(jax.random.key(1000 + seed), people)
    rewards = domain.rewards(jax.tree.map(lambda x: x[0], arms))
    frame = simulate_log(domain, people, rounds=26, share=0.05, seed=seed, arms=arms)
    known = read_log(
        frame, passive=domain.action_names[0],
        rewards=dict(zip(domain.state_names, np.asarray(rewards).tolist(), strict=True)),
    )  # fmt: skip
    fit = fit_log(known, seed=seed)
    model = pretrain(Logged(known, fit, seed), n_arms=n_arms, budget=budget)
    truth = np.asarray(jax.vmap(domain.transitions)(arms)).mean(axis=0)
    acted = int((known.transitions.action > 0).sum())
    return earned(domain, model, n_arms, budget), acted, covered(known, fit, truth)


def earned(domain, policy, n_arms: int, budget: float) -> float:
    """Mean reward per arm in 1,000 trials, the same for all policies."""
    frame = evaluate(
        domain,
        {"it": policy},
        n_arms=n_arms,
        budget=budget,
        trials=1000,
        seed=EVALUATION_SEED,
        bound=False,
    )
    return float(frame["mean"][0])


def covered(known: Log, fit: Fit, truth: np.ndarray) -> float:
    """Share of the true probabilities, except those that are 0, within their 90 % intervals."""
    found = estimate_effects(known, fit).transitions
    low, high = (found[end].to_numpy().reshape(known.shape) for end in ("low", "high"))
    return float(((truth >= low) & (truth <= high))[truth > 0].mean())


def page(rows: list[list[str]], curves: dict[str, np.ndarray]) -> str:
    """The table and the picture."""
    figure = plots.blank(6, 3.2)
    panel = figure.subplots()
    for (name, shares), colour in zip(curves.items(), (plots.BLUE, plots.INK), strict=False):
        panel.plot(PEOPLE, shares.mean(axis=1), color=colour, marker="o", ms=4, label=name)
        panel.fill_between(PEOPLE, shares.min(axis=1), shares.max(axis=1), color=colour, alpha=0.15)
    panel.axhline(0.95, color=plots.GREY, ls="--", lw=1)
    panel.set_xscale("log")
    panel.set_xticks(PEOPLE, [f"{people:,}" for people in PEOPLE])
    panel.minorticks_off()
    panel.set_xlabel("people in the log", fontsize=9)
    panel.set_ylabel("share of the truth's model", fontsize=9)
    panel.legend(fontsize=8, frameon=False)
    plots.tidy_panel(panel)
    svg = svg_of(figure, "log")
    write_atomically(PICTURE, lambda draft: draft.write_text(svg))
    caption = (
        "Reward of a model learned from a log, as a share of one given the true dynamics: mean and "
        "range of three logs; the dashed line is 95 %."
    )
    words = (
        "Logs of 26 weeks, in which a random 5 % of people get the action in each week, with the "
        "domain's linear features. Each model is learned from its log alone (`pm.from_log`, recipe "
        "`exact`) and evaluated on the true domain: 1,000 trials, 100 % opt-in. The truth's model "
        "is trained on the domain itself, with the true dynamics as features, and meets the same "
        "arms and luck. Means of three logs. The last column asks of each log how many of the "
        "population's true transition chances lie within the 90 % intervals of the report."
    )
    grid = Grid(HEAD, [[Cell(text) for text in row] for row in rows])
    return blocks_as_markdown([Text(words), grid, Picture("log", svg, caption)])
