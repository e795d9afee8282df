"""How often a gain that `learn` claims is true, on made-up logs whose truth is known.

There are many logs, and each takes seconds. Results are stored in studies/data/gain.jsonl, so the
same command continues after an interruption.
"""

import dataclasses
import json
import os
import textwrap
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.common import plots
from prefermab.common.files import write_atomically
from prefermab.common.pages import Cell, Grid, Picture, Text, blocks_as_markdown
from prefermab.common.plots import svg_of
from prefermab.programme.learning.gain import estimate_gain
from prefermab.programme.learning.scores import GAIN_DRAWS
from prefermab.programme.learning.verdict import decide, default_rounds, shuffle_actions
from prefermab.programme.logs.allocation import check_allocation
from prefermab.programme.logs.fitting import fit_log
from prefermab.programme.logs.log_warnings import log_warnings
from prefermab.programme.logs.population import (
    Population,
    RandomRule,
    Units,
    evaluate_rule,
    learned_rule,
)
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.logs.simulated import example_tables

LOGS, WITHOUT_EFFECT, SHUFFLED, FIRST_SEED = 200, 300, 20, 20_000
"""Number of logs: of a scenario, of a scenario without anything to gain (where the interval should
not be too wide either), and of a shape whose actions are shuffled; then the first seed."""

DATA = Path("studies/data/gain.jsonl")

PEOPLE, WEEKS, CALLED, BEFORE = 200, 20, 0.1, 8
"""People and weeks of a log, the share of people called in a week, and the weeks simulated before
the log, so that it starts in a steady state."""

ROUNDS = 9
"""Number of rounds over which gains are summed."""

PICTURE = Path("docs/results/figures/gain.svg")
REWARDS = {"engaged": 1, "drifting": 0.5, "silent": 0}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """How a log is simulated.

    `lift` is the effect of a call and `apart` the difference between people beyond their features,
    both in log-odds. `by_state` is the probability of a call in each state. `hidden` is how much a
    hidden trait of people makes calls likelier (in log-odds) and changes their state. With `bent`,
    a call helps only at middle ages, which a linear function of the features cannot represent.
    """

    name: str
    lift: float = 1.03
    apart: float = 0.7
    by_state: tuple[float, float, float] = (CALLED, CALLED, CALLED)
    hidden: float = 0.0
    bent: bool = False


SCENARIOS = (
    Scenario("called at random, real effect"),
    Scenario("called at random, no effect", lift=0),
    Scenario("the same, people alike given their features", lift=0, apart=0),
    Scenario("chosen by the state, real effect", by_state=(0.03, 0.12, 0.22)),
    Scenario("hidden: reachable people called more, no effect", lift=0, hidden=0.8),
    Scenario("hidden: sicker people called more, real effect", hidden=-0.8),
    Scenario("called at random, an effect that the fit cannot follow", bent=True),
)


def simulate_scenario(scenario: Scenario, seed: int) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """A log, the true probabilities of transitions (person, state, action, next state), and the
    true probabilities of actions (person, state, action)."""
    number = SCENARIOS.index(scenario) if scenario in SCENARIOS else len(SCENARIOS)
    rng = np.random.default_rng([number, seed])
    age, own = rng.uniform(17, 43, PEOPLE), rng.random(PEOPLE) < 0.6
    north = rng.random(PEOPLE) < 0.3
    trait, other, hidden = rng.normal(size=(3, PEOPLE))
    trait = scenario.apart * trait * (0.5 if scenario.hidden else 1) + scenario.hidden * hidden
    base = np.array([1.6, -1.2, -2.6]) + (trait - 0.5 * north)[:, None]
    lift = np.where(own, 1.9, 0.5) + (30 - age) / 30
    if scenario.bent:
        lift = np.where(np.abs(age - 30) < 5, 2.5, 0.0)
    lift += 0.5 * scenario.apart * other
    chances = np.stack([_moves(base), _moves(base + scenario.lift * lift[:, None])], axis=2)
    rate = np.tile(scenario.by_state, (PEOPLE, 1))
    if scenario.hidden:
        rate *= (1 / (1 + np.exp(2.6 - 1.2 * hidden)))[:, None]
        rate *= CALLED / rate.mean()
    called = np.stack([1 - rate, rate], axis=2)
    state, rows, who = rng.integers(0, 3, PEOPLE), [], np.arange(PEOPLE)
    known = {"age": age, "phone": np.where(own, "own", "shared"),
             "region": np.where(north, "north", "south")}  # fmt: skip
    for week in range(-BEFORE, WEEKS):
        action = (rng.random(PEOPLE) < rate[who, state]).astype(int)
        names = {
            "state": np.array(list(REWARDS))[state],
            "action": np.array(["none", "call"])[action],
        }
        rows += [pl.DataFrame({"id": 1000 + who, "time": week, **names, **known})] * (week >= 0)
        reached = np.cumsum(chances[who, state, action], axis=1)
        state = (reached < rng.random((PEOPLE, 1))).sum(axis=1)
    return pl.concat(rows), chances, called


