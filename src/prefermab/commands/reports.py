"""Verbs that report: what ships, and how policies compare."""

import json

from rich.console import Console
from rich.table import Table

from prefermab import plots, policies
from prefermab.commands.shared import model_and_domain, progress, settings, table
from prefermab.compiled import use_compilation_cache
from prefermab.domains import Domain
from prefermab.errors import unknown
from prefermab.evaluation import evaluate as compare
from prefermab.storage import describe, load, shipped_models
from prefermab.verbs import models as verbs


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
    chosen = chosen_policies(options.against, domain)
    n_arms, budget = domain.usual_arms, domain.usual_budget
    if model is not None:
        n_arms, budget = model.n_arms, model.budget
    n_arms = n_arms if options.n_arms is None else options.n_arms
    budget = budget if options.budget is None else options.budget
    with progress() as report:
        frame = compare(
            domain,
            chosen if model is None else {"prefermab": model, **chosen},
            n_arms=n_arms,
            budget=budget,
            opt_in=options.opt_in,
            trials=options.trials,
            seed=options.seed,
            rounds=options.rounds,
            bound=options.bound,
            progress=report,
        )
    if options.json:
        told = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": options.seed}
        print(json.dumps({**told, "rows": frame.to_dicts()}, indent=2))
    else:
        Console().print(table(frame, f"{domain.name}: {n_arms} arms, budget {budget:g}"))
    if options.plot is not None:
        title = f"{domain.name}: {n_arms} arms, budget {budget:g}, {options.trials} trials"
        plots.save(plots.comparison(frame, title), options.plot)


def chosen_policies(names: tuple[str, ...], domain: Domain) -> dict[str, policies.Policy]:
    """The policies that were named, or all that fit the domain."""
    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)
    fits = [name for name in policies.BY_NAME if name != "whittle" or domain.n_actions == 2]
    return {name: policies.BY_NAME[name]() for name in names or fits}
