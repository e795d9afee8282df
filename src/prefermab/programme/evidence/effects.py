"""Treatment effects in a trial whose arms share a budget, with standard errors for that design.

In the arm of a model people compete for a budget: who is acted on depends on everybody else. People
are not independent, and the standard error of a t-test is wrong. To first order the budget acts
through a price p: an action on one person is taken from a person at the margin, who would have
gained p per unit of cost. So the influence function of a person with the reward Y and the spending
S on the arm's mean is Y - p·(S - mean S), and with it people are independent. p is estimated from
people near the cut of each round, the lowest index that was acted on: the reward from that round
on, people just above the cut less people just below it, divided by the same difference in spending.

`difference` is the difference between the means of both arms.

`reshuffled` (Mate et al. 2023) removes variance from people whom the assignment did not affect. A
person of the control arm whose index was above the cut of the model's arm exactly in the rounds in
which they were acted on would have had the same actions, and so the same outcome, in that arm. Such
people can be exchanged between the arms with people who had the same sequence of actions. The mean
over all exchanges has a closed form: each of them has the mean outcome of their sequence of
actions, in both arms.

`subgroup` (Boehmer et al. 2024) compares the people on whom the model acted in the first round with
the people of the control arm on whom it would have acted: the same share, those with the highest
index. It estimates another quantity, the mean effect on the people chosen first, in the next round
only, because the actions of round 1 change who can be chosen later. The standard error includes
that the cut is estimated.
"""

import dataclasses

import numpy as np

from prefermab.common.intervals import LEVEL, Interval, from_influence

NEAR = 0.5
"""People on each side of a cut who count as at the margin, as a share of the people above it."""

FEWEST_NEAR = 10
"""Fewest people on each side of a cut who count as at the margin."""

FOLLOWED = 0.95
"""Least share of actions that must follow the index; below it, `reshuffled` and `subgroup` are not
used."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrialArm:
    """People of an arm: their rewards, whether they were acted on, the model's index, and the cost
    of their actions (1 each if left out). All arrays are (person, round)."""

    reward: np.ndarray
    acted: np.ndarray
    index: np.ndarray
    spent: np.ndarray | None = None

    @property
    def cost(self) -> np.ndarray:
        """(person, round): the cost of the action."""
        return self.acted.astype(float) if self.spent is None else self.spent

    @property
    def total(self) -> np.ndarray:
        """(person,): the sum of rewards over all rounds."""
        return self.reward.sum(axis=1)

    def where(self, chosen: np.ndarray) -> "TrialArm":
        """The people for whom `chosen` is true, or the people at these positions."""
        spent = None if self.spent is None else self.spent[chosen]
        return TrialArm(self.reward[chosen], self.acted[chosen], self.index[chosen], spent)


def marginal_price(arm: TrialArm, by_index: bool) -> float:
    """The gain per unit of cost of people at the margin. With `by_index`, only people near the cut
    of each round are compared; without it, where actions are random, all people are."""
    ahead, spent = (np.cumsum(x[:, ::-1], axis=1)[:, ::-1] for x in (arm.reward, arm.cost))
    gain = more = weight = 0.0
    for now in range(arm.reward.shape[1]):
        acted = arm.acted[:, now]
        yes, no = np.flatnonzero(acted), np.flatnonzero(~acted)
        if by_index:
            near = max(int(NEAR * len(yes)), FEWEST_NEAR)
            yes = yes[np.argsort(arm.index[yes, now], kind="stable")[:near]]
            no = no[np.argsort(-arm.index[no, now], kind="stable")[:near]]
        if not (len(yes) and len(no)):
            continue
        share = len(yes) * len(no) / (len(yes) + len(no))
        gain += share * (ahead[yes, now].mean() - ahead[no, now].mean())
        more += share * (spent[yes, now].mean() - spent[no, now].mean())
        weight += share * (arm.cost[yes, now].mean() - arm.cost[no, now].mean())
    if weight <= 0:
        return 0.0
    # `more` is the spending in this round and later; it counts as at least a tenth of `weight`.
    return float(gain / max(more, 0.1 * weight))


def arm_influence(arm: TrialArm, outcome: np.ndarray, by_index: bool) -> np.ndarray:
    """(person,): the influence of each person on the mean of these outcomes in the arm."""
    spent = arm.cost.sum(axis=1)
    return outcome - marginal_price(arm, by_index) * (spent - spent.mean())


@dataclasses.dataclass(frozen=True, eq=False)
class Randomisation:
    """How people of both arms were assigned: their strata (person,), the balanced columns
    (person, column), and whether they are in the model's arm (person,)."""

    stratum: np.ndarray
    columns: np.ndarray
    model: np.ndarray