def _moves(base: np.ndarray) -> np.ndarray:
    """Probabilities (person, state, next state): one state better with these log-odds, otherwise
    one state worse or the same state."""
    better = 1 / (1 + np.exp(-base))
    places = np.eye(3)
    up, down = places[[0, 0, 1]], places[[1, 2, 2]]
    return better[..., None] * up + (1 - better[..., None]) * (0.45 * down + 0.55 * places)


@dataclasses.dataclass(frozen=True)
class LogOutcome:
    """The result of `learn` for one log, and the truth: the gain of the rule learned from the whole
    log."""

    truth: float
    estimate: float
    low: float
    high: float
    naive: float
    """The gain that the same fit predicts for its own rule."""
    verdict: str

    @property
    def held(self) -> bool:
        """Whether the truth is within the interval."""
        return self.low <= self.truth <= self.high


def try_log(which: int, seed: int) -> LogOutcome:
    """The outcome for one log of a scenario."""
    frame, chances, called = simulate_scenario(SCENARIOS[which], seed)
    log = read_log(frame, passive="none", rewards=REWARDS)
    units = Units.from_transitions(log, log.transitions)
    budget = log.spent / log.found.present
    fit, labels = fit_log(log, GAIN_DRAWS, seed), log.labels
    rule = learned_rule(fit, log.profiles, labels.rewards, labels.costs, seed + 1)
    rule.action = rule.action[units.profile]
    gains = []
    for moves, before in (
        (chances[units.person], called[units.person]),
        (fit.chances(log.profiles)[units.profile], units.propensity),
    ):
        people = Population(moves, units.start, units.weight, labels.rewards, labels.costs, budget)
        earned = [evaluate_rule(people, way, ROUNDS).earned() for way in (rule, RandomRule(before))]
        gains.append(float(people.mean(earned[0] - earned[1])))
    gain = estimate_gain(log, budget, ROUNDS, seed).gain
    warned = [*log_warnings(log), *check_allocation(log, fit).warnings("week")]
    verdict = decide(gain, warned)
    return LogOutcome(gains[0], gain.estimate, gain.low, gain.high, gains[1], verdict)


def shuffled_log(name: str, seed: int) -> str:
    """The verdict for a log whose actions were shuffled."""
    log = SHAPES[name](seed)
    mixed = dataclasses.replace(log, transitions=shuffle_actions(log.transitions, seed))
    fit = fit_log(mixed, GAIN_DRAWS, seed)
    gain = estimate_gain(mixed, log.spent / log.found.present, default_rounds(log), seed).gain
    return decide(gain, [*log_warnings(mixed), *check_allocation(mixed, fit).warnings("week")])


def clinic(seed: int) -> Log:
    """The log of `prefermab example`."""
    return read_log(example_tables(seed=seed)[1], time="week", passive="none", rewards=REWARDS)


def walks(seed: int) -> Log:
    """A log like that of a trial of messages that suggest a walk: 37 people, five moments a day for
    six weeks. At moments when a message can be sent, one is sent with probability 0.6."""
    rng = np.random.default_rng(seed)
    people, moments = 37, 210
    active, weather = rng.normal(size=people), rng.random((moments, people)) < 0.3
    state, rows = rng.integers(0, 2, people), []
    for moment in range(moments):
        free = rng.random(people) < 0.8
        sent = free & (rng.random(people) < 0.6)
        rows.append(
            pl.DataFrame(
                {
                    "id": np.arange(people),
                    "time": moment,
                    "state": np.array(["still", "moving"])[state],
                    "action": np.where(sent, "message", "none"),
                    "available": free,
                    "activity": active.round(2),
                    "rain": weather[moment].astype(int),
                }
            )
        )
        odds = -0.6 + 0.8 * state + 0.6 * active - 0.5 * weather[moment] + 0.15 * sent
        state = (rng.random(people) < 1 / (1 + np.exp(-odds))).astype(int)
    return read_log(pl.concat(rows), passive="none", rewards={"still": 0, "moving": 1})


SHAPES = {"the tutorial's clinic": clinic, "messages to walk, 37 people": walks}


