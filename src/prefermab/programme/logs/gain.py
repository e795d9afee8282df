"""What a model gains over what was done before, measured on people it was not chosen with.

A way of choosing that was fitted to a log looks good in that log, by luck alone: it takes what
happened to go well for what helps. So people are put in a random order and cut into parts. What was
learned from the first parts is judged on the next part, then both together teach what is judged on
the part after that, and so on. Nobody is judged by what they taught, and each part's error is
independent of all before it, so the errors add up as those of independent people do. (Were parts
to teach and judge each other crosswise, as is common, errors would go together where there is no
effect, and intervals would be a third too short; see docs/decisions.md.)

A part is judged by its own transitions. The fit foretells what the rule earns; then for every
transition in the log, the difference between what came and what the fit foretold is added, weighted
by how much likelier the rule makes it than the log's own choice did. Where the fit is wrong this
puts it right, and where the log's chances are wrong the fit does: one of both has to hold.

The result is the mean of several orders. The variance of one order's estimate is known from the
people; the part of it that comes from who happened to be judged is taken off by averaging.
What was learned from some people is not quite what all of them teach: how far the gains of all that
was learned on the way lie apart, by the fit to everybody, is added.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from prefermab.programme.logs.crowd import Crowd, InShares, Never, Played, Rule, by_worth, play
from prefermab.programme.logs.fitting import fit_log
from prefermab.programme.logs.reading import Log, Transitions
from prefermab.programme.logs.seen import Seen

PARTS, FIRST = 10, 5
"""Parts that people are cut into, and how many of them only teach."""

ORDERS, TRANSITIONS = 10, 2_000_000
"""Random orders that are averaged, and about how many transitions all of them may read together."""

DRAWS = 64
RAREST = 0.01
"""Chances of the log's actions below this count as this: no transition says more than a hundred."""

MOST = 5.0
"""How many times likelier a rule may make a state than the log's choice did."""

MOST_BETWEEN = 0.9
"""Of the variance of one order's estimate, that may come from the order."""

