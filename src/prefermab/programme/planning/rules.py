"""Rules that a plan must keep, as they are given."""

import dataclasses
from collections.abc import Mapping, Sequence

from prefermab.errors import InputError, count, number, share


@dataclasses.dataclass(frozen=True)
class Rules:
    """Who may, must and must not be acted on. Columns are those of the table of people.

    >>> import prefermab as pm
    >>> rules = pm.Rules(exclude="do_not_call", cooldown=2, group="region",
    ...                  min_share={"north": 0.3}, worker="nurse", budgets={"Ana": 5})
    >>> rules.last
    'rounds_since_action'
    """

    exclude: str | None = None
    """Column of true and false: these are not acted on."""
    exclude_ids: Sequence[str | int] = ()
    """Ids of more people who are not acted on, or one id."""
    lock: str | None = None
    """Column of true and false, or of actions by name: these are acted on first."""
    lock_ids: Sequence[str | int] = ()
    """Ids of more people who are acted on first, or one id."""
    cooldown: int = 0
    """Rounds that must pass after an action before the next."""
    last: str = "rounds_since_action"
    """Column with the rounds since the last action; empty where there was none."""
    group: str | None = None
    """Column of groups, of which the shares speak."""
    min_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """For each group, the least share of all people acted on."""
    max_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """For each group, the largest share of all people acted on."""
    worker: str | None = None
    """Column of workers or regions that have a budget of their own."""
    budgets: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What each of them may spend; one that is not named has no limit of its own."""

    def __post_init__(self) -> None:
        count(self.cooldown, "cooldown", at_least=0)
        for name in ("exclude_ids", "lock_ids"):
            given = getattr(self, name)
            ids = (given,) if isinstance(given, str | int) else tuple(given)
            object.__setattr__(self, name, ids)
        for name in ("min_share", "max_share"):
            for group, value in getattr(self, name).items():
                share(value, f"{name} of the group '{group}'")
        for worker, value in self.budgets.items():
            number(value, f"the budget of '{worker}'")
        if (self.min_share or self.max_share) and self.group is None:
            raise InputError("min_share and max_share need `group`, the column of the groups.")
        if self.budgets and self.worker is None:
            raise InputError("budgets need `worker`, the column of the workers or regions.")
        least = sum(self.min_share.values())
        if least > 1 + 1e-9:
            raise InputError(
                f"the least shares of the groups ({_told(self.min_share)}) add up to {least:.0%}, "
                "more than everyone."
            )
        for group in self.min_share.keys() & self.max_share.keys():
            if self.min_share[group] > self.max_share[group]:
                raise InputError(
                    f"the group '{group}' must get at least {self.min_share[group]:.0%} and at "
                    f"most {self.max_share[group]:.0%} of the actions: no plan can do both."
                )

    @property
    def about_groups(self) -> bool:
        """Whether some rule ties people to each other beyond the budget."""
        return bool(self.min_share or self.max_share or self.budgets)

    def named(self) -> dict[str, "Rules"]:
        """Each rule in force by its name, with the rules that are left without it."""
        without = {
            "exclude": {"exclude": None, "exclude_ids": ()},
            "lock": {"lock": None, "lock_ids": ()},
            "cooldown": {"cooldown": 0},
            "min_share": {"min_share": {}},
            "max_share": {"max_share": {}},
            "budgets": {"budgets": {}},
        }
        return {
            name: dataclasses.replace(self, **change)
            for name, change in without.items()
            if any(getattr(self, field) for field in change)
        }


def _told(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{group} {value:.0%}" for group, value in shares.items())
