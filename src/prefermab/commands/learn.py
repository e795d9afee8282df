"""From a log to a model and a report on both."""

import dataclasses
import json
from pathlib import Path

from prefermab.commands.shared import numbers, progress
from prefermab.commands.train import check_folder
from prefermab.compiled import use_compilation_cache
from prefermab.domains.logged import Logged
from prefermab.errors import InputError
from prefermab.evidence.comparison import compare
from prefermab.evidence.estimates import estimates
from prefermab.evidence.heldout import hold_out
from prefermab.evidence.report import Learned, as_data, blocks_of, card
from prefermab.logs.fitting import fit_log
from prefermab.logs.reading import Log, read_log
from prefermab.model import Model
from prefermab.pages import write as write_pages
from prefermab.storage import save
from prefermab.tables import read_table, source_of
from prefermab.training import pretrain
from prefermab.verbs import programmes as verbs


def learn(options: verbs.Learn) -> None:
    """Reads, fits, trains, compares; then writes the model and the report."""
    use_compilation_cache()
    log = read_log(
        read_table(options.log),
        options.id,
        options.time,
        options.state,
        options.action,
        options.features,
        numbers(options.costs, "--costs") or None,
        numbers(options.rewards, "--rewards") or None,
        options.passive,
        where=source_of(options.log),
    )
    check_folder(options.out)
    folder = options.report or options.out / "report"
    if folder.is_file():
        raise InputError(f"cannot write the report to {folder}: it is a file.")
    learned = learned_from(log, options)
    save(learned.model, options.out)
    write_report(learned, folder)
    if options.json:
        told = {"model": str(options.out), "report": str(folder), **as_data(learned)}
        print(json.dumps(told, indent=2))
        return
    print(blocks_of(learned)[0].text)  # pyright: ignore[reportAttributeAccessIssue]
    print(f"The model is in {options.out}, the report in {folder / 'index.html'}.")


def learned_from(log: Log, options: verbs.Learn) -> Learned:
    """The fit, the model that was trained on it, and how both do."""
    fit = fit_log(log, seed=options.seed)
    domain = Logged(log, fit, options.seed)
    held_out = hold_out(log, seed=options.seed)
    with progress() as report:
        model: Model = pretrain(
            domain, options.n_arms, options.budget, "exact", options.seed,
            progress=report, steps=options.steps,
        )  # fmt: skip
        comparison = compare(domain, model, log, options.seed, report)
    transitions, effects = estimates(log, fit)
    learned = Learned(log, fit, model, transitions, effects, held_out, comparison)
    return dataclasses.replace(learned, model=dataclasses.replace(model, card=card(learned)))


def write_report(learned: Learned, folder: Path) -> None:
    """One page that opens from disk, the same in Markdown, and all figures as JSON."""
    data = json.dumps(as_data(learned), indent=1)
    title = f"Learned from {learned.log.where}"
    write_pages(folder, title, blocks_of(learned), {"learned.json": data})
