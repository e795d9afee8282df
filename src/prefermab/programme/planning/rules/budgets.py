"""The rule WorkerBudgets: each worker, or region, has a budget."""

from collections.abc import Mapping

import numpy as np

from prefermab.errors import InputError
from prefermab.programme.planning.rules.base import Ties, setting
from prefermab.programme.planning.rules.shared import SharedLimits
from prefermab.programme.planning.rules.words import number_of_each


class WorkerBudgets(Ties):
    """Workers have budgets; workers who are not named have no limit of their own."""

    name = "budgets"

    worker_column: str | None = setting(
        None,
        "Column of the worker or region of each person; each has its own budget.",
        part=None, option="worker", column="texts",
        label="Workers", hint="The column that budgets below are about.",
    )  # fmt: skip
    budgets: Mapping[str, float] = setting(
        {},
        "Budget of each worker or region, such as Ana=5.",
        part=name, option="worker-budgets", metavar="WORKER=BUDGET ...",
        label="Budgets of workers", hint="Such as: Ana 5, Bea 4",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.budgets and self.worker_column is None:
            raise InputError("budgets need `worker_column`, the column of the workers or regions.")

    @property
    def label_column(self) -> str | None:
        return self.worker_column

    def limits(self, label: np.ndarray, names: tuple[str, ...]) -> SharedLimits:
        of = f"worker of the column '{self.worker_column}'"
        return SharedLimits.of(label, names, budget=number_of_each(self.budgets, names, np.inf, of))

    def words(self) -> Mapping[str, tuple[str, str]]:
        from prefermab.programme.tables.table import format_number

        each = (f"{name} {format_number(value)}" for name, value in self.budgets.items())
        return {self.name: ("budgets of workers", ", ".join(each))}
