"""From a log to a model and a report on both."""

import dataclasses
import json
from pathlib import Path

from prefermab.commands.shared import numbers, progress, use_compilation_cache
from prefermab.commands.train import check_folder
from prefermab.domains.logged import Logged
from prefermab.errors import InputError
from prefermab.experiments.pages import Picture, as_html, as_markdown
from prefermab.files import write_atomically
from prefermab.logs.comparison import compare
from prefermab.logs.estimates import estimates
from prefermab.logs.fitting import fit_log
from prefermab.logs.heldout import hold_out
from prefermab.logs.reading import Log, read_log
from prefermab.logs.report import Learned, as_data, blocks_of, card
from prefermab.model import Model
from prefermab.storage import save
from prefermab.tables import read_table
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
        where=str(options.log),
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
    hyper = dataclasses.asdict(options.exact)
    del hyper["seed"]
    with progress() as report:
        model: Model = pretrain(
            domain, options.n_arms, options.budget, "exact", options.seed,
            progress=report, **hyper,
        )  # fmt: skip
        comparison = compare(domain, model, log, options.seed, report)
    transitions, effects = estimates(log, fit)
    learned = Learned(log, fit, model, transitions, effects, held_out, comparison)
    return dataclasses.replace(learned, model=dataclasses.replace(model, card=card(learned)))


def write_report(learned: Learned, folder: Path) -> None:
    """One page that opens from disk, the same in Markdown, and all figures as JSON."""
    title, blocks = f"Learned from {learned.log.where}", blocks_of(learned)
    texts = {
        "index.html": as_html(title, blocks),
        "README.md": as_markdown(title, blocks),
        "learned.json": json.dumps(as_data(learned), indent=1),
    }
    texts |= {f"figures/{b.name}.svg": b.svg for b in blocks if isinstance(b, Picture)}
    for name, text in texts.items():
        write_atomically(folder / name, lambda draft, text=text: draft.write_text(text))
