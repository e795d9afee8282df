"""Verbs that report: what ships, and how policies compare."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from prefermab import plots, policies
from prefermab.commands.shared import model_and_domain, progress, settings, several, table
from prefermab.compiled import use_compilation_cache
from prefermab.domains import Domain
from prefermab.errors import unknown
from prefermab.evaluation import evaluate as compare
from prefermab.storage import describe, load, shipped_models
from prefermab.verbs import models as verbs

MANY_STATES, FEWEST = 64, 20
"""Beyond how many states (or points of a grid) the bound of a trial takes long, and for how many
trials it is worked out at least."""


def models(options: verbs.Models) -> None:
    """Lists what ships, or prints a card."""
    if options.name is not None:
        model = load(options.name)
        print(json.dumps(describe(model), indent=2) if options.json else model.card)
        return
    found = {name: load(name) for name in shipped_models()}
    if options.json:
        print(json.dumps({name: describe(model) for name, model in found.items()}, indent=2))
        return
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("model", "domain", "recipe", "features", "actions"):
        shown.add_column(heading, no_wrap=heading != "actions")
    for name, model in found.items():
        features, actions = str(len(model.feature_names)), ", ".join(model.action_names)
        shown.add_row(name, model.domain_name, model.recipe, features, actions)
    Console().print(shown)
    print("\nA model's card: prefermab models NAME")


def evaluate(options: verbs.Evaluate) -> None:
    """Compares a model and policies on a domain; prints a table or JSON, and draws on request."""
    use_compilation_cache()
    if options.plot is not None:
        plots.check_target(options.plot)
    model, domain = model_and_domain(options.model, settings(options.settings), options.domain)
    chosen, bound = chosen_policies(options.against, domain), bounded(options, domain)
    name = model_name(options.model)
    n_arms, budget = domain.usual_arms, domain.usual_budget
    if model is not None:
        n_arms, budget = model.n_arms, model.budget
    n_arms = n_arms if options.n_arms is None else options.n_arms
    budget = budget if options.budget is None else options.budget
    with progress() as report:
        frame = compare(
            domain,
            chosen if model is None else {name: model, **chosen},
            n_arms=n_arms,
            budget=budget,
            opt_in=options.opt_in,
            trials=options.trials,
            seed=options.seed,
            rounds=options.rounds,
            bound=bound,
            progress=report,
        )
    if options.json:
        told = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": options.seed}
        told["model"] = None if model is None else name
        print(json.dumps({**told, "rows": frame.to_dicts()}, indent=2))
    else:
        Console().print(table(frame, f"{domain.name}: {several(n_arms, 'arm')}, budget {budget:g}"))
        if 0 < bound < options.trials:
            print(
                f"\nof bound: in the first {several(bound, 'trial')}, since it takes long to find."
            )
            print("The policy lagrangian takes as long: name it with --against.")
    if options.plot is not None:
        title = f"{domain.name}: {several(n_arms, 'arm')}, budget {budget:g}, "
        title += several(options.trials, "trial")
        plots.save(plots.comparison(frame, title), options.plot)


def model_name(typed: str) -> str:
    """What a model is called in a table: the name or folder that was typed, unless a policy is
    called so."""
    name = Path(typed).name
    return "prefermab" if name in policies.BY_NAME or not name else name


def bounded(options: verbs.Evaluate, domain: Domain) -> int:
    """For how many trials the bound is worked out: all, or, of many states, a fifth, unless a
    policy needs as much anyway."""
    trials = options.trials if options.bound else 0
    if domain.n_cells <= MANY_STATES or "lagrangian" in options.against:
        return trials
    return min(trials, max(FEWEST, trials // 5))


def chosen_policies(names: tuple[str, ...], domain: Domain) -> dict[str, policies.Policy]:
    """The policies that were named, or all that fit the domain and do not take long."""
    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)
    unfit = set() if domain.n_actions == 2 else {"whittle"}
    slow = {"lagrangian"} if domain.n_cells > MANY_STATES else set()
    fits = [name for name in policies.BY_NAME if name not in unfit | slow]
    return {name: policies.BY_NAME[name]() for name in names or fits}
