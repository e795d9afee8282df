"""Lots: a share of a plan's actions is dealt at random, with known probabilities.

People who can replace each other form a cell: they may be acted on, are not locked in, and have the
same costs and labels (such as group and worker). In a cell of N people a pot is drawn at random, of
e·N people for the share e. The actions that the model's plan gives to the people in the pot, the
passive action included, are shuffled among them. So each cell keeps its actions, and the plan costs
what the model's plan costs and keeps the same rules.

The probabilities are exact. If the pot has l people, and the model gives a person the action m, and
the action a to k people of the cell, then this person gets the action a with the probability

    (1 - l/N + 1/N)·[a = m] + (l - 1)/N · (k - [a = m])/(N - 1),

because a person in the pot keeps their own action with probability 1/l and otherwise gets that of
anybody else in the cell. If e·N is not a whole number, the size of the pot is drawn from the two
whole numbers next to it (from 0 and 2 if e·N is below 2), so that everybody is in a pot with
probability e.

Random numbers are raw bits of PCG64, whose stream NumPy guarantees: a seed gives the same lots in
every version.
"""

import dataclasses

import numpy as np

from prefermab.errors import InputError, count, share
from prefermab.programme.planning.rules.limits import Limits

SEED_LIMIT = 2**63


@dataclasses.dataclass(frozen=True, eq=False)
class DealtLots:
    """The result of lots: everyone's action, the probabilities (person, action), and who could get
    another action than the model gives them (`dealt`)."""

    actions: np.ndarray
    probabilities: np.ndarray
    dealt: np.ndarray

    @property
    def chances(self) -> np.ndarray:
        """The probability of the action that each person got."""
        return self.probabilities[np.arange(len(self.actions)), self.actions]


def check_lots(explore: float, seed: int | None) -> tuple[float, int | None]:
    """Checks the share and the seed of lots, and returns them.

    >>> from prefermab.programme.planning.lots import check_lots
    >>> check_lots(0.1, 3)
    (0.1, 3)
    """
    dealt = share(explore, "explore")
    known = None if seed is None else count(seed, "seed", at_least=0)
    if known is not None and known >= SEED_LIMIT:
        raise InputError(f"seed must be below 2**63, not {known}.")
    return dealt, known


def find_cells(costs: np.ndarray, limits: Limits, locked: np.ndarray) -> list[np.ndarray]:
    """The rows of each cell, in the order of the table; only cells of two or more people."""
    rows = np.flatnonzero(limits.may & (locked == 0))
    labels = [shared.label[rows] for shared in limits.shared]
    cell_keys = np.column_stack([costs[rows], *labels])
    _, cell = np.unique(cell_keys, axis=0, return_inverse=True)
    order = np.argsort(cell.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(cell.ravel()[order])) + 1
    return [each for each in np.split(rows[order], cuts) if len(each) > 1]


def draw_lots(
    actions: np.ndarray, cells: list[np.ndarray], n_actions: int, explore: float, seed: int
) -> DealtLots:
    """Deals a share of the actions again within each cell.

    >>> import numpy as np
    >>> from prefermab.programme.planning.lots import draw_lots
    >>> model = np.array([1, 1, 0, 0, 0])
    >>> lots = draw_lots(model, [np.arange(5)], 2, explore=1.0, seed=3)
    >>> int(lots.actions.sum()), lots.probabilities[:, 1].round(2).tolist()
    (2, [0.4, 0.4, 0.4, 0.4, 0.4])
    """
    size, bits = len(actions), np.random.PCG64(seed)
    order, dealing = bits.random_raw(size), bits.random_raw(size)
    sizes = bits.random_raw(max(len(cells), 1))
    found, dealt = actions.copy(), np.zeros(size, bool)
    probabilities = np.eye(n_actions)[actions]
    for cell, raw in zip(cells, sizes, strict=False):
        chances = pot_sizes(len(cell), explore)
        planned = np.eye(n_actions)[actions[cell]]
        probabilities[cell] = sum(p * _given_pot(planned, pot) for pot, p in chances)
        dealt[cell] = (probabilities[cell] < planned).any(axis=1)
        (small, chance), (large, _) = chances
        pot_size = small if int(raw) / 2**64 < chance else large
        pot = cell[np.argsort(order[cell], kind="stable")[:pot_size]]
        found[pot] = actions[pot[np.argsort(dealing[pot], kind="stable")]]
    return DealtLots(found, probabilities, dealt)


def pot_sizes(people: int, explore: float) -> list[tuple[int, float]]:
    """The two possible sizes of a pot and their probabilities, so that everybody is in it with
    probability `explore`.

    >>> from prefermab.programme.planning.lots import pot_sizes
    >>> pot_sizes(25, 0.1), pot_sizes(5, 0.1)
    ([(2, 0.5), (3, 0.5)], [(0, 0.75), (2, 0.25)])
    """
    mean = explore * people
    if mean < 2:
        return [(0, 1 - mean / 2), (2, mean / 2)]
    small = int(mean)
    return [(small, 1 - (mean - small)), (min(small + 1, people), mean - small)]


def _given_pot(planned: np.ndarray, pot: int) -> np.ndarray:
    """Probabilities (person, action) for a pot of this size; `planned` is 1 at the model's."""
    people = len(planned)
    if pot < 2:
        return planned
    others = (planned.sum(axis=0) - planned) / (people - 1)
    return (1 - (pot - 1) / people) * planned + (pot - 1) / people * others
