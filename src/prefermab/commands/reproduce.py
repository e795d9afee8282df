"""The paper in one command."""

import functools
import json
import os
import shlex
import sys
from pathlib import Path

import platformdirs

from prefermab import plots
from prefermab.commands.shared import progress
from prefermab.compiled import use_compilation_cache
from prefermab.engines import Ray, engine
from prefermab.engines import check as check_engine
from prefermab.errors import InputError, count, unknown
from prefermab.files import write_atomically
from prefermab.pages import write as write_pages
from prefermab.paper import report
from prefermab.paper.lab import Scale, Store, run_all
from prefermab.paper.remote import RayWorker
from prefermab.paper.results import Results
from prefermab.paper.tables import chosen
from prefermab.verbs import studies as verbs

QUICK = Scale(seeds=2, trials=20, quick=True)


def reproduce(options: verbs.Reproduce) -> None:
    """Works out what is missing, then writes the report."""
    use_compilation_cache()
    parts = chosen(options.only, report.PARTS)
    recipes = recipes_of(options.recipe)
    scale = (
        QUICK
        if options.quick
        else Scale(
            count(options.seeds, "seeds", at_least=2), count(options.trials, "trials", at_least=10)
        )
    )
    if options.quick and (options.seeds, options.trials) != (Scale.seeds, Scale.trials):
        raise InputError("--quick has its own seeds and trials: leave --seeds and --trials out.")
    check_engine(options.engine, options.workers)
    plots.blank(1, 1)
    check_out(options.out)
    cache = options.cache or Path(platformdirs.user_cache_dir("prefermab")) / "reproduce"
    results = Results(Store(cache), scale, recipes)
    tasks = report.tasks_of(parts, results)
    try:
        with progress() as bar, engine(options.engine, options.workers) as found:
            if isinstance(found, Ray):
                hire = functools.partial(RayWorker, found)
                run_all(tasks, results.store, found.size, bar, hire)
            else:
                run_all(tasks, results.store, workers(), bar)
    except KeyboardInterrupt:
        print(f"What is done is kept in {cache}: the same command goes on.", file=sys.stderr)
        raise
    findings = report.find(parts, results)
    blocks = report.blocks_of(parts, results, findings, command_of(options))
    data = json.dumps(report.as_data(findings), indent=1)
    write_pages(options.out, report.TITLE, blocks, {"cells.json": data})
    if options.json:
        print(data)
    else:
        print(f"The report is in {options.out / 'index.html'}, and as Markdown beside it.")


def recipes_of(name: str) -> tuple[str, ...]:
    """The recipes behind a word."""
    known = {**{recipe: (recipe,) for recipe in report.RECIPES["all"]}, **report.RECIPES}
    if name not in known:
        raise unknown("recipe", name, known)
    return known[name]


def check_out(out: Path) -> None:
    """The report's folder must be one that can be written; found out before the work."""
    if out.is_file():
        raise InputError(f"cannot write the report to {out}: it is a file.")
    write_atomically(out / "index.html.try", lambda draft: draft.write_text(""))
    (out / "index.html.try").unlink()


def command_of(options: verbs.Reproduce) -> str:
    """The command that makes the same report."""
    words = ["prefermab", "reproduce"]
    if options.only:
        words += ["--only", *options.only]
    words += ["--recipe", options.recipe]
    words += (
        ["--quick"]
        if options.quick
        else ["--seeds", str(options.seeds), "--trials", str(options.trials)]
    )
    return " ".join(shlex.quote(word) for word in [*words, "--out", str(options.out)])


def workers() -> int:
    """Two tasks at once where there is room: much of a training runs on one core."""
    return min(2, os.cpu_count() or 1)
