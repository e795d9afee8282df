"""What a policy would have earned in the rounds of a log, from the log's own chance decisions.

The log must say with which probability each action was taken: those of a programme that plans with
lots do, and a column of any other log may. Where it does not, probabilities can be estimated from
states and features on request; then everything rests on nobody having chosen by something else.
"""

import dataclasses
from typing import Any

import numpy as np

from prefermab.errors import InputError, count, number
from prefermab.model import Model
from prefermab.programme.evidence.results import OffPolicy, estimates_table, overlap_table
from prefermab.programme.evidence.weights import Episodes, judge_support, value_done
from prefermab.programme.logs.allocation import balance_table, hidden_cause_odds
from prefermab.programme.logs.fitting import fit_log
from prefermab.programme.logs.population import Units, estimate_propensity, learned_rule
from prefermab.programme.logs.reading import Log, LogTransitions, read_log

MOST_UNKNOWN = 0.2
"""Share of decisions without a probability above which nothing is estimated."""

OFF_POLICY_DRAWS = 64
"""Posterior draws of the fit to half of the people."""


def off_policy(
    log: Any,
    policy: Any,
    *,
    rounds: int = 1,
    budget: float | None = None,
    estimate_probabilities: bool = False,
    **columns: Any,
) -> OffPolicy:
    """What a policy would have earned in the rounds of a log, in which chance decided.

    A model that was learned from the same log looks better than it is: learn it from other people
    or earlier rounds. `prefermab.learn` does so by itself.

    Args:
        log: A polars or pandas frame or a file, as `prefermab.learn` takes it, with the
            `probability` of each action.
        policy: A model, which acts in each round on the people of the log within the budget;
            `"none"`, nobody; or `"random"`, everybody alike.
        rounds: Length of an episode: what is counted is the reward of so many rounds.
        budget: What a model may spend in a round; what the log spent in that round if left out.
        estimate_probabilities: Estimate the probabilities from states and features, where the log
            has none.
        **columns: Rewards, costs and names of columns, as in `prefermab.learn`.

    Returns:
        An `OffPolicy`: `estimates`, `support` and its `refusal`, `gain`, `report(path)`.

    Example::

        found = pm.evidence.off_policy("log.csv", model, rewards={"good": 1, "bad": 0})
        print(found)
        found.report("evidence")
    """
    checked = log if isinstance(log, Log) else read_log(log, **columns)
    if checked.histories is not None:
        raise InputError(
            "the log: states are not always seen, and rounds whose states were seen are no fair "
            "sample of all: off-policy estimates need a log with every state."
        )
    moves = all_moves(checked)
    target = policy_probabilities(checked, moves, policy, budget)
    return judge_policy(checked, moves, target, rounds, estimate_probabilities)


def all_moves(log: Log) -> LogTransitions:
    """All transitions, also of people who were not available, by person and round."""
    fields = [field.name for field in dataclasses.fields(LogTransitions)]
    both = [np.concatenate([getattr(log.transitions, f), getattr(log.idle, f)]) for f in fields]
    moves = LogTransitions(*both)
    order = np.lexsort((moves.round, moves.person))
    return LogTransitions(*(getattr(moves, f)[order] for f in fields))


def policy_probabilities(
    log: Log, moves: LogTransitions, policy: Any, budget: float | None
) -> np.ndarray:
    """(transition, action): with which probability a policy takes each action."""
    each = np.eye(log.shape[1])
    if isinstance(policy, str) and policy == "none":
        return each[np.zeros(len(moves), int)]
    if isinstance(policy, str) and policy == "random":
        available = ~is_idle(log, moves)
        found = each[np.zeros(len(moves), int)]
        for round in np.unique(moves.round):
            here = (moves.round == round) & available
            found[here] = each[moves.action[here]].mean(axis=0)
        return found
    if not isinstance(policy, Model):
        raise InputError("policy must be a model, 'none' or 'random'.")
    return each[_model_actions(log, moves, policy, budget)]


def judge_policy(
    log: Log, moves: LogTransitions, target: np.ndarray, rounds: int, estimate: bool
) -> OffPolicy:
    """Off-policy estimates for a policy with these probabilities (transition, action)."""
    rounds, idle = count(rounds, "rounds"), is_idle(log, moves)
    known, estimated = _known_probabilities(log, moves, idle, estimate)
    agreed = target[np.arange(len(moves)), moves.action]
    ratio = np.where(idle, 1.0, agreed / known)
    q, v = _predictions(log, moves, target, rounds)
    episodes = _episodes(log, moves, ratio, q, v, rounds)
    support = judge_support(episodes)
    there = ~np.isnan(known) & ~idle
    result = OffPolicy(
        estimates_table(None if support.refusal else episodes), value_done(episodes), support,
        rounds, estimated, overlap_table(known[there], agreed[there]), balance_table(log), None,
        int(np.isnan(known).sum()),
    )  # fmt: skip
    if not estimated or result.gain is None:
        return result
    used = there & (ratio > 0)
    residual = log.labels.rewards[moves.following] - q[:, -1]
    gain = result.gain.estimate / rounds
    odds = hidden_cause_odds(ratio[used], residual[used], float(there.sum()), gain)
    return dataclasses.replace(result, hidden_cause=odds)


def judge_learned_rule(log: Log, budget: float, rounds: int = 1, seed: int = 0) -> OffPolicy | None:
    """Off-policy estimates for the rule that half of the people teach, on the other half, with
    `budget` for a person and round; None where the log has no probabilities."""
    if np.isnan(log.transitions.probability).all():
        return None
    return judge_policy(log, *teach_rule(log, budget, seed), rounds, estimate=False)


