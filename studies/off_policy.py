"""How often off-policy intervals contain the truth, also those that `learn` prints, and whether the
lots of a plan have the stated probabilities."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab import load
from prefermab.common.intervals import Interval
from prefermab.common.pages import table_as_markdown
from prefermab.programme.evidence.logged import all_moves, judge_policy, learn_on_half
from prefermab.programme.evidence.simulated_trials import Pool, draw_pool
from prefermab.programme.evidence.weights import method_intervals, row_episodes
from prefermab.programme.logs.reading import Log, LogTransitions, read_log
from prefermab.programme.planning.lots import draw_lots

REPEATS, LEARNED, SEED, DRAWS = 1000, 3000, 2026, 100_000
"""Repetitions; repetitions for the result of `learn`; the seed; and draws of lots."""

STAY = np.array([[[0.7, 0.3], [0.3, 0.7]], [[0.3, 0.7], [0.2, 0.8]]])
"""Transitions (state, action, next state) of the logs. The states are bad and good; a call helps
most in bad."""

OLDER = np.array([[[0.7, 0.3], [0.6, 0.4]], [[0.3, 0.7], [0.2, 0.8]]])
"""The transitions of older people, whom a call in bad helps less."""

WORLDS = np.stack([OLDER, STAY])

CALLED = np.array([0.3, 0.1])
"""Probability of a call in each state of the logs."""


REWARDS = {"bad": 0.0, "good": 1.0}


def armman() -> Pool:
    """A pool of people for the shipped model `armman`."""
    return draw_pool(load("armman"), seed=SEED)


def off_policy() -> str:
    """Off-policy estimates from logs, and from plans with lots."""
    return _off_policy() + "\n" + _off_policy_lots(armman())


def coverage(found: Sequence[Interval], truth: float) -> list[str]:
    """Truth, mean, spread, mean error, and how often intervals hold the truth, as text."""
    estimates = np.array([one.estimate for one in found])
    held = np.mean([one.low <= truth <= one.high for one in found])
    error = float(np.mean([one.stderr for one in found]))
    return [f"{truth:.4f}", f"{estimates.mean():.4f}", f"{estimates.std():.4f}", f"{error:.4f}",
            f"{held:.1%}"]  # fmt: skip


def simulate_log(
    seed: int, people: int = 200, rounds: int = 12, differ: bool = False
) -> pl.DataFrame:
    """A log in which people are called at random, with probabilities by state. With `differ`, the
    effect of a call depends on the feature `young`."""
    rng = np.random.default_rng([SEED, seed])
    state, rows = rng.integers(0, 2, people), []
    young = np.arange(people) % 2 if differ else np.ones(people, int)
    good = WORLDS[..., 1]
    for time in range(rounds + 1):
        called = (rng.random(people) < CALLED[state]).astype(int)
        chance = np.where(called, CALLED[state], 1 - CALLED[state])
        names = np.array(["bad", "good"])[state], np.array(["none", "call"])[called]
        rows.append(pl.DataFrame({"id": np.arange(people), "time": time, "young": young,
                                  "state": names[0], "action": names[1],
                                  "probability": chance}))  # fmt: skip
        state = (rng.random(people) < good[young, state, called]).astype(int)
    return pl.concat(rows) if differ else pl.concat(rows).drop("young")


def _off_policy() -> str:
    ways = {"nobody called": (0, 0), "those in bad called": (1, 0)}
    found = {}
    for seed in range(REPEATS):
        log = read_log(simulate_log(seed), rewards=REWARDS, passive="none")
        moves = all_moves(log)
        good = np.array([log.labels.states.index(name) for name in ("bad", "good")])
        place = np.argsort(good)[moves.state]
        for name, choice in ways.items():
            target = np.eye(2)[np.array(choice)[place]]
            for rounds in (1, 2, 3):
                judged = judge_policy(log, moves, target, rounds, estimate=False)
                if judged.refusal:
                    found.setdefault((name, rounds), []).append(None)
                    continue
                starts = place[moves.round % rounds == 0]
                truth = _policy_value(choice, rounds)[starts].mean()
                rows = judged.estimates.rows(named=True)
                found.setdefault((name, rounds), []).append((truth, judged.done.estimate, rows))
    return _off_policy_table(found)


def _policy_value(choice: tuple[int, ...], rounds: int) -> np.ndarray:
    """The exact value (state,) over `rounds` rounds of a policy that chooses by state."""
    moves, value = STAY[np.arange(2), list(choice)], np.zeros(2)
    for _ in range(rounds):
        value = moves @ (np.array([0.0, 1.0]) + value)
    return value


def _off_policy_table(found: dict) -> str:
    rows = []
    for (name, rounds), all_of in found.items():
        kept = [one for one in all_of if one is not None]
        if not kept:
            continue
        truth, done = (float(np.mean([one[at] for one in kept])) for at in (0, 1))
        methods = [(row["method"], row["per"]) for row in kept[0][2]]
        for at, (method, per) in enumerate(methods):
            if rounds == 1 and per == "trajectory":
                continue
            each = [one[2][at] for one in kept]
            gained = [row["gain_low"] <= truth - done <= row["gain_high"] for row in each]
            held = np.mean([row["value_low"] <= truth <= row["value_high"] for row in each])
            mean = np.mean([row["value"] for row in each])
            rows.append([name, str(rounds), method, per, f"{truth:.4f}", f"{mean:.4f}",
                         f"{held:.1%}", f"{np.mean(gained):.1%}",
                         f"{len(all_of) - len(kept):,}"])  # fmt: skip
            print(*rows[-1], flush=True)
    head = ["policy", "rounds", "method", "per", "truth", "mean", "value holds", "gain holds",
            "refused"]  # fmt: skip
    return (
        f"{REPEATS:,} logs of 200 people and 12 rounds, in which those in the state bad are called "
        "with probability 0.3 and the others with 0.1; the value of two policies over one, two and "
        "three rounds. The truth is exact, for the states that the logs start from on average.\n\n"
        + table_as_markdown(head, rows)
    )


def learned() -> str:
    """What `learn` prints: a rule that half of the people teach, judged by the other half."""
    rows = []
    for differ in (False, True):
        found: dict[str, list[tuple[bool, bool, float, float, float]]] = {}
        for seed in range(LEARNED):
            table = simulate_log(20_000 + seed, differ=differ)
            log = read_log(table, rewards=REWARDS, passive="none")
            moves, target = learn_on_half(log, log.spent / 200, seed)
            judged = judge_policy(log, moves, target, 1, estimate=False)
            value, done = rule_value(log, moves, target, differ)
            for row in judged.estimates.iter_rows(named=True):
                if row["per"] == "decision":
                    held = row["value_low"] <= value <= row["value_high"]
                    gained = row["gain_low"] <= value - done <= row["gain_high"]
                    found.setdefault(row["method"], []).append(
                        (held, gained, value, row["gain"], value - done)
                    )
        for method, each in found.items():
            held, gained, value, gain, true = np.mean(each, axis=0)
            rows.append(["one feature" if differ else "none", method, f"{value:.4f}",
                         f"{true:.4f}", f"{gain:.4f}", f"{held:.1%}", f"{gained:.1%}",
                         f"{LEARNED - len(each):,}"])  # fmt: skip
            print(*rows[-1], flush=True)
    head = ["people differ by", "method", "value", "gain", "mean estimate", "value holds",
            "gain holds", "refused"]  # fmt: skip
    return (
        f"{LEARNED:,} logs as above, and as many with a feature by which calls help one half of "
        "the people less. As in `learn`, a random half of the people teaches a rule, which may "
        "spend what the log spent, and the other half judges it over one round; the doubly robust "
        "gain is the one in the first line. Each log has a rule of its own: its truth is exact, "
        "for the states in which such logs are on average.\n\n" + table_as_markdown(head, rows)
    )


def rule_value(
    log: Log, moves: LogTransitions, target: np.ndarray, differ: bool, rounds: int = 12
) -> tuple[float, float]:
    """The exact values in one round of a rule and of the log's random calls, averaged over the
    states in such logs."""
    place = np.array([("bad", "good").index(name) for name in log.labels.states])[moves.state]
    young = np.ones(len(place), int)
    if differ:
        given = log.profiles[moves.profile][:, 0]
        young = (given > given.mean()).astype(int)
    lots, values = np.stack([1 - CALLED, CALLED], axis=1), []
    for kind in np.unique(young):
        world, at = WORLDS[kind], np.full(2, 0.5)
        chain, often = np.einsum("sa,sat->st", lots, world), np.zeros(2)
        for _ in range(rounds):
            often, at = often + at / rounds, at @ chain
        rule = np.stack([target[(young == kind) & (place == s)].mean(axis=0) for s in (0, 1)])
        values.append([often @ (x * world[..., 1]).sum(axis=1) for x in (rule, lots)])
    value, done = np.mean(values, axis=0)
    return float(value), float(done)


def _off_policy_lots(pool: Pool, people: int = 300, budget: int = 45) -> str:
    """The value of the model's own list, estimated from one round of plans with lots."""
    rng, found, truths = np.random.default_rng([SEED, 7]), {}, []
    for seed in range(REPEATS):
        who = rng.integers(0, pool.size, people)
        state = (np.cumsum(pool.start[who], axis=1) <= rng.random((people, 1))).sum(axis=1)
        model = np.zeros(people, int)
        model[np.argsort(-pool.index[who, state])[:budget]] = 1
        lots = draw_lots(model, [np.arange(people)], 2, 0.3, seed)
        moved = pool.chances[who, state, lots.actions]
        following = (np.cumsum(moved, axis=1) <= rng.random((people, 1))).sum(axis=1)
        reward = pool.rewards[who, np.minimum(following, 2)]
        truths.append((pool.chances[who, state, model] * pool.rewards[who]).sum(axis=1).mean())
        ratio = (lots.actions == model) / lots.chances
        for (method, per), (value, _) in method_intervals(row_episodes(reward, ratio)).items():
            if per == "decision":
                found.setdefault(method, []).append(value)
    truth = float(np.mean(truths))
    rows = [[method, *coverage(each, truth)] for method, each in found.items()]
    head = ["method", "truth", "mean", "spread", "mean error", "holds"]
    return (
        f"{REPEATS:,} plans for {people} people with {budget} actions, 30 % of them dealt by lot "
        "as a plan deals them, so that people depend on each other through the pot; the value of "
        "the model's own list in the next round.\n\n" + table_as_markdown(head, rows)
    )


