"""Slow, plain versions of what the package does fast, to compare with."""

from fractions import Fraction

import numpy as np
import scipy.sparse
from scipy.optimize import linprog


def exact(amount):
    """An amount as it is printed, whole numbers as they are, without any rounding."""
    return Fraction(int(amount)) if amount == int(amount) < 2**31 else Fraction(str(amount))


def greedy_one_by_one(scores, costs, budget, opt_in):
    """Pairs by descending score (ties: arm, then action), each taken if it still fits."""
    n_arms, n_actions = scores.shape
    pairs = [(-scores[i, a], i, a) for i in range(n_arms) for a in range(1, n_actions) if opt_in[i]]
    actions, left = np.zeros(n_arms, int), exact(budget)
    for minus_score, i, a in sorted(pairs):
        if minus_score < np.inf and actions[i] == 0 and exact(costs[i, a]) <= left:
            actions[i] = a
            left -= exact(costs[i, a])
    return actions


def best_knapsack(gains, costs, budget):
    """The most gain that a whole-numbered budget buys, one action an arm."""
    best = np.zeros(budget + 1)
    for gain, cost in zip(gains, costs, strict=True):
        options = [
            np.concatenate([np.full(c, -np.inf), best[: budget + 1 - c] + g])
            for g, c in zip(gain, cost, strict=True)
            if c <= budget
        ]
        best = np.max(options, axis=0)
    return best.max()


def lp_bound(transitions, rewards, costs, budget, start, opt_in):
    """The relaxation as a linear program over x[arm, round, state, action], solved by HiGHS.

    An arm that comes in starts in `start`; what it is worth ends when it goes out.
    """
    n_arms, n_states, n_actions, _ = transitions.shape
    n_rounds = opt_in.shape[0]
    shape = (n_arms, n_rounds, n_states, n_actions)
    number = np.arange(np.prod(shape)).reshape(shape)
    expected = np.einsum("isat,it->isa", transitions, rewards)
    objective = -np.broadcast_to(expected[:, None], shape) * opt_in.T[:, :, None, None]
    flow = scipy.sparse.lil_matrix((n_arms * n_rounds * n_states, number.size))
    inflow = np.zeros((n_arms, n_rounds, n_states))
    for i in range(n_arms):
        for t in range(n_rounds):
            stayed = t > 0 and opt_in[t, i] and opt_in[t - 1, i]
            if opt_in[t, i] and not stayed:
                inflow[i, t, start[i]] = 1.0
            for s in range(n_states):
                row = (i * n_rounds + t) * n_states + s
                flow[row, number[i, t, s]] = 1.0
                if stayed:
                    flow[row, number[i, t - 1].ravel()] = -transitions[i, :, :, s].ravel()
    spending = scipy.sparse.lil_matrix((n_rounds, number.size))
    for t in range(n_rounds):
        spending[t, number[:, t].ravel()] = np.broadcast_to(
            costs[:, None, :], (n_arms, n_states, n_actions)
        ).ravel()
    solved = linprog(
        objective.ravel(),
        A_ub=spending.tocsr(),
        b_ub=np.full(n_rounds, budget),
        A_eq=flow.tocsr(),
        b_eq=inflow.ravel(),
        method="highs",
    )
    return -solved.fun, -solved.ineqlin.marginals


def lp_discounted(transitions, rewards, costs, budget, start, discount):
    """The discounted relaxation as a linear program over x[arm, state, action], solved by HiGHS:
    its value and the price of the budget. R is the reward of the present state."""
    _, n_states, n_actions, _ = transitions.shape
    size = n_states * n_actions
    leaves = np.kron(np.eye(n_states), np.ones(n_actions))
    flows = [
        leaves - discount * arm.reshape(size, n_states).T for arm in np.asarray(transitions, float)
    ]
    inflow = np.eye(n_states)[np.asarray(start)].ravel()
    spending = np.tile(np.asarray(costs, float)[:, None], (1, n_states, 1)).reshape(1, -1)
    solved = linprog(
        -np.repeat(np.asarray(rewards, float).ravel(), n_actions),
        A_ub=spending,
        b_ub=[budget / (1 - discount)],
        A_eq=scipy.sparse.block_diag(flows).tocsr(),
        b_eq=inflow,
        method="highs",
    )
    return -solved.fun, -solved.ineqlin.marginals[0]
