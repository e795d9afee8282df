"""Off-policy evaluation of a policy on the rounds of a log.

The log must contain the probability with which each action was taken (its propensity). Logs of a
programme that plans with `explore` have it; other logs may have a column for it. On request,
missing probabilities are estimated from states and features. The estimate is then only valid
without unmeasured confounding: nothing outside of these columns influenced who was acted on.
"""

import dataclasses
from typing import Any

import numpy as np

from prefermab.errors import InputError, amount, count
from prefermab.models.model import Model
from prefermab.programme.evidence.results import OffPolicy, estimates_table, overlap_table
from prefermab.programme.evidence.weights import Episodes, judge_support, logged_value
from prefermab.programme.logs.allocation import balance_table, hidden_cause_odds
from prefermab.programme.logs.fitting import fit_log
from prefermab.programme.logs.population import Units, estimate_propensity, learned_rule
from prefermab.programme.logs.reading import Log, LogTransitions, read_log

MOST_UNKNOWN = 0.2
"""Largest share of decisions without a probability; above it there is no estimate."""

OFF_POLICY_DRAWS = 64
"""Posterior draws of the fit to the training half of the people."""


def off_policy(
    log: Any,
    policy: Any,
    *,
    rounds: int = 1,
    budget: float | None = None,
    estimate_probabilities: bool = False,
    **columns: Any,
) -> OffPolicy:
    """Estimates the reward of a policy in the rounds of a log whose actions were partly random.

    Inverse propensity, self-normalised and doubly robust estimates, with standard errors clustered
    by person. A model that was learned from the same log looks better than it is: use a model of
    other people or earlier rounds, or `prefermab.learn`, which splits the people by itself.

    Args:
        log: A polars or pandas frame or a file, as `prefermab.learn` takes it, with the
            `probability` of each action.
        policy: A model, which decides in each round about the people of the log within the budget;
            `"none"`, which acts on nobody; or `"random"`, which gives everybody the same
            probabilities, the shares of the actions in that round of the log.
        rounds: Length of an episode: the reward is the sum over this many rounds.
        budget: What a model may spend in a round; what the log spent in that round if left out.
        estimate_probabilities: Replace the probabilities by estimates from states and features,
            for a log that has none.
        **columns: Rewards, costs and names of columns, as in `prefermab.learn`.

    Returns:
        An `OffPolicy`: `estimates`, `support` and its `refusal`, `gain`, `report(path)`.

    Example::

        found = pm.evidence.off_policy("log.csv", model, rewards={"good": 1, "bad": 0})
        print(found)
        found.report("evidence")
    """
    read = log if isinstance(log, Log) else read_log(log, **columns)
    if read.histories is not None:
        raise InputError(
            "the log: states are not always seen, and the rounds whose states were seen are not a "
            "random sample of all rounds: off-policy estimates need a log with every state."
        )
    moves = all_moves(read)
    target = policy_probabilities(read, moves, policy, budget)
    return judge_policy(read, moves, target, rounds, estimate_probabilities)


def all_moves(log: Log) -> LogTransitions:
    """All transitions, sorted by person and round, also those of people who were not available."""
    fields = [field.name for field in dataclasses.fields(LogTransitions)]
    parts = log.transitions, log.unavailable
    both = [np.concatenate([getattr(part, f) for part in parts]) for f in fields]
    moves = LogTransitions(*both)
    order = np.lexsort((moves.round, moves.person))
    return LogTransitions(*(getattr(moves, f)[order] for f in fields))


def policy_probabilities(
    log: Log, moves: LogTransitions, policy: Any, budget: float | None
) -> np.ndarray:
    """(transition, action): the probability with which a policy takes each action. A model is
    deterministic given the round: its probabilities are 0 or 1."""
    each = np.eye(log.shape[1])
    if isinstance(policy, str) and policy == "none":
        return each[np.zeros(len(moves), int)]
    if isinstance(policy, str) and policy == "random":
        available = ~is_unavailable(log, moves)
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
    """Off-policy estimates for a policy with these probabilities (transition, action). The ratio of
    people who were not available is 1: nobody could act on them under either policy."""
    rounds, unavailable = count(rounds, "rounds"), is_unavailable(log, moves)
    known, estimated = _known_probabilities(log, moves, unavailable, estimate)
    agreed = target[np.arange(len(moves)), moves.action]
    ratio = np.where(unavailable, 1.0, agreed / known)
    q, v = _predictions(log, moves, target, rounds)
    episodes = _episodes(log, moves, ratio, q, v, rounds)
    support = judge_support(episodes)
    usable = ~np.isnan(known) & ~unavailable
    result = OffPolicy(
        estimates_table(None if support.refusal else episodes), logged_value(episodes), support,
        rounds, estimated, overlap_table(known[usable], agreed[usable]), balance_table(log), None,
        int(np.isnan(known).sum()),
    )  # fmt: skip
    if not estimated or result.gain is None:
        return result
    used = usable & (ratio > 0)
    residual = log.labels.rewards[moves.following] - q[:, -1]
    gain = result.gain.estimate / rounds
    odds = hidden_cause_odds(ratio[used], residual[used], float(usable.sum()), gain)
    return dataclasses.replace(result, hidden_cause=odds)


