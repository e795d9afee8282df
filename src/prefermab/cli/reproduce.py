"""The command `reproduce`: computes the paper's tables and figures."""

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prefermab.cli.options import Flag, JsonFlag, Names, Whole, option
from prefermab.errors import InputError, count, unknown

if TYPE_CHECKING:
    from prefermab.paper.results import Results
    from prefermab.paper.runner import Scale


@dataclasses.dataclass(frozen=True)
class ReproduceCommand:
    """Reproduce the paper's results.

    The report shows every table and figure beside the published one.
    """

    out: Path = Path("report")
    """Folder to write the report to: index.html, README.md, cells.json and the figures."""
    only: Names = ()
    """Parts of the report: table1 to table16, figure1 to figure4, prop1, pools, prop3.
    Default: all."""
    recipe: str = "all"
    """Recipe to train: paper, paper-literal, sweep or exact; or one of these groups:
    papers (the first two), both (paper and sweep), all (paper, sweep, exact), every (all four)."""
    seeds: int = 8
    """Number of models trained for each setting."""
    trials: int = 1000
    """Number of paired trials for each cell; a fifth of it for epidemics (sis)."""
    quick: Flag = False
    """Compute a small version of everything, as a quick test."""
    cache: Annotated[Path | None, option("PATH")] = None
    """Folder for finished results, so that a second run continues the first.
    Default: the user's cache folder."""
    workers: Whole = None
    """Number of tasks to run at once. Default: 2."""
    json: JsonFlag = False

    def run(self) -> None:
        """Computes what is missing, then writes the report."""
        if self.quick:
            # Small tasks spend most of their time compiling, so compile with few optimisations.
            os.environ.setdefault(
                "XLA_FLAGS",
                "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                "--xla_cpu_parallel_codegen_split_count=1",
            )
        import platformdirs

        from prefermab.common import plots
        from prefermab.common.files import use_compilation_cache
        from prefermab.common.pages import write_pages
        from prefermab.paper import report
        from prefermab.paper.report import findings_as_data
        from prefermab.paper.results import Results
        from prefermab.paper.runner import Store
        from prefermab.paper.tables import selected_parts

        use_compilation_cache()
        parts = selected_parts(self.only, report.REPORT_PARTS)
        recipes, scale = chosen_recipes(self.recipe), chosen_scale(self)
        if self.workers is not None:
            count(self.workers, "workers")
        plots.blank(1, 1)
        check_out(self.out)
        cache = self.cache or Path(platformdirs.user_cache_dir("prefermab")) / "reproduce"
        results = Results(Store(cache), scale, recipes)
        self.compute(results, parts)
        findings = report.collect_findings(parts, results)
        blocks = report.paper_report_blocks(parts, results, findings, same_command(self))
        data = json.dumps(findings_as_data(findings), indent=1)
        write_pages(self.out, report.TITLE, blocks, {"cells.json": data})
        if self.json:
            print(data)
        else:
            print(
                f"The report is in {self.out / 'index.html'}, and as Markdown in README.md there."
            )

    def compute(self, results: "Results", parts: Sequence[str]) -> None:
        """Runs every training and trial whose result is not in the store yet."""
        from prefermab.cli.terminal import progress
        from prefermab.paper import report
        from prefermab.paper.runner import run_all

        tasks = report.tasks_of(parts, results)
        try:
            with progress() as bar:
                # Two tasks at once: much of a training runs on one core.
                at_once = self.workers or min(2, os.cpu_count() or 1)
                run_all(tasks, results.store, at_once, bar)
        except KeyboardInterrupt:
            print(
                f"Finished results are kept in {results.store.folder}: run the same command again "
                "to continue.",
                file=sys.stderr,
            )
            raise


def chosen_recipes(name: str) -> tuple[str, ...]:
    """The recipes that a name stands for: one recipe, or a group."""
    from prefermab.paper import report

    known = {
        **{recipe: (recipe,) for recipe in report.RECIPE_GROUPS["every"]},
        **report.RECIPE_GROUPS,
    }
    if name not in known:
        raise unknown("recipe", name, known)
    return known[name]


def chosen_scale(options: ReproduceCommand) -> "Scale":
    """Numbers of seeds and trials."""
    from prefermab.paper.runner import Scale

    if not options.quick:
        seeds = count(options.seeds, "seeds", at_least=2)
        return Scale(seeds, count(options.trials, "trials", at_least=10))
    if (options.seeds, options.trials) != (Scale.seeds, Scale.trials):
        raise InputError("--quick sets --seeds and --trials itself: leave them out.")
    return Scale(seeds=2, trials=20, quick=True)


def check_out(out: Path) -> None:
    """Raises an error, before the work, if the report cannot be written to the folder."""
    from prefermab.common.files import write_atomically

    if out.is_file():
        raise InputError(f"cannot write the report to {out}: it is a file.")
    write_atomically(out / "index.html.try", lambda draft: draft.write_text(""))
    (out / "index.html.try").unlink()


def same_command(options: ReproduceCommand) -> str:
    """The command that makes the same report again."""
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
