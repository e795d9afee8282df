"""Tests trials, off-policy estimates and lots in made-up worlds whose truth is known.

It measures how often intervals contain the truth, whether the power of a trial is as computed, and
whether the lots of a plan have the stated probabilities. `python -m studies.evidence Power Lots`
measures only these sections of the page.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

import prefermab as pm
from prefermab import load
from prefermab.common.files import write_atomically
from prefermab.common.intervals import Interval
from prefermab.common.pages import table_as_markdown
from prefermab.errors import unknown
from prefermab.programme.evidence.balance import balanced_draw
from prefermab.programme.evidence.designs import Design, draw_layout, estimate_trial_effects
from prefermab.programme.evidence.effects import group_difference
from prefermab.programme.evidence.power import (
    TrialProgramme,
    needed,
    needed_for_pool,
    play_layouts,
    simulate_effects,
)
from prefermab.programme.evidence.protocol import assigned_layout
from prefermab.programme.evidence.simulated_trials import Pool, draw_pool
from studies.off_policy import REPEATS, SEED, armman, coverage, learned, lots, off_policy

PAGE = Path("docs/results/evidence.md")

OTHERS = 2000
"""Number of other trials from which the truth is computed."""

TRIALS = (
    ("individual", Design("individual", 10), TrialProgramme(0.1, "none"), 400, 0),
    ("individual", Design("individual", 10), TrialProgramme(0.1, "random"), 400, 0),
    ("individual, one round", Design("individual", 1), TrialProgramme(0.2, "none"), 400, 0),
    ("individual, cooldown 2", Design("individual", 10), TrialProgramme(0.1, "none", 2), 400, 0),
    ("stratified", Design("stratified", 10), TrialProgramme(0.1, "random"), 400, 0),
    ("cluster, 20", Design("cluster", 10), TrialProgramme(0.1, "none"), 400, 20),
    (
        "switchback, 40 rounds",
        Design("switchback", 40, 4, 2),
        TrialProgramme(0.1, "random"),
        200,
        0,
    ),
    ("stepped wedge, 12", Design("stepped wedge", 20, 4, 2), TrialProgramme(0.1, "none"), 360, 12),
)
"""Name, design, programme, number of people and number of clusters of each trial."""

POWER = (
    (Design("individual", 10), 0.05),
    (Design("stratified", 10), 0.05),
    (Design("cluster", 10), 0.06),
    (Design("switchback", 40, 4, 2), 0.03),
    (Design("stepped wedge", 20, 4, 2), 0.07),
)
"""Designs, and the gain per person and round that the trial has to show."""


def evidence() -> str:
    """How often intervals of trials and off-policy estimates hold, and whether lots are fair."""
    return "\n".join([FIRST, *(f"## {name}\n\n{part()}" for name, part in PARTS.items())])


FIRST = (
    "Every 90 % interval should hold the truth in 88 to 93 of 100. All settings were chosen on "
    "other seeds. What `learn` says of its own gain is in [gain.md](gain.md).\n"
)


def trials() -> str:
    """Trials of all designs."""
    pool, rows = armman(), []
    for place, (name, design, tried, people, clusters) in enumerate(TRIALS):
        rng = np.random.default_rng([SEED, place])
        others = simulate_effects(pool, design, tried, people, clusters, OTHERS, rng)
        found = simulate_effects(pool, design, tried, people, clusters, REPEATS, rng)
        for way in found[0]:
            # The plain difference has no bias, so it is the truth for the reshuffled one as well.
            usual = "difference" if "difference" in found[0] else next(iter(found[0]))
            counted = way if way == "subgroup" else usual
            truth = float(np.mean([one[counted].estimate for one in others]))
            rows.append([name, tried.control, way, *coverage([one[way] for one in found], truth)])
            print(*rows[-1], flush=True)
    rows += _pairs_and_groups(pool)
    head = ["design", "control", "estimator", "truth", "mean", "spread", "mean error", "holds"]
    return (
        f"{REPEATS:,} trials of 400 people (switchback 200, stepped wedge 360) drawn from the "
        "domain of the model `armman`, which chooses in its arm; a tenth of the people is acted on "
        "in a round (a fifth where there is one round). The truth is the mean over "
        f"{OTHERS:,} other trials: of the plain difference for `reshuffled`, `difference` and the "
        "t-test, of the estimator itself otherwise. The spread is that of estimates over trials, "
        "the mean error what the intervals take it to be.\n\n"
        + table_as_markdown(head, rows)
        + "\nA shared budget makes the mean of an arm vary less than that of independent people, "
        "so that a t-test's interval is too long. In a switchback and a stepped wedge the t-test "
        "takes person-rounds for independent and counts the rounds right after a change too: its "
        "interval is too short, and around another value. Reshuffling needs the model's index of "
        "everyone. A switchback and a stepped wedge measure less than an individual trial of the "
        "same programme: what was done before a change still works after it, and what begins "
        "needs time. They are honest about their own mean, not about the long run.\n"
    )


def _pairs_and_groups(pool: Pool) -> list[list[str]]:
    """Rows for clusters in pairs with similar indices, and for the effect in a group of people with
    high indices. The truth is the mean over the other trials, as above."""
    worth, tried, people = (pool.index * pool.start).sum(axis=1), TrialProgramme(0.1, "none"), 400
    rng, high = np.random.default_rng([SEED, 50]), worth > np.median(worth)
    clusters, persons = Design("cluster", 10), Design("individual", 10)
    pairs, groups = [], []
    for _ in range((OTHERS + REPEATS) // 500):
        who = rng.integers(0, pool.size, (500, people))
        unit = np.arange(people) % 20
        means = np.stack([worth[who[:, unit == each]].mean(axis=1) for each in range(20)], axis=1)
        stratum = np.argsort(np.argsort(means, axis=1), axis=1) // 2
        layouts = [draw_layout(clusters, unit, one, rng) for one in stratum]
        alone = np.zeros(people, int)
        drawn = [draw_layout(persons, np.arange(people), alone, rng) for _ in range(500)]
        in_pairs = play_layouts(pool, clusters, tried, who, layouts, rng)
        apart = play_layouts(pool, persons, tried, who, drawn, rng)
        for at in range(500):
            arm = in_pairs.arm(at)
            pairs.append(estimate_trial_effects(clusters, layouts[at], arm)["cluster"])
            arm = apart.arm(at)
            model, all_of = drawn[at].by_model[:, 0], np.ones(people, bool)
            groups.append(group_difference(arm, model, high[who[at]], all_of))
    rows = []
    for name, way, found in (
        ("cluster, 10 pairs", "cluster", pairs),
        ("individual, a group of half of them (total of 10 rounds)", "difference", groups),
    ):
        truth = float(np.mean([one.estimate for one in found[:OTHERS]]))
        rows.append([name, "none", way, *coverage(found[OTHERS:], truth)])
        print(*rows[-1], flush=True)
    return rows


def power() -> str:
    """Whether trials show a gain as often as promised."""
    rows, model, tried = [], load("armman"), TrialProgramme(0.1, "random")
    for place, (design, gain) in enumerate(POWER):
        found = needed(model, design, tried, gain=gain, trials=REPEATS, seed=SEED + place)
        again = Design(design.name, found.rounds, design.block, design.washout)
        rng = np.random.default_rng([SEED, 100 + place])
        own = draw_pool(model, seed=SEED + place)
        trials = simulate_effects(
            own, again, tried, found.people, found.clusters or 0, REPEATS, rng
        )
        first = [next(iter(one.values())) for one in trials]
        mean = float(np.mean([one.estimate for one in first]))
        power = np.mean([one.low + gain - mean > 0 for one in first])
        rows.append([design.name, f"{gain:g}", f"{found.people:,}", str(found.rounds),
                     str(found.clusters or ""), f"{found.power:.1%}", f"{power:.1%}"])  # fmt: skip
        print(*rows[-1], flush=True)
    head = ["design", "gain", "people", "rounds", "clusters", "promised", "1,000 new trials"]
    return (
        "What `trial power` asks for to show a gain per person and round in 80 % of trials, "
        "against as many actions at random, and how often it is shown in new ones. Clusters and "
        "pairs of blocks are whole numbers, so that the power promised is above 80 %.\n\n"
        + table_as_markdown(head, rows)
    )


def power_of_others() -> str:
    """Power and coverage under rules, with several actions, and with costs that differ."""
    costs = np.random.default_rng([SEED, 62]).choice([0.5, 1.0, 2.5], 900)
    table, rows = _table_with_rules(), []
    cases: tuple[tuple[str, str, TrialProgramme, Design, float], ...] = (
        ("half of the actions for three tenths, a fifth left out, cooldown 1", "armman",
         TrialProgramme(0.1, "random", 1, RULES, table), Design("individual", 10), 0.05),
        ("calls that cost 0.5, 1 or 2.5", "armman",
         TrialProgramme(0.1, "random", table=table.with_columns(cost_call=costs)),
         Design("individual", 10), 0.05),
        ("two actions that cost 1 and 2", "sis", TrialProgramme(0.8, "random"),
         Design("individual", 6), 0.05),
    )  # fmt: skip
    for place, (name, own, tried, design, gain) in enumerate(cases):
        pool = draw_pool(load(own), seed=SEED + place, programme=tried)
        # The pool is drawn once for all steps, because drawing takes long if there are many states.
        found = needed_for_pool(pool, design, tried, gain=gain, trials=REPEATS, seed=SEED + place)
        rng = np.random.default_rng([SEED, 200 + place])
        others = simulate_effects(pool, design, tried, found.people, 0, OTHERS, rng)
        trials = simulate_effects(pool, design, tried, found.people, 0, REPEATS, rng)
        first = [next(iter(one.values())) for one in trials]
        truth = float(np.mean([next(iter(one.values())).estimate for one in others]))
        power = np.mean([one.low + gain - truth > 0 for one in first])
        holds = np.mean([one.low <= truth <= one.high for one in first])
        reshuffled = sum("reshuffled" in one for one in trials)
        rows.append([name, f"`{own}`", f"{gain:g}", f"{found.people:,}", f"{found.power:.1%}",
                     f"{power:.1%}", f"{holds:.1%}", f"{reshuffled:,}"])  # fmt: skip
        print(*rows[-1], flush=True)
    head = ["programme", "model", "gain", "people", "promised", "1,000 new trials", "holds",
            "reshuffled"]  # fmt: skip
    return (
        "The same for individual trials against as much spent at random, over ten rounds (six with "
        "two actions). Intervals are those of the estimator that counts, the reshuffled one in as "
        "many of the new trials as the last column says; they should hold the mean of "
        f"{OTHERS:,} other trials in 88 to 93 of 100.\n\n" + table_as_markdown(head, rows)
    )


def balance_and_rules() -> str:
    """People who are balanced on their outlook, and plans under rules."""
    design, tried = Design("individual", 10), TrialProgramme(0.1, "random")
    pool, ruled = armman(), TrialProgramme(0.1, "random", rules=RULES, table=_table_with_rules())
    bound = draw_pool(load("armman"), seed=SEED, programme=ruled)
    rows = []
    for name, programme, world in (("balanced", tried, pool), ("rules", ruled, bound)):
        rng = np.random.default_rng([SEED, 70])
        others = simulate_effects(world, design, programme, 400, 0, OTHERS, rng)
        truth = float(np.mean([one["difference"].estimate for one in others]))
        found = (
            _balanced_effects(world, design, programme, rng) if world is pool
            else simulate_effects(world, design, programme, 400, 0, REPEATS, rng)
        )  # fmt: skip
        ways = list(dict.fromkeys(way for one in found for way in one if way != "subgroup"))
        for way in ways:
            each = [one[way] for one in found if way in one]
            title = way if len(each) == len(found) else f"{way} ({len(each):,} trials)"
            rows.append([name, title, *coverage(each, truth)])
            print(*rows[-1], flush=True)
    head = ["trial", "estimator", "truth", "mean", "spread", "mean error", "holds"]
    return (
        f"{REPEATS:,} individual trials of 400 people against as many actions at random, over ten "
        "rounds. Balanced: as `trial randomise --balance` draws them, on what people would earn "
        "without any action and on a column that means nothing; beside it the same trials analysed "
        "as if they had not been balanced. Rules: plans that leave out a fifth of the people and "
        "give at least half of the actions to three tenths of them; trials in which the actions "
        "still went to the highest index are reshuffled, as in an analysis.\n\n"
        + table_as_markdown(head, rows)
    )


def _balanced_effects(
    pool: Pool, design: Design, programme: TrialProgramme, rng: np.random.Generator
) -> list[dict[str, Interval]]:
    """Effects in balanced trials; also the difference that is not adjusted for the columns."""
    outlook, state, found = np.zeros(pool.size), pool.start, []
    for _ in range(design.rounds):
        state = np.einsum("ps,pst->pt", state, pool.chances[:, :, 0])
        outlook += (state * pool.rewards).sum(axis=1)
    whole = {"unit": list(range(400)), "stratum": [0] * 400}
    for seed in range(REPEATS):
        who = rng.integers(0, pool.size, 400)
        units = {**whole, "columns": np.stack([outlook[who], rng.normal(0, 1, 400)], axis=1)}
        units["draw"] = balanced_draw(design, units, SEED + seed)
        layout = assigned_layout(design, units, SEED + seed)
        played = play_layouts(pool, design, programme, who[None], [layout], rng)
        arm = played.arm(0)
        plain = estimate_trial_effects(design, dataclasses.replace(layout, columns=None), arm)
        both = {"difference, not taken off": plain["difference"]}
        found.append(estimate_trial_effects(design, layout, arm) | both)
    return found


RULES = pm.Rules(exclude_column="out", group_column="region", min_share={"north": 0.5})


def _table_with_rules(size: int = 900) -> pl.DataFrame:
    """People of the domain, a fifth of them excluded, and three tenths in the north."""
    model, rng = load("armman"), np.random.default_rng([SEED, 61])
    world: Any = model.domain
    features = np.asarray(world.features(world.draw_arms(jax.random.key(SEED + 1), size)))
    north = features[:, 0] > np.quantile(features[:, 0], 0.7)
    return pl.DataFrame(
        {
            "id": range(size),
            "state": [model.state_names[0]] * size,
            **dict(zip(world.feature_names, features.T.astype(float), strict=True)),
            "region": np.where(north, "north", "south"),
            "out": rng.random(size) < 0.2,
        }
    )


PARTS: dict[str, Callable[[], str]] = {
    "Trials": trials,
    "Balance and rules": balance_and_rules,
    "Power": power,
    "Power under rules and costs": power_of_others,
    "Off-policy": off_policy,
    "What learn prints": learned,
    "Lots": lots,
}
"""The sections of the page."""


def renew(names: Sequence[str]) -> None:
    """Measures some sections again and replaces them in the page, or adds them in their order."""
    first, *old = PAGE.read_text().split("\n## ")
    last = old[-1].rpartition("\nWritten by ")
    old[-1] = last[0]
    kept = {name: text for name, _, text in (one.partition("\n\n") for one in old)}
    for name in names:
        if name not in PARTS:
            raise unknown("section", name, PARTS)
        alone = f'Measured alone, by `python -m studies.evidence "{name}"`.'
        kept[name] = f"{PARTS[name]().rstrip()}\n\n{alone}\n"
    title = first.partition("\n")[0]
    parts = (f"## {name}\n\n{kept[name].rstrip()}\n" for name in PARTS if name in kept)
    page = "\n".join([f"{title}\n\n{FIRST}", *parts, last[1].lstrip("\n") + last[2]])
    write_atomically(PAGE, lambda draft: draft.write_text(page))


if __name__ == "__main__":
    renew(sys.argv[1:])
