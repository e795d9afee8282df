"""The commands `evaluate`, which compares policies on the same trials, and `models`."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from prefermab.cli.options import (
    Amount,
    JsonFlag,
    KnownEnd,
    ModelOrDomain,
    Names,
    OtherDomain,
    PlotFile,
    SettingsOption,
    Whole,
    option,
    parse_settings,
)
from prefermab.errors import InputError, unknown

if TYPE_CHECKING:
    import polars as pl

    from prefermab.domains import Domain
    from prefermab.models.model import Model
    from prefermab.policies import Policy

MANY_STATES, FEWEST_BOUND_TRIALS = 64, 20
"""With more states (or grid points) than this, the bound takes long to compute; it is then computed
for a fifth of the trials, but for no fewer than this."""


@dataclasses.dataclass(frozen=True)
class EvaluateCommand:
    """Compare a model with other policies.

    All of them meet the same arms, starting states, opt-ins and random draws.
    """

    model: ModelOrDomain
    against: Names = ()
    """Policies to compare with: none, random, lottery, round-robin, myopic, whittle, lagrangian.
    Default: all that fit the domain, without lottery; lagrangian only if there are few states."""
    n_arms: Whole = None
    """Number of arms. Default: the model's number, or as in the paper for a domain."""
    budget: Amount = None
    """Budget of each round. Default: the model's budget, or as in the paper for a domain."""
    opt_in: tuple[float, ...] = (1.0,)
    """Shares of arms that opt in, such as 0.8 1.0; policies are compared at each share."""
    trials: int = 1000
    """Number of trials; each draws new arms."""
    rounds: int = 9
    """Number of rounds in a trial."""
    known_end: KnownEnd = False
    seed: int = 0
    """Random seed; the same seed gives the same figures."""
    domain: OtherDomain = None
    settings: SettingsOption = ()
    bound: bool = True
    """Compute an upper bound on the mean reward of every policy.
    With many states, as in sis, it takes long and is computed for a fifth of the trials only."""
    json: JsonFlag = False
    plot: PlotFile = None

    def run(self) -> None:
        """Compares the policies; prints a table or JSON, and draws a figure on request."""
        from prefermab.cli.terminal import plural, progress
        from prefermab.common import plots
        from prefermab.common.files import use_compilation_cache
        from prefermab.evaluation.compare import evaluate

        use_compilation_cache()
        if self.plot is not None:
            plots.check_target(self.plot)
        model, domain = model_and_domain(self.model, parse_settings(self.settings), self.domain)
        policies, bound = policies_for(self.against, domain), bounded_trials(self, domain)
        n_arms, budget = usual_size(model, domain, self.n_arms, self.budget)
        if model is not None:
            policies = {
                **with_known_end(model_label(self.model), model, self.known_end),
                **policies,
            }
        with progress() as report:
            frame = evaluate(
                domain, policies, n_arms=n_arms, budget=budget, opt_in=self.opt_in,
                trials=self.trials, seed=self.seed, rounds=self.rounds, bound=bound,
                progress=report,
            )  # fmt: skip
        title = f"{domain.name}: {plural(n_arms, 'arm')}, budget {budget:g}"
        if self.json:
            facts = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": self.seed}
            facts["model"] = None if model is None else model_label(self.model)
            print(json.dumps({**facts, "rows": frame.to_dicts()}, indent=2))
        else:
            self.print_table(frame, title, bound)
        if self.plot is not None:
            title += f", {plural(self.trials, 'trial')}"
            plots.save_figure(plots.comparison(frame, title), self.plot)

    def print_table(self, frame: "pl.DataFrame", title: str, bound: int) -> None:
        """Prints the comparison, and a note if the bound was computed for some trials only."""
        from rich.console import Console

        from prefermab.cli.terminal import comparison_table, plural

        Console().print(comparison_table(frame, title))
        if 0 < bound < self.trials:
            print(
                f"\nof bound: computed for the first {plural(bound, 'trial')} only, because it "
                "takes long.\nThe policy lagrangian takes as long: add it with --against."
            )


def with_known_end(label: str, model: "Model", known_end: bool) -> "dict[str, Model]":
    """The model; with `known_end` also a copy that knows how many rounds are left."""
    models = {label: model}
    if known_end:
        models[f"{label}, end known"] = model.with_rounds_left("trial")
    return models


