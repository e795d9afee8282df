"""What a plan does, in numbers and in words."""

import dataclasses
import json
from collections.abc import Mapping

from prefermab.errors import list_names
from prefermab.familiarity import sentence
from prefermab.model import Model
from prefermab.programme.tables import format_number, format_people


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a plan does, in numbers. Gains are in expected reward, None where a recipe has none."""

    people: int
    chosen: int
    by_action: Mapping[str, int]
    budget: float
    spent: float
    left: float
    price: float
    gain: float | None
    bound: float | None
    """No plan that keeps the budget and the rules gains more."""
    one_more: float | None
    """What one more unit of budget would gain."""
    opted_out: int
    excluded: int
    resting: int
    locked: int
    incomplete: int
    """People of whom some feature is unknown."""
    unknown: Mapping[str, int]
    """How many cells of each column are missing or say what the model does not know."""
    rules: Mapping[str, float | None]
    """What each rule costs: what would be gained more without it, all others kept."""
    outside_training: int = 0
    """People unlike those that the model was trained on, judged cautiously."""
    outside: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How many people's cells of each column lie outside of the training's range."""
    states_read: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Names of the states that the table gives as numbers."""
    usual_share: float | None = None
    """Budget per person in training, where the model depends on it and the plan's is far from it.
    """
    explore: float = 0.0
    """Share of what is given out that was dealt by lot; `gain` is then the mean over all lots."""
    seed: int | None = None
    """The seed of the lots."""
    explore_cost: float | None = None
    """What the lots give up on average in expected reward."""
    could_change: int = 0
    """People whom a lot could give another action than the model did."""
    rounds_left: int | None = None
    """Rounds that the programme has left, this one included; None for one that goes on."""

    def __str__(self) -> str:
        bought = (
            ", ".join(f"{number:,} {name}" for name, number in self.by_action.items()) or "nobody"
        )
        lines = [
            f"{self.chosen:,} of {format_people(self.people)} ({bought}); "
            f"{format_number(self.spent)} spent, {format_number(self.left)} left of "
            f"{format_number(self.budget)}; price {self.price:.3g}"
        ]
        if self.gain is not None and self.one_more is not None:
            lines.append(
                f"expected gain {format_number(self.gain)}, at best {format_number(self.bound)} "
                f"under the same rules; one more unit of budget would gain {self.one_more:.3g}"
            )
        if self.explore:
            lost = "?" if self.explore_cost is None else format_number(self.explore_cost)
            lines.append(
                f"{self.explore:.0%} by lot among {format_people(self.could_change)}, seed "
                f"{self.seed}: this gives up {lost} of expected gain on average"
            )
        if self.rounds_left is not None:
            lines.append(self._ending())
        apart = {
            "opted out": self.opted_out,
            "excluded": self.excluded,
            "in cooldown": self.resting,
            "locked in": self.locked,
            "with unknown features": self.incomplete,
        }
        lines.append(", ".join(f"{number:,} {what}" for what, number in apart.items()))
        nowhere = [name for name, number in self.unknown.items() if number == self.people]
        some = {name: number for name, number in self.unknown.items() if number < self.people}
        if some:
            cells = ", ".join(f"{name} of {number:,}" for name, number in some.items())
            lines.append(f"unknown: {cells}")
        if nowhere:
            lines.append(
                f"the model uses {' and '.join(nowhere)}, which is missing for everyone here: "
                "check the names of the columns"
            )
        lines += self._doubts()
        for rule, cost in self.rules.items():
            lines.append(f"the rule {rule} costs {'?' if cost is None else format_number(cost)}")
        return "\n".join(lines)

    def _ending(self) -> str:
        """What the end of the programme means for this round."""
        told = "this is the last round"
        if self.rounds_left != 1:
            told = f"{self.rounds_left} rounds left, this one included"
        if self.gain is not None and not self.chosen and self.left > 0:
            told += ": no action that may be taken would still pay before the end"
        return told

    def _doubts(self) -> list[str]:
        """What is to be checked before the list is trusted."""
        lines = []
        if self.outside_training:
            told = sentence(dict(self.outside), self.outside_training)
            lines.append(f"{told}: they are judged cautiously, by what is inside its range")
        if self.usual_share is not None:
            lines.append(
                f"the model was trained for a budget of {self.usual_share:.3g} per person, and "
                f"here it is {self.budget / self.people:.3g}: its price may be far off"
            )
        if self.states_read:
            meant = list_names(f"{number} = {name}" for number, name in self.states_read.items())
            lines.append(f"states given as numbers are read as {meant}")
        return lines

    def as_json(self) -> str:
        """The numbers as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def unusual_share(model: Model, budget: float, people: int) -> float | None:
    """Budget per person of a model's training, where its decisions depend on it and this one is
    less than half or more than double of it; else None.

    >>> import prefermab as pm
    >>> from prefermab.programme.planning.summary import unusual_share
    >>> unusual_share(pm.load("armman-paper"), 10, 1000), unusual_share(pm.load("armman"), 10, 1000)
    (0.28, None)
    """
    usual = model.budget / model.n_arms
    # Other recipes meet every price in training, so every budget.
    if model.policy.gains_are_rewards or usual / 2 <= budget / people <= usual * 2:
        return None
    return usual