def teach_rule(log: Log, budget: float, seed: int = 0) -> tuple[LogTransitions, np.ndarray]:
    """A rule that a random half of the people teaches: the transitions of the other half, and with
    which probability it takes each action there."""
    moves, rng = all_moves(log), np.random.default_rng(seed)
    teaches = rng.permutation(len(log.latest)) % 2 == 0
    fit = fit_log(
        log, OFF_POLICY_DRAWS, seed, log.transitions.where(teaches[log.transitions.person])
    )
    units, labels = Units.from_transitions(log, moves), log.labels
    rule = learned_rule(fit, log.profiles, labels.rewards, labels.costs, seed)
    rule.action = rule.action[units.profile]
    choices = rule.choices(units.population(fit.chances(log.profiles), budget), units.start)
    target, held = choices[units.unit, moves.state], ~teaches[moves.person]
    return moves.where(held), target[held]


def is_idle(log: Log, moves: LogTransitions) -> np.ndarray:
    """(transition,): whether the person was not available."""
    key = lambda m: m.person * (2 + int(moves.round.max(initial=0))) + m.round  # noqa: E731
    return np.isin(key(moves), key(log.idle))


def _model_actions(
    log: Log, moves: LogTransitions, model: Model, budget: float | None
) -> np.ndarray:
    """What a model does in each round of the log."""
    labels = log.labels
    for what, own, other in (
        ("states", labels.states, model.state_names),
        ("actions", labels.actions, model.action_names),
    ):
        if set(own) != set(other):
            raise InputError(
                f"{log.where}: its {what} are {', '.join(own)}, but those of the model are "
                f"{', '.join(other)}."
            )
    missing = [name for name in model.feature_names if name not in log.feature_names]
    if missing:
        raise InputError(f"{log.where}: the model's feature '{missing[0]}' is not in the log.")
    state = np.array([model.state_names.index(name) for name in labels.states])[moves.state]
    back = np.array([labels.actions.index(name) for name in model.action_names])
    place = [log.feature_names.index(name) for name in model.feature_names]
    features, idle = log.profiles[moves.profile][:, place], is_idle(log, moves)
    actions = np.zeros(len(moves), int)
    for round in np.unique(moves.round):
        here = np.flatnonzero(moves.round == round)
        spent = float(labels.costs[moves.action[here]].sum())
        limit = spent if budget is None else number(budget, "budget")
        chosen = model.act(
            state[here], features[here], limit, opt_in=~idle[here], costs=labels.costs[back]
        )
        actions[here] = back[chosen]
    return actions


def _known_probabilities(
    log: Log, moves: LogTransitions, idle: np.ndarray, estimate: bool
) -> tuple[np.ndarray, bool]:
    """The probability of each action of the log, 1 for people who were not available, and whether
    it was estimated."""
    unknown = np.isnan(moves.probability) & ~idle
    if estimate:
        fitted = estimate_propensity(log, log.transitions)
        return np.where(idle, 1.0, fitted[moves.profile, moves.state, moves.action]), True
    if unknown.all():
        raise InputError(
            f"{log.where}: it does not say with which probabilities its actions were taken; name "
            "the column with probability=..., plan with lots (explore=0.1) from now on, or ask for "
            "estimated ones (estimate_probabilities=True), which are right only if nothing outside "
            "of the log decided."
        )
    if unknown.mean() > MOST_UNKNOWN:
        raise InputError(
            f"{log.where}: {unknown.mean():.0%} of the decisions have no probability, more than "
            f"{MOST_UNKNOWN:.0%}: what is left would not stand for all."
        )
    return np.where(idle, 1.0, moves.probability), False


def _predictions(
    log: Log, moves: LogTransitions, target: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """(transition, rounds to go): predicted rewards of the action that was taken and of what the
    policy would do, from how often states followed each other. They need not be right."""
    n_states, n_actions, _ = log.shape
    seen = np.zeros((n_states, n_actions, n_states))
    np.add.at(seen, (moves.state, moves.action, moves.following), 1.0)
    seen += seen.sum(axis=1, keepdims=True) / seen.sum(axis=(1, 2), keepdims=True).clip(1)
    moved = seen / seen.sum(axis=2, keepdims=True).clip(1e-12)
    choice = np.zeros((n_states, n_actions))
    np.add.at(choice, moves.state, target)
    choice /= choice.sum(axis=1, keepdims=True).clip(1e-12)
    value, q, v = np.zeros(n_states), [], []
    for _ in range(rounds):
        worth = moved @ (log.labels.rewards + value)
        value = (choice * worth).sum(axis=1)
        q.append(worth[moves.state, moves.action])
        v.append((target * worth[moves.state]).sum(axis=1))
    return np.stack(q[::-1], axis=1), np.stack(v[::-1], axis=1)


def _episodes(
    log: Log, moves: LogTransitions, ratio: np.ndarray, q: np.ndarray, v: np.ndarray, rounds: int
) -> Episodes:
    """Rounds of a person that follow each other, cut into episodes; the rest is left out."""
    new = np.diff(moves.person, prepend=-1) != 0
    begins = new | (np.diff(moves.round, prepend=-2) != 1)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(moves)), 0))
    place = np.arange(len(moves)) - first
    start = np.flatnonzero(place % rounds == 0)
    start = start[start + rounds <= len(moves)]
    rows = start[:, None] + np.arange(rounds)
    whole = (first[rows] == first[rows[:, :1]]).all(axis=1) & ~np.isnan(ratio[rows]).any(axis=1)
    rows, steps = rows[whole], np.arange(rounds)
    reward = log.labels.rewards[moves.following[rows]]
    return Episodes(reward, ratio[rows], q[rows, steps], v[rows, steps], moves.person[rows[:, 0]])
