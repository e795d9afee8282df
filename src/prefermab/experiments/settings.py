"""The paper's problem instances, read from `settings.toml`."""

import dataclasses
import tomllib
from importlib import resources
from typing import Any

from prefermab import domains
from prefermab.domains import Domain


@dataclasses.dataclass(frozen=True)
class Setting:
    """A domain, a number of arms and a budget, and what was published there, if anything was."""

    domain: str
    n_arms: int
    budget: float
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    published: float | None = None
    sd: float = 0.0

    def __str__(self) -> str:
        told = "".join(f" {value}" for value in self.options.values())
        return f"{self.domain}{told} ({self.n_arms}, {self.budget:g})"

    def make(self) -> Domain:
        """The domain itself."""
        return domains.get(self.domain, **self.options)

    @property
    def trials(self) -> int:
        """Enough to tell policies apart: on SIS a trial costs a hundred times as much, and
        differs less from the next."""
        return 200 if "sis" in self.domain else 1000


def settings() -> list[Setting]:
    """All of them, in the paper's order.

    >>> from prefermab.experiments.settings import settings
    >>> print(settings()[0])
    synthetic (21, 7)
    """
    text = resources.files("prefermab.experiments").joinpath("settings.toml").read_text()
    return [Setting(**entry) for entry in tomllib.loads(text)["setting"]]