LEVEL = 0.90
CERTAIN = 0.8
"""Chance with which a gain of the size that a log would notice is noticed."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """More reward per person in some rounds, with a 90 % interval."""

    estimate: float
    low: float
    high: float
    stderr: float

    @property
    def shown(self) -> bool:
        """Whether no gain, or a loss, is outside the interval."""
        return self.low > 0


@dataclasses.dataclass(frozen=True)
class Judged:
    """A way of choosing that was learned from a log, beside others with the same budget.

    `gains` are by name of the other: `before` (as chosen so far), `random` and `none`; `earned` is
    the reward per person by each and by the `model`. `unseen` is the share of what the model spends
    that goes where the log almost never acted, and `people` how many were judged. `hidden` is how
    many times the odds of being acted on a hidden cause, which also decides all that comes of it,
    would have to change to bring the gain over `before` to nothing.
    """

    rounds: int
    budget: float
    people: int
    gains: Mapping[str, Gain]
    earned: Mapping[str, float]
    unseen: float
    hidden: float | None

    @property
    def gain(self) -> Gain:
        """Over what was done before."""
        return self.gains["before"]

    @property
    def noticed(self) -> float:
        """The smallest gain that a log like this would mostly show."""
        spread = (self.gain.high - self.gain.low) / 2
        return spread + float(norm.ppf(CERTAIN)) * self.gain.stderr


@threadpool_limits.wrap(limits=1, user_api="blas")
def judge(
    log: Log,
    budget: float,
    rounds: int,
    seed: int = 0,
    orders: int = ORDERS,
    transitions: Transitions | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Judged:
    """What is gained by choosing as a model learned from this log would, with `budget` a person
    and round, or from other transitions of it."""
    seen = Seen.of(log, log.transitions if transitions is None else transitions)
    orders = int(np.clip(TRANSITIONS // max(len(seen.transitions), 1), 1, orders))
    people = np.unique(seen.person)
    parts = min(PARTS, len(people))
    whole = seen.crowd(fit_log(log, DRAWS, seed, seen.transitions).chances(log.profiles), budget)
    found = []
    for order in range(orders):
        rng = np.random.default_rng([seed, order])
        part = np.full(len(log.latest), -1)
        part[rng.permutation(people)] = np.arange(len(people)) % parts
        pieces = []
        for last in range(min(FIRST, parts - 1), parts):
            pieces.append(_judge_part(seen, whole, part, last, rounds, seed))
            if progress is not None:
                done = order + (last + 1 - FIRST) / (parts - FIRST)
                progress(done / orders, "judging")
        found.append(_joined(pieces))
    return _averaged(found, len(people), rounds, budget)


@dataclasses.dataclass(frozen=True, eq=False)
class Piece:
    """Judged people: `scores` by rule, one for each, and how much each counts; what each rule that
    was learned earns by the fit to everybody; what the model spends, also where the log almost
    never acted; and for each of its transitions under an action its weight and what came beyond
    what was foretold."""

    scores: Mapping[str, np.ndarray]
    weight: np.ndarray
    values: list[float]
    acted: int
    spent: float
    unseen: float
    pull: np.ndarray
    surprise: np.ndarray


def _judge_part(
    seen: Seen, whole: Crowd, part: np.ndarray, last: int, rounds: int, seed: int
) -> Piece:
    """What was learned from the parts before, on the people of one part."""
    log, moves = seen.log, seen.transitions
    fit = fit_log(log, DRAWS, seed, moves.where(part[moves.person] < last))
    chances, meaning = fit.chances(log.profiles), log.meaning
    model = by_worth(fit, log.profiles, meaning.rewards, meaning.costs, seed)
    model.action = model.action[seen.profile]
    rules: dict[str, Rule] = {
        "model": model,
        "before": InShares(seen.chance),
        "random": InShares(np.broadcast_to(_shares(moves, log.shape[1]), seen.chance.shape)),
        "none": Never(),
    }
    crowd = dataclasses.replace(whole, chances=chances[seen.profile])
    played = {name: play(crowd, rule, rounds) for name, rule in rules.items()}
    logged = play(dataclasses.replace(crowd, budget=_spent(seen)), rules["before"], rounds)
    piece = _scored(seen, played, logged, np.flatnonzero(part[seen.person] == last))
    value = float(whole.mean(play(whole, model, rounds).earned()))
    return dataclasses.replace(piece, values=[value])


def _scored(seen: Seen, played: Mapping[str, Played], logged: Played, units: np.ndarray) -> Piece:
    """Scores of the people of these units."""
    chosen = np.isin(seen.unit, units)
    moves, unit = seen.transitions.where(chosen), seen.unit[chosen]
    chance = np.maximum(seen.chance, RAREST)
    people, place = np.unique(seen.person[units], return_inverse=True)
    where = np.full(len(seen.person), -1)
    where[units] = place
    scores, acted = {}, moves.action > 0
    pulls = {}
    for name, rule in played.items():
        pull, surprise = _beyond(rule, logged, chance, moves, unit, seen.log.meaning.rewards)
        pulls[name] = (pull, surprise)
        own = np.bincount(where[unit], (pull * surprise).sum(axis=0), len(people))
        own += np.bincount(place, (seen.weight * rule.earned())[units], len(people))
        scores[name] = own
    pull, surprise = pulls["model"]
    costs = seen.log.meaning.costs
    spending = (played["model"].visits[..., None] * played["model"].choices * costs)[:, units]
    spending = spending.sum(axis=0) * seen.weight[units, None, None]
    rare = seen.chance[units] < RAREST
    total = pull.sum(axis=0)
    return Piece(
        scores,
        np.bincount(place, seen.weight[units], len(people)),
        [],
        len(np.unique(moves.person[acted])),
        float(spending.sum()),
        float(spending[rare].sum()),
        total[acted],
        ((pull * surprise).sum(axis=0) / np.maximum(total, 1e-12))[acted],
    )


def _beyond(
    rule: Played,
    logged: Played,
    chance: np.ndarray,
    moves: Transitions,
    unit: np.ndarray,
    rewards: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(round, transition): how many times likelier a rule makes a transition's state and action
    than the log's choice did, and what came of it beyond what was foretold."""
    at = (unit, moves.state)
    likelier = rule.visits / np.maximum(logged.visits, 1e-9)
    likelier = np.clip(likelier, 0, MOST)[:, *at]
    pull = likelier * rule.choices[:, *at, moves.action] / chance[*at, moves.action]
    came = rewards[moves.following] + rule.value[1:][:, unit, moves.following]
    return pull, came - rule.worth[:, *at, moves.action]