def lots() -> str:
    """Whether lots fall as their probabilities say."""
    rng = np.random.default_rng([SEED, 9])
    actions = rng.choice(3, 60, p=[0.8, 0.15, 0.05])
    group = np.sort(rng.integers(0, 4, 60))
    cells = [np.flatnonzero(group == each) for each in range(4)]
    rows, costs = [], np.array([0.0, 1.0, 2.5])
    for explore in (0.05, 0.1, 0.5, 1.0):
        halves = np.zeros((2, 60, 3))
        for seed in range(DRAWS):
            drawn = draw_lots(actions, cells, 3, explore, seed).actions
            halves[seed % 2, np.arange(60), drawn] += 2 / DRAWS
        chance = draw_lots(actions, cells, 3, explore, 0).probabilities
        seen, inside = halves.mean(axis=0), (chance > 0) & (chance < 1)
        error = np.sqrt(chance * (1 - chance) / DRAWS)[inside]
        differences = (halves - chance)[:, inside]
        same = np.allclose(seen[~inside], chance[~inside], atol=1e-9)
        rows.append([f"{explore:.0%}", f"{np.abs(seen - chance).max():.5f}",
                     f"{(np.abs(seen - chance)[inside] / error).max():.2f}",
                     f"{np.corrcoef(*differences).min():+.2f}", "yes" if same else "no",
                     f"{costs[actions].sum():g}", f"{(chance * costs).sum():.6f}"])  # fmt: skip
        print(*rows[-1], flush=True)
    head = ["by lot", "largest difference", "in standard errors", "halves correlate",
            "certain ones certain", "spent", "expected by the probabilities"]  # fmt: skip
    return (
        "60 people in 4 cells with three actions that cost 0, 1 and 2.5: the probabilities that "
        f"the plan prints against {DRAWS:,} draws. Of about 150 probabilities that are not 0 or 1 "
        "the largest difference should be some 2.5 to 3.5 standard errors; a wrong formula would "
        "show in both halves of the draws alike, so that their differences would correlate. Every "
        "draw spends the same.\n\n" + table_as_markdown(head, rows)
    )
