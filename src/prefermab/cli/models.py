"""The command `models`: what ships, with model cards."""

import dataclasses
import json
from typing import Annotated

from tyro.conf import Positional

from prefermab.cli.options import JsonFlag, option


@dataclasses.dataclass(frozen=True)
class ModelsCommand:
    """List the trained models, or describe one."""

    name: Annotated[Positional[str | None], option("[MODEL]")] = None
    """A model in the package, or a model's folder: print its card."""
    json: JsonFlag = False

    def run(self) -> None:
        """Lists the models, or prints a model's card."""
        from rich.console import Console

        from prefermab.cli.terminal import plain_table
        from prefermab.storage import load, shipped_models

        if self.name is not None:
            model = load(self.name)
            print(json.dumps(model.describe(), indent=2) if self.json else model.card)
            return
        found = {name: load(name) for name in shipped_models()}
        if self.json:
            print(json.dumps({name: model.describe() for name, model in found.items()}, indent=2))
            return
        headings = ("model", "domain", "recipe", "features", "actions")
        table = plain_table(*headings, left=headings)
        for column in table.columns[:-1]:
            column.no_wrap = True
        for name, model in found.items():
            features, actions = str(len(model.feature_names)), ", ".join(model.action_names)
            table.add_row(name, model.domain_name, model.recipe, features, actions)
        Console().print(table)
        print("\nA model's card: prefermab models NAME")
