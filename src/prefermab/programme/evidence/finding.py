"""What trials and off-policy estimates have in common: sentences, figures and a page."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from prefermab.pages import Block, write_pages


class Finding(ABC):
    """A result that is told in sentences, the most important first, as figures and as a page."""

    title: ClassVar[str]
    """Title of the page."""
    file: ClassVar[str]
    """Name of the file with the figures."""

    @abstractmethod
    def lines(self) -> list[str]:
        """The result in sentences, the most important first."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Names and figures, as JSON can hold them."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """The result as blocks of a page."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def as_data(self) -> dict[str, Any]:
        """Everything as JSON can hold it.

        Returns:
            Names and figures, the sentences as `lines`.
        """
        return {"lines": self.lines(), **self.figures()}

    def report(self, path: str | Path) -> None:
        """Writes the result as a page.

        Args:
            path: Folder for index.html, README.md and a file with the figures.
        """
        data = json.dumps(self.as_data(), indent=1)
        write_pages(Path(path), self.title, self.blocks(), {self.file: data})