def gain(workers: int | None = None) -> str:
    """How often a gain that `learn` claims is true"""
    logs = [
        (at, FIRST_SEED + number)
        for at, one in enumerate(SCENARIOS)
        for number in range(LOGS if one.lift or one.hidden else WITHOUT_EFFECT)
    ]
    mixed = [(name, seed) for name in SHAPES for seed in range(SHUFFLED)]
    known = {tuple(key) for key, _ in read_data()}
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with (
        ProcessPoolExecutor(workers or os.cpu_count(), get_context("spawn")) as pool,
        DATA.open("a") as file,
    ):
        jobs = {pool.submit(measured, *key): key for key in (*logs, *mixed) if key not in known}
        try:
            for number, done in enumerate(as_completed(jobs), 1):
                file.write(json.dumps([jobs[done], done.result()]) + "\n")
                file.flush()
                print(f"{number} of {len(jobs)} logs", end="\r", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return page()


def measured(which: int | str, seed: int) -> Any:
    """The outcome for a log of a scenario, or the verdict for a shuffled log of a shape."""
    if isinstance(which, str):
        return shuffled_log(which, seed)
    found = dataclasses.asdict(try_log(which, seed))
    return {key: round(own, 6) if isinstance(own, float) else own for key, own in found.items()}


def read_data() -> list[tuple[list[int | str], Any]]:
    """The measurements so far: (scenario or shape, seed), and the outcome or the verdict."""
    return [json.loads(line) for line in DATA.read_text().splitlines()] if DATA.exists() else []


def table_row(scenario: Scenario, found: Sequence[LogOutcome]) -> list[str]:
    """A row of the table."""
    share = lambda values: f"{np.mean(values):.1%}".replace("%", " %")  # noqa: E731
    mean = lambda name: f"{np.mean([getattr(one, name) for one in found]):.2f}"  # noqa: E731
    return [
        scenario.name, f"{len(found)}", mean("truth"), mean("estimate"), mean("naive"),
        share([one.held for one in found]), share([one.low > 0 for one in found]),
        *(share([one.verdict == said for one in found])
          for said in ("shown", "not shown", "cannot tell")),
    ]  # fmt: skip


HEAD = [
    "how people were called", "logs", "true gain", "estimate", "in-sample estimate",
    "90 % interval holds the truth", "interval above 0", "shown", "not shown", "cannot tell",
]  # fmt: skip


def page() -> str:
    """The tables and the picture of the measurements so far."""
    data = sorted(read_data(), key=lambda line: line[0][1])
    found = [
        [LogOutcome(**own) for (which, _), own in data if which == at]
        for at in range(len(SCENARIOS))
    ]
    verdicts = {name: [own for (which, _), own in data if which == name] for name in SHAPES}
    rows = [table_row(scenario, each) for scenario, each in zip(SCENARIOS, found, strict=True)]
    verdict_names = ("shown", "not shown", "cannot tell")
    mixed = [
        [name, f"{len(said)}", *(f"{said.count(each)}" for each in verdict_names)]
        for name, said in verdicts.items()
    ]
    svg = picture(found)
    write_atomically(PICTURE, lambda draft: draft.write_text(svg))
    words = (
        f"Logs of {PEOPLE} people and {WEEKS} weeks in which about a tenth are called, made up so "
        "that the truth is known: the gain of the rule that the whole log teaches over the way "
        "people were really called, computed from everybody's true chances, over "
        f"{ROUNDS} weeks. The estimate, its interval and the verdict are those of `learn`; the "
        "placebo was left out to save time. `in-sample estimate` is what the same fit predicts for "
        "its own rule, which is what a report would claim that judges in the data it chose in. "
        "People differ beyond their features by 0.7 in log-odds in how they do, and by half of "
        "that in what a call does, but for the third row. In the rows with "
        "hidden causes a trait that is in no column makes calls likelier and moves the state. In "
        "the last row a call helps at the ages from 25 to 35 only. Settings were chosen on other "
        "logs."
    )
    shuffle = (
        "Logs whose actions were shuffled among the people in the same state and round, so that "
        "nothing can be gained: the log of `prefermab example` (400 people, 26 weeks), and a "
        "made-up log in the shape of a trial of messages on a phone (37 people, 210 moments, not "
        "everybody available)."
    )
    caption = (
        "True gain (crosses, mean) and estimates of single logs with their 90 % intervals, the "
        "first 40 logs of each row; blue where the interval is above 0."
    )
    cells = lambda rows: [[Cell(text) for text in row] for row in rows]  # noqa: E731
    blocks = [
        Text(words), Grid(HEAD, cells(rows)), Picture("gain", svg, caption),
        Text(shuffle),
        Grid(["log", "logs", "shown", "not shown", "cannot tell"], cells(mixed)),
    ]  # fmt: skip
    return blocks_as_markdown(blocks)


def picture(found: Sequence[Sequence[LogOutcome]]) -> str:
    """Estimates and intervals beside the truth."""
    figure = plots.blank(9, 5.2)
    panels = figure.subplots(2, 4, sharex=True, sharey=True).ravel()
    panels[-1].set_axis_off()
    panels[3].tick_params(labelbottom=True)
    for panel, scenario, each in zip(panels, SCENARIOS, found, strict=False):
        for place, one in enumerate(sorted(each[:40], key=lambda one: one.estimate)):
            colour = plots.BLUE if one.low > 0 else plots.GREY
            panel.plot([one.low, one.high], [place, place], color=colour, lw=1)
            panel.plot(one.estimate, place, ".", color=colour, ms=4)
        truth = float(np.mean([one.truth for one in each]))
        panel.axvline(0, color=plots.GREY, lw=0.8, ls="--")
        panel.plot(truth, -3, "x", color=plots.INK, ms=7)
        panel.set_title(textwrap.fill(scenario.name, 30), fontsize=8, color=plots.INK)
        panel.set_yticks([])
        plots.tidy_panel(panel)
    figure.supxlabel("gain per person", fontsize=9)
    return svg_of(figure, "gain")