def difference(
    model: TrialArm,
    control: TrialArm,
    level: float = LEVEL,
    randomisation: Randomisation | None = None,
) -> Interval:
    """The difference in mean reward per person, with a standard error for a shared budget.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.effects import TrialArm, difference
    >>> rng = np.random.default_rng(0)
    >>> nobody, index = np.zeros((50, 1), bool), rng.random((50, 1))
    >>> arms = [TrialArm(rng.random((50, 1)) + up, nobody, index) for up in (1.0, 0.0)]
    >>> found = difference(*arms)
    >>> found.low < 1 < found.high
    True
    """
    return _contrast(
        model.total.mean() - control.total.mean(),
        arm_influence(model, model.total, by_index=True),
        arm_influence(control, control.total, by_index=False), level, randomisation,
    )  # fmt: skip


def plain_difference(
    model: TrialArm,
    control: TrialArm,
    level: float = LEVEL,
    randomisation: Randomisation | None = None,
) -> Interval:
    """The same difference with the interval of a t-test, as if people were independent. It is
    printed for comparison only."""
    del randomisation
    return _contrast(model.total.mean() - control.total.mean(), model.total, control.total, level)


def reshuffled(
    model: TrialArm,
    control: TrialArm,
    level: float = LEVEL,
    randomisation: Randomisation | None = None,
) -> Interval:
    """The difference in means after averaging over all exchanges that change nobody's actions (Mate
    et al. 2023)."""
    code = _action_codes(model, control)
    n_model, n_control = len(model.reward), len(control.reward)
    own, other = code[:n_model], code[n_model:]
    fits = _same_in_the_other_arm(model, control)
    size = int(code.max()) + 1
    in_model, in_control = (
        np.bincount(own, minlength=size),
        np.bincount(other[fits], minlength=size),
    )
    # Only classes with people of both arms can be exchanged.
    both = (in_model > 0) & (in_control > 0)
    pooled = np.bincount(own, model.total, size)
    pooled += np.bincount(other[fits], control.total[fits], size)
    mean = pooled / np.maximum(in_model + in_control, 1)
    tilt = (in_model / n_model - in_control / n_control) / np.maximum(in_model + in_control, 1)
    parts = []
    for arm, which, swaps, people, sign in (
        (model, own, both[own], n_model, 1.0),
        (control, other, both[other] & fits, n_control, -1.0),
    ):
        apart = arm.total - mean[which]
        outcome = np.where(swaps, mean[which], arm.total)
        spread = outcome + np.where(swaps, sign * tilt[which] * people * apart, 0.0)
        parts.append((outcome, spread))
    estimate = float(parts[0][0].mean() - parts[1][0].mean())
    return _contrast(
        estimate, arm_influence(model, parts[0][1], by_index=True),
        arm_influence(control, parts[1][1], by_index=False), level, randomisation,
    )  # fmt: skip


def subgroup(model: TrialArm, control: TrialArm, level: float = LEVEL) -> Interval:
    """The mean effect in the next round on the people whom the model chose in the first round
    (Boehmer et al. 2024)."""
    chosen = model.acted[:, 0]
    share = float(chosen.mean())
    count = round(share * len(control.reward))
    if not 0 < count < len(control.reward) or chosen.all():
        return Interval(float("nan"), float("-inf"), float("inf"), float("inf"))
    would = np.zeros(len(control.reward), bool)
    would[np.argsort(-control.index[:, 0], kind="stable")[:count]] = True
    means, influences = [], []
    for arm, picked in ((model, chosen), (control, would)):
        total, at_cut = arm.reward[:, 0], _at_cut(arm, picked)
        mean = float(total[picked].mean())
        # Influence on the mean above an estimated cut, with m the mean at the cut:
        # (Y - m)·1[above]/share.
        means.append(mean)
        influences.append(np.where(picked, total - at_cut, 0.0) / picked.mean())
    return _contrast(means[0] - means[1], influences[0], influences[1], level)


def follows_index(model: TrialArm) -> float:
    """The share of the model's actions that went to the people with the highest index of the round.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.effects import TrialArm, follows_index
    >>> index = np.array([[3.0], [2.0], [1.0]])
    >>> follows_index(TrialArm(index, np.array([[True], [False], [True]]), index))
    0.5
    """
    order = np.argsort(np.argsort(-model.index, axis=0, kind="stable"), axis=0)
    highest = order < model.acted.sum(axis=0)
    # People with an equal index count as the same.
    least = np.where(highest, model.index, np.inf).min(axis=0)
    right = model.acted & (highest | (model.index == least))
    return float(right.sum() / max(model.acted.sum(), 1))