def model_and_domain(
    name: str, changes: dict[str, Any], other: str | None = None
) -> "tuple[Model | None, Domain]":
    """A model and the domain to use it on, or None and a domain if `name` is a domain.

    The domain is the model's own, or `other` if given; `changes` are settings of the domain.
    """
    from prefermab import domains
    from prefermab.models.loading import load, shipped_models

    known = {**dict.fromkeys(domains.BY_NAME), **shipped_models()}
    in_a_file = domains.in_a_file(name)
    if name not in known and not in_a_file and not Path(name).exists():
        raise unknown("model or domain", name, known)
    if known.get(name, name) is None or in_a_file:
        if other is not None:
            raise InputError(f"{name} is a domain itself: --domain goes with a model.")
        return None, domains.get(name, **changes)
    if other is not None:
        domain = domains.get(other, **changes)
        return load(name, domain=domain), domain
    model = load(name)
    if model.domain is None:
        raise InputError(unknown_domain(name, model))
    stored = domains.settings_of(model.domain) or {}
    merged = {**stored, "feature_map": model.domain.feature_map, **changes}
    return model, domains.built_in(model.domain.name, **merged)


def unknown_domain(name: str, model: "Model") -> str:
    """The error message for a model whose domain cannot be created from its folder."""
    from prefermab import domains
    from prefermab.programme.logs.domain import Logged

    if model.domain_name == Logged.name:
        return f"the model {name} was learned from a log: its report says how good it is."
    if model.domain_name == domains.Tabular.name:
        return (
            f"the model {name} was trained on arms given as arrays: evaluate it in Python, with "
            "pm.load(folder, domain=...)."
        )
    return (
        f"the model {name} was trained on the domain '{model.domain_name}', which is not part of "
        "the package: name its class with --domain FILE.py:CLASS."
    )


def usual_size(
    model: "Model | None", domain: "Domain", n_arms: int | None, budget: float | None
) -> tuple[int, float]:
    """Number of arms and budget: the given ones, or the model's, or the domain's."""
    usual = (domain.usual_arms, domain.usual_budget)
    if model is not None:
        usual = (model.n_arms, model.budget)
    return (usual[0] if n_arms is None else n_arms, usual[1] if budget is None else budget)


def model_label(typed: str) -> str:
    """A model's name in a table: its name or folder, or `prefermab` if a policy has that name."""
    from prefermab import policies

    name = Path(typed).name
    return "prefermab" if name in policies.BY_NAME or not name else name


def bounded_trials(options: EvaluateCommand, domain: "Domain") -> int:
    """Number of trials for which the bound is computed: all, or a fifth if there are many states.
    The policy `lagrangian` needs it in every trial."""
    trials = options.trials if options.bound else 0
    if domain.n_cells <= MANY_STATES or "lagrangian" in options.against:
        return trials
    return min(trials, max(FEWEST_BOUND_TRIALS, trials // 5))


def policies_for(names: tuple[str, ...], domain: "Domain") -> "dict[str, Policy]":
    """The named policies, or all that fit the domain and are fast enough."""
    from prefermab import policies

    check_policies(names)
    unfit = set() if domain.n_actions == 2 else {"whittle"}
    slow = {"lagrangian"} if domain.n_cells > MANY_STATES else set()
    # In these trials nobody joins or leaves: random, as in the paper, is enough.
    fits = [name for name in policies.BY_NAME if name not in unfit | slow | {"lottery"}]
    return {name: policies.BY_NAME[name]() for name in names or fits}


def check_policies(names: tuple[str, ...]) -> None:
    """Raises an error if a name is not that of a policy."""
    from prefermab import policies

    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)


@dataclasses.dataclass(frozen=True)
class ModelsCommand:
    """List the trained models, or describe one."""

    name: Annotated[Positional[str | None], option("[MODEL]")] = None
    """Name of a model in the package, or folder of a model: print its card."""
    json: JsonFlag = False

    def run(self) -> None:
        """Lists the models, or prints a model's card."""
        from rich.console import Console

        from prefermab.cli.terminal import plain_table
        from prefermab.models.loading import load, shipped_models

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
