"""Off-policy evaluation: the expected reward of a target policy, from a log of another policy.

An episode is a few rounds of one person. In step t the reward is r_t. The importance weight w_t is
the product, over the steps up to t, of the probability of the logged action under the target policy
divided by its probability in the log (the propensity). Q_t and V_t predict the reward from step t
to the end of the episode: Q_t for the logged action, V_t for the target policy. Each estimate is a
mean over episodes:

- inverse propensity: per trajectory w_T·Σ r_t, per decision Σ w_t·r_t;
- self-normalised: the same, with the weights of each step divided by their mean;
- doubly robust: per decision Σ [w_t·(r_t - Q_t) + w_(t-1)·V_t], per trajectory
  V_0 + w_T·(Σ r_t - V_0).

If the propensities are correct and above 0 wherever the target policy acts, the first is unbiased,
and so is the third if its predictions do not use these episodes; else its bias vanishes as the log
grows. Self-normalised estimates have a bias of order 1/n.
(Precup, Sutton, Singh 2000; Jiang, Li 2016; Swaminathan, Joachims 2015.)
"""

import dataclasses

import numpy as np

from prefermab.common.intervals import (
    Interval,
    by_unit,
    effective_size,
    from_influence,
)
from prefermab.errors import InputError

FEWEST_EFFECTIVE_UNITS, LARGEST_WEIGHT_SHARE = 30.0, 0.1
"""Fewest effective units for an estimate (Kish's effective sample size of the weights), and the
largest share of the total weight that one unit may have."""

MOST_WEIGHT_ERRORS = 4.0
"""Standard errors by which the mean weight may differ from its expected value, 1."""


@dataclasses.dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes of the same length, all arrays (episode, step).

    `ratio` is the probability of the logged action under the target policy divided by its
    probability in the log. `q` and `v` predict the reward from that step on: `q` for the logged
    action, `v` for the target policy. `unit` (episode,) is the cluster of an episode, such as its
    person: units are independent, episodes of the same unit are not.
    """

    reward: np.ndarray
    ratio: np.ndarray
    q: np.ndarray
    v: np.ndarray
    unit: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """(episode, step): importance weights, the product of the ratios up to each step."""
        return np.cumprod(self.ratio, axis=1)


@dataclasses.dataclass(frozen=True)
class Support:
    """How well a log supports an estimate: the effective number of units, the largest share of the
    total weight that one unit has, the mean weight, and the number of units. `refusal` is the
    reason why there is no estimate; it is empty if there is one."""

    effective: float
    largest: float
    mean_weight: float
    units: int
    refusal: str


def row_episodes(
    reward: np.ndarray,
    ratio: np.ndarray,
    prediction: np.ndarray | None = None,
    expected: np.ndarray | None = None,
    unit: np.ndarray | None = None,
) -> Episodes:
    """Single decisions as episodes of one step. Missing predictions are replaced by the mean
    reward."""
    one = lambda values: np.asarray(values, float)[:, None]  # noqa: E731
    mean = np.full(len(reward), np.mean(reward))
    return Episodes(
        one(reward), one(ratio), one(mean if prediction is None else prediction),
        one(mean if expected is None else expected),
        np.arange(len(reward)) if unit is None else np.asarray(unit),
    )  # fmt: skip


def judge_support(episodes: Episodes) -> Support:
    """Checks whether the log has enough support (overlap) for an estimate of this policy.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.weights import judge_support, row_episodes
    >>> judge_support(row_episodes(np.ones(50), np.r_[np.zeros(48), 25.0, 25.0])).refusal[:40]
    'the weights count for 2 of 50 units only'
    """
    last = episodes.weights[:, -1]
    if not len(last):
        raise InputError("there is no episode of this length in the log: give fewer rounds.")
    _, place = np.unique(episodes.unit, return_inverse=True)
    each = np.bincount(place, last)
    units, total = len(each), float(each.sum())
    effective = effective_size(each) if total > 0 else 0.0
    largest = float(each.max() / total) if total > 0 else 1.0
    mean = float(last.mean())
    centred = by_unit(last - mean, episodes.unit)
    error = float(np.sqrt((centred**2).sum() / max(units - 1, 1) / units))
    refusal = ""
    if total == 0:
        refusal = "no decision of the log is one that the policy would take"
    elif effective < FEWEST_EFFECTIVE_UNITS:
        refusal = (
            f"the weights count for {effective:.0f} of {units:,} units only, fewer than "
            f"{FEWEST_EFFECTIVE_UNITS:.0f}: too few decisions of the log are like the policy's"
        )
    elif largest > LARGEST_WEIGHT_SHARE:
        refusal = f"one unit has {largest:.0%} of all weight, more than {LARGEST_WEIGHT_SHARE:.0%}"
    elif abs(mean - 1) > MOST_WEIGHT_ERRORS * error + 1e-9:
        refusal = (
            f"the weights have the mean {mean:.2f} instead of 1: the probabilities are wrong, or "
            "the policy acts where the log never did"
        )
    return Support(effective, largest, mean, units, refusal)


def estimate_values(episodes: Episodes) -> dict[tuple[str, str], tuple[float, np.ndarray]]:
    """For each method, per `decision` and per `trajectory`: the estimate and the influence function
    of each episode."""
    weights, reward = episodes.weights, episodes.reward
    last, total = weights[:, -1], reward.sum(axis=1)
    before = np.concatenate([np.ones((len(last), 1)), weights[:, :-1]], axis=1)
    robust = (weights * (reward - episodes.q) + before * episodes.v).sum(axis=1)
    start = episodes.v[:, 0]
    plain = {
        ("inverse propensity", "decision"): (weights * reward).sum(axis=1),
        ("inverse propensity", "trajectory"): last * total,
        ("doubly robust", "decision"): robust,
        ("doubly robust", "trajectory"): start + last * (total - start),
    }
    found = {name: (float(each.mean()), each - each.mean()) for name, each in plain.items()}
    means = weights.mean(axis=0)
    if (means > 0).all():
        share = weights / means
        steps = (share * reward).mean(axis=0)
        found["self-normalised", "decision"] = (
            float(steps.sum()),
            (share * (reward - steps)).sum(axis=1),
        )
        value = float((share[:, -1] * total).mean())
        found["self-normalised", "trajectory"] = value, share[:, -1] * (total - value)
    return found


def method_intervals(
    episodes: Episodes,
) -> dict[tuple[str, str], tuple[Interval, Interval]]:
    """For each method: the value of the policy, and its gain over the rewards of the log. Standard
    errors are clustered by unit."""
    done = episodes.reward.sum(axis=1)
    found = {}
    for name, (value, influence) in estimate_values(episodes).items():
        more = influence - (done - done.mean())
        found[name] = (
            from_influence(value, by_unit(influence, episodes.unit)),
            from_influence(value - float(done.mean()), by_unit(more, episodes.unit)),
        )
    return found


def logged_value(episodes: Episodes) -> Interval:
    """The mean reward of the logged episodes, with a standard error clustered by unit."""
    done = episodes.reward.sum(axis=1)
    return from_influence(float(done.mean()), by_unit(done - done.mean(), episodes.unit))