def group_difference(
    people: TrialArm,
    model: np.ndarray,
    inside: np.ndarray,
    here: np.ndarray,
    unit: np.ndarray | None = None,
    level: float = LEVEL,
) -> Interval:
    """The difference between the arms among the people `inside` a group, of all people `here`. The
    price of the budget is estimated from the whole arm. With `unit`, the standard error is
    clustered by unit."""
    influences = []
    for arm in (model, ~model):
        rows = np.flatnonzero(arm & here)
        values = arm_influence(people.where(rows), people.where(rows).total, arm is model)
        influences.append((rows, values))
    means, parts = [], []
    for rows, values in influences:
        chosen = inside[rows]
        means.append(float(people.total[rows[chosen]].mean()))
        apart = values[chosen] - values[chosen].mean()
        if unit is not None:
            _, place = np.unique(unit[rows[chosen]], return_inverse=True)
            added = np.bincount(place, people.total[rows[chosen]] - means[-1])
            apart = added * len(added) / chosen.sum()
        parts.append(apart)
    total = len(parts[0]) + len(parts[1])
    both = np.concatenate([parts[0] * total / len(parts[0]), -parts[1] * total / len(parts[1])])
    return from_influence(means[0] - means[1], both, level, lost=2, normal=unit is not None)


def _at_cut(arm: TrialArm, picked: np.ndarray) -> float:
    """The mean reward of round 1 of the picked people with the lowest index."""
    rows = np.flatnonzero(picked)
    near = max(int(NEAR * len(rows)), min(FEWEST_NEAR, len(rows)))
    low = rows[np.argsort(arm.index[rows, 0], kind="stable")[:near]]
    return float(arm.reward[low, 0].mean())


def _action_codes(*arms: TrialArm) -> np.ndarray:
    """(person,): a number for each sequence of actions; equal sequences have equal numbers."""
    together = np.concatenate([arm.acted for arm in arms])
    _, code = np.unique(together, axis=0, return_inverse=True)
    return code.ravel()


def _same_in_the_other_arm(model: TrialArm, control: TrialArm) -> np.ndarray:
    """(person of control,): whether they would have had the same actions in the model's arm: in
    each round their index is above its cut if and only if they were acted on. The cut is halfway
    between the lowest index that was acted on and the highest below it that was not."""
    lowest = np.where(model.acted, model.index, np.inf).min(axis=0)
    highest = np.where(~model.acted & (model.index < lowest), model.index, -np.inf).max(axis=0)
    # Where everybody with an index above 0 was acted on, the cut is 0.
    cut = np.where(highest > 0, (lowest + highest) / 2, np.where(np.isfinite(lowest), 0.0, np.inf))
    return ((control.index > cut) == control.acted).all(axis=1)


def _contrast(
    estimate: float,
    model: np.ndarray,
    control: np.ndarray,
    level: float,
    randomisation: Randomisation | None = None,
) -> Interval:
    """The interval of a difference of two means with these influences. With strata, the variance is
    that within strata. With balanced columns, each arm is adjusted by its own linear regression on
    the centred columns (Lin 2013), which is valid for rerandomised assignments too."""
    total, lost, parts, slopes = len(model) + len(control), 0, [], []
    if randomisation is None:
        drawn = np.arange(total) < len(model)
        randomisation = Randomisation(np.zeros(total, int), np.zeros((total, 0)), drawn)
    columns = randomisation.columns - randomisation.columns.mean(axis=0)
    for values, sign, here in (
        (model, 1.0, randomisation.model),
        (control, -1.0, ~randomisation.model),
    ):
        place = np.unique(randomisation.stratum[here], return_inverse=True)[1]
        means = np.bincount(place, values) / np.bincount(place)
        left, own = values - means[place], columns[here]
        slope = np.linalg.lstsq(own - own.mean(axis=0), left, rcond=None)[0]
        left = left - (own - own.mean(axis=0)) @ slope
        estimate = estimate - sign * float(own.mean(axis=0) @ slope)
        lost += len(means) + columns.shape[1]
        slopes.append(slope)
        parts.append(sign * left * total / len(values))
    both = np.concatenate([columns[randomisation.model], columns[~randomisation.model]])
    influence = np.concatenate(parts) + both @ (slopes[0] - slopes[1])
    return from_influence(float(estimate), influence, level, lost=lost)
