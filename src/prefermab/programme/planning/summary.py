"""What a plan does, in numbers."""

import dataclasses
import json
from collections.abc import Mapping

from prefermab.programme.wording import people, plain


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

    def __str__(self) -> str:
        told = (
            ", ".join(f"{number:,} {name}" for name, number in self.by_action.items()) or "nobody"
        )
        lines = [
            f"{self.chosen:,} of {people(self.people)} ({told}); {plain(self.spent)} spent, "
            f"{plain(self.left)} left of {plain(self.budget)}; price {self.price:.3g}"
        ]
        if self.gain is not None and self.one_more is not None:
            lines.append(
                f"expected gain {plain(self.gain)}, at best {plain(self.bound)} under the same "
                f"rules; one more unit of budget would gain {self.one_more:.3g}"
            )
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
                f"the model uses {' and '.join(nowhere)}, unknown of everyone here: is the column "
                "there, and spelt so?"
            )
        for rule, cost in self.rules.items():
            lines.append(f"the rule {rule} costs {'?' if cost is None else plain(cost)}")
        return "\n".join(lines)

    def as_json(self) -> str:
        """The numbers as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)
