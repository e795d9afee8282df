"""From a log to a model and a report on both."""

import dataclasses
import json
import re
import sys
from pathlib import Path

from prefermab.commands.shared import numbers, progress
from prefermab.compiled import use_compilation_cache
from prefermab.errors import InputError, count, number
from prefermab.model import Model
from prefermab.pages import write as write_pages
from prefermab.programme.logs.estimates import estimates
from prefermab.programme.logs.fitting import fit_log
from prefermab.programme.logs.groups import whom_it_helps
from prefermab.programme.logs.heldout import hold_out
from prefermab.programme.logs.learned import Learned, as_data, card, first_page
from prefermab.programme.logs.logged import Logged
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.logs.report import blocks_of
from prefermab.programme.logs.shapes import cautions
from prefermab.programme.logs.verdict import find, usual_rounds
from prefermab.programme.tables import read_table, source_of
from prefermab.storage import check_place, save
from prefermab.training import pretrain
from prefermab.verbs import programmes as verbs


def learn(options: verbs.Learn) -> None:
    """Reads, fits, trains, compares; then writes the model and the report."""
    use_compilation_cache()
    folder = options.report or options.out / "report"
    try:
        log = checked_log(options, folder)
        for caution in cautions(log):
            print(f"prefermab: warning: {caution.sentence}", file=sys.stderr)
        learned = learned_from(log, options)
    except KeyboardInterrupt:
        print("prefermab: nothing was written.", file=sys.stderr)
        raise
    replaced = (options.out / "config.json").exists()
    save(learned.model, options.out)
    write_report(learned, folder)
    if options.json:
        told = {"model": str(options.out), "report": str(folder), **as_data(learned)}
        print(json.dumps(told, indent=2))
        return
    print("\n\n".join(part.replace("**", "") for part in first_page(learned)) + "\n")
    was = " (replaced the model that was there)" if replaced else ""
    print(f"The model is in {options.out}{was}, the report in {folder / 'index.html'}.")


def checked_log(options: verbs.Learn, folder: Path) -> Log:
    """The log, once all that can be wrong with what was typed is found out."""
    log = read_log(
        read_table(options.log),
        options.id,
        options.time,
        options.state,
        options.action,
        None if options.features == verbs.ALL else options.features,
        _by_name(options.costs, "--costs"),
        _by_name(options.rewards, "--rewards"),
        options.passive or None,
        where=source_of(options.log),
        available=options.available or None,
        reached=options.reached or None,
        every=options.every or None,
    )
    _check_budget(log, options.budget)
    for place in (options.out, folder):
        if place.is_file():
            raise InputError(f"cannot write to {place}: it is a file, and a folder was expected.")
    check_place(options.out)
    return log


def _by_name(pairs: tuple[str, ...], option: str) -> dict[str, float] | None:
    for pair in pairs:
        if re.search("=[^=,]*,", pair):
            raise InputError(
                f"{option} takes name=number with spaces between them, such as call=1 visit=4, not "
                f"'{pair}'."
            )
    return numbers(pairs, option) or None


def _check_budget(log: Log, budget: float | None) -> None:
    """At least one action can be paid for."""
    costs, actions = log.meaning.costs[1:], log.meaning.actions[1:]
    least = costs.argmin()
    what = "the budget" if budget is not None else "what a round of the log cost"
    may = log.spent if budget is None else number(budget, "budget")
    if may < costs[least]:
        raise InputError(
            f"{what}, {may:g}, is below the cost of the cheapest action, '{actions[least]}' at "
            f"{costs[least]:g}: nothing can be decided; give a larger --budget."
        )


def learned_from(log: Log, options: verbs.Learn) -> Learned:
    """The fit, the model that was trained on it, and what the log shows of both."""
    fit = fit_log(log, seed=options.seed)
    domain = Logged(log, fit, options.seed)
    held_out = hold_out(log, seed=options.seed)
    rounds = usual_rounds(log) if options.rounds is None else count(options.rounds, "rounds")
    with progress() as report:
        model: Model = pretrain(
            domain, options.n_arms, options.budget, "exact", options.seed,
            progress=report, steps=options.steps,
        )  # fmt: skip
        findings = find(log, fit, model.budget / model.n_arms, rounds, options.seed, report)
    transitions, effects = estimates(log, fit)
    groups = whom_it_helps(log, fit)
    learned = Learned(log, fit, model, transitions, effects, groups, held_out, findings)
    return dataclasses.replace(learned, model=dataclasses.replace(model, card=card(learned)))


def write_report(learned: Learned, folder: Path) -> None:
    """One page that opens from disk, the same in Markdown, and all figures as JSON."""
    data = json.dumps(as_data(learned), indent=1)
    title = f"Learned from {learned.log.where}"
    write_pages(folder, title, blocks_of(learned), {"learned.json": data})