def judge_learned_rule(log: Log, budget: float, rounds: int = 1, seed: int = 0) -> OffPolicy | None:
    """Off-policy estimates with sample splitting: a rule is learned from a random half of the
    people and evaluated on the other half, with `budget` per person and round. None where the log
    has no probabilities."""
    if np.isnan(log.transitions.probability).all():
        return None
    return judge_policy(log, *learn_on_half(log, budget, seed), rounds, estimate=False)


def learn_on_half(log: Log, budget: float, seed: int = 0) -> tuple[LogTransitions, np.ndarray]:
    """Learns a rule from a random half of the people. Returns the transitions of the other half,
    and the probability (transition, action) with which the rule takes each action there."""
    moves, rng = all_moves(log), np.random.default_rng(seed)
    training = rng.permutation(len(log.latest)) % 2 == 0
    fit = fit_log(
        log, OFF_POLICY_DRAWS, seed, log.transitions.where(training[log.transitions.person])
    )
    units, labels = Units.from_transitions(log, moves), log.labels
    rule = learned_rule(fit, log.profiles, labels.rewards, labels.costs, seed)
    rule.action = rule.action[units.profile]
    choices = rule.choices(units.population(fit.chances(log.profiles), budget), units.start)
    target, held_out = choices[units.unit, moves.state], ~training[moves.person]
    return moves.where(held_out), target[held_out]


def is_unavailable(log: Log, moves: LogTransitions) -> np.ndarray:
    """(transition,): whether the person was not available."""
    key = lambda m: m.person * (2 + int(moves.round.max(initial=0))) + m.round  # noqa: E731
    return np.isin(key(moves), key(log.unavailable))


def _model_actions(
    log: Log, moves: LogTransitions, model: Model, budget: float | None
) -> np.ndarray:
    """(transition,): the action that the model takes in each round of the log."""
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
    features, unavailable = log.profiles[moves.profile][:, place], is_unavailable(log, moves)
    actions = np.zeros(len(moves), int)
    for round in np.unique(moves.round):
        here = np.flatnonzero(moves.round == round)
        spent = float(labels.costs[moves.action[here]].sum())
        limit = spent if budget is None else amount(budget, "budget")
        chosen = model.act(
            state[here], features[here], limit, opt_in=~unavailable[here], costs=labels.costs[back]
        )
        actions[here] = back[chosen]
    return actions


def _known_probabilities(
    log: Log, moves: LogTransitions, unavailable: np.ndarray, estimate: bool
) -> tuple[np.ndarray, bool]:
    """(transition,): the probability of each logged action (1 for people who were not available),
    and whether it was estimated."""
    unknown = np.isnan(moves.probability) & ~unavailable
    if estimate:
        fitted = estimate_propensity(log, log.transitions)
        return np.where(unavailable, 1.0, fitted[moves.profile, moves.state, moves.action]), True
    if unknown.all():
        raise InputError(
            f"{log.where}: there is no column with the probabilities of the actions; name it with "
            "probability=..., plan with explore=0.1 from now on, or give "
            "estimate_probabilities=True, which is valid only if nothing outside of the log "
            "influenced who was acted on."
        )
    if unknown.mean() > MOST_UNKNOWN:
        raise InputError(
            f"{log.where}: {unknown.mean():.0%} of the decisions have no probability, more than "
            f"{MOST_UNKNOWN:.0%}: the rest may not be representative."
        )
    return np.where(unavailable, 1.0, moves.probability), False


def _predictions(
    log: Log, moves: LogTransitions, target: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """(transition, step of the episode): the predicted reward up to the end of the episode, of the
    logged action and of the policy. Predicted by backward induction with the shares of next states
    by state and action. They are not cross-fitted, and they need not be correct: the doubly robust
    estimate corrects them."""
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
    """Consecutive rounds of a person, cut into episodes of `rounds` rounds. Shorter remainders and
    episodes with an unknown probability are left out."""
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