def _shares(moves: Transitions, n_actions: int) -> np.ndarray:
    return np.bincount(moves.action, minlength=n_actions) / max(len(moves), 1)


def _spent(seen: Seen) -> float:
    return float(seen.log.meaning.costs[seen.transitions.action].mean())


def _joined(pieces: list[Piece]) -> Piece:
    """All parts of an order."""
    together = lambda name: np.concatenate([getattr(piece, name) for piece in pieces])  # noqa: E731
    return Piece(
        {name: np.concatenate([p.scores[name] for p in pieces]) for name in pieces[0].scores},
        together("weight"),
        [value for piece in pieces for value in piece.values],
        sum(piece.acted for piece in pieces),
        sum(piece.spent for piece in pieces),
        sum(piece.unseen for piece in pieces),
        together("pull"),
        together("surprise"),
    )


def _averaged(found: list[Piece], people: int, rounds: int, budget: float) -> Judged:
    share = len(found[0].weight) / people
    gains = {
        name: _gain(
            [(one.scores["model"] - one.scores[name], one.weight) for one in found], found, share
        )
        for name in ("before", "random", "none")
    }
    earned = {
        name: float(np.mean([one.scores[name].sum() / one.weight.sum() for one in found]))
        for name in found[0].scores
    }
    spent, unseen = (sum(getattr(one, name) for one in found) for name in ("spent", "unseen"))
    return Judged(
        rounds,
        budget,
        len(found[0].weight),
        gains,
        earned,
        unseen / spent if spent else 0.0,
        _hidden(found[0], gains["before"].estimate),
    )


def _gain(orders: list[tuple[np.ndarray, np.ndarray]], found: list[Piece], share: float) -> Gain:
    """The mean over orders, each of which judges a `share` of all people. Of the variance of one
    order's estimate, what comes from the order is taken off; that of what was learned on the way
    is added."""
    means, variances = [], []
    for scores, weight in orders:
        mean = scores.sum() / weight.sum()
        apart, n = scores - mean * weight, len(scores)
        means.append(mean)
        variances.append((apart**2).sum() * n / max(n - 1, 1) / weight.sum() ** 2)
    people, between = float(np.mean(variances)), 1 - share
    # An order judges a share of all people drawn at random: of the variance of its estimate, as
    # much comes from who was drawn as in any sample without replacement, and more where orders
    # learn different things. What is seen between few orders is noisy: half of each.
    if len(means) > 1 and people > 0:
        between = min((between + float(np.var(means, ddof=1)) / people) / 2, MOST_BETWEEN)
    variance = people * (1 - between * (1 - 1 / len(means)))
    variance += float(np.var([value for one in found for value in one.values]))
    stderr, estimate = float(np.sqrt(variance)), float(np.mean(means))
    degrees = max(int(np.mean([one.acted for one in found])) - 1, 1)
    reach = float(student.ppf((1 + LEVEL) / 2, degrees)) * stderr
    return Gain(estimate, estimate - reach, estimate + reach, stderr)


def _hidden(piece: Piece, gain: float) -> float | None:
    """By how much a hidden cause must change the odds of being acted on to undo a gain: the least
    Γ at which weights that may be Γ times larger or smaller, put on the worst, take it all off."""
    whole = piece.weight.sum()
    if gain <= 0 or not piece.pull.sum():
        return None
    order = np.argsort(piece.surprise)
    pull, surprise = piece.pull[order], piece.surprise[order]
    mean = pull @ surprise / pull.sum()

    def lost(gamma: float) -> float:
        # The worst weights are large up to some place in the order and small beyond it.
        large, small = np.cumsum(pull) * gamma, (pull.sum() - np.cumsum(pull)) / gamma
        up, down = np.cumsum(pull * surprise) * gamma, np.cumsum((pull * surprise)[::-1])[::-1]
        down = np.append(down[1:], 0.0) / gamma
        return (mean - ((up + down) / (large + small)).min()) * pull.sum() / whole

    low, high = 1.0, 100.0
    if lost(high) < gain:
        return high
    for _ in range(30):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if lost(middle) > gain else (middle, high)
    return float(high)
