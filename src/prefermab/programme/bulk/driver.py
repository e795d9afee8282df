"""Makes a round's plan for more people than fit into memory, from and to a folder of Parquet files.

The first pass finds the price on a sample. The next ones score everyone by the network, find where
the budget ends, and write everyone's action. A pass calls the same function for every chunk, and it
does not matter where that runs, how often, or in which order.
"""

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.common.engines import Engine, Local, check_engine
from prefermab.common.engines import engine as engine_of
from prefermab.common.files import write_atomically
from prefermab.errors import InputError, amount, count
from prefermab.evaluation.compare import Progress
from prefermab.models.loading import find, fingerprint, load, shipped_models
from prefermab.models.model import Model
from prefermab.policies.learned import CHUNK
from prefermab.programme.bulk import passes
from prefermab.programme.bulk.chunks import (
    MOST_ROWS_PER_CHUNK,
    Chunk,
    Job,
    check_files,
    divide_into_chunks,
    keep_model,
    model_of,
    planner,
    refuse_duplicate_ids,
)
from prefermab.programme.bulk.output import Output
from prefermab.programme.bulk.passes import Report, Totals, choose_together
from prefermab.programme.planning.increments import Cut, find_cut
from prefermab.programme.planning.plan import (
    Summary,
    model_for_rounds_left,
    plan,
    with_given_columns,
)
from prefermab.programme.planning.roster import model_columns
from prefermab.programme.planning.rules import OUT, Cooldown, Exclude, Rules
from prefermab.programme.planning.rules.limits import reasons_out
from prefermab.programme.planning.scoring import sample_price
from prefermab.programme.tables.columns import rename_known
from prefermab.programme.tables.naming import find_name

SHARE_OF_TIME = {
    "finding the price": 0.25,
    "asking the model": 0.35,
    "choosing": 0.1,
    "writing": 0.3,
}
"""About how much of the time each pass takes."""


def plan_folder(
    model: Model | str | Path,
    arms: str | Path,
    out: str | Path,
    budget: float,
    rules: Rules | None = None,
    *,
    waiting: int = 20,
    engine: str | Engine = "local",
    workers: int | None = None,
    reasons: bool = True,
    rounds_left: int | None = None,
    progress: Progress | None = None,
    rows: int = MOST_ROWS_PER_CHUNK,
) -> Summary:
    """Plans a round for all people in a folder of Parquet files, and writes it to the folder `out`.

    The plan is the same on every engine, and however the people are divided into files. If a call
    is interrupted, its work is kept in `out`, and the same call continues from there. A plan is
    finished when `out` has a `summary.json`; then the same call only returns the summary.

    Args:
        model: A model, the name of one that ships, or a model's folder.
        arms: The folder of people: Parquet files with the columns of a table of people.
        out: A new folder for the plan.
        budget: What may be spent in this round.
        rules: Rules that the plan must keep.
        waiting: The length of the waiting list.
        engine: `local`, `ray`, or an engine.
        workers: How many workers Ray uses; all if left out.
        reasons: Whether to give a reason for everyone on the list and the waiting list.
        rounds_left: How many rounds the programme has left, this one included; it goes on without
            an end if left out.
        progress: Called with the share of the work that is done and a text, after each chunk.
        rows: The most rows that are read at once.

    Returns:
        The summary of the plan.

    >>> import pathlib, tempfile
    >>> import polars as pl
    >>> from prefermab.programme.bulk.driver import plan_folder
    >>> here = pathlib.Path(tempfile.mkdtemp())
    >>> (here / "people").mkdir()
    >>> for part in range(2):
    ...     ids = [10 * part + i for i in range(3)]
    ...     pl.DataFrame({"id": ids, "state": 1, "feature_0": 0.3}).write_parquet(
    ...         here / "people" / f"{part}.parquet")
    >>> summary = plan_folder("armman", here / "people", here / "plan", budget=2)
    >>> summary.people, summary.spent, sorted(path.name for path in (here / "plan").iterdir())
    (6, 2.0, ['part-00000.parquet', 'part-00001.parquet', 'summary.json'])
    """
    limit, waiting = amount(budget, "budget"), count(waiting, "waiting", at_least=0)
    if isinstance(engine, str):
        check_engine(engine, workers)
    name = _name(model, Path(out), rounds_left)
    chunks = divide_into_chunks(Path(arms), count(rows, "rows"))
    people = chunks[-1].start + chunks[-1].rows
    target = str(Path(out).absolute())
    job = Job(name, rules or Rules(), limit, people, target, reasons, rounds_left)
    output = Output(job, chunks, waiting)
    with output.started() as done:
        if done is not None:
            return done
        with output.cleanup_on_input_error():
            if isinstance(model, Model) and not Path(name).exists():
                model.save(name)
            if output.unmoved_summary.exists():
                return output.move_parts()
            check_files(job, chunks)
            if people <= CHUNK:
                summary = plan_small(job, chunks, waiting, str(arms))
            else:
                with open_engine(engine, workers) as found:
                    summary = Driver(job, chunks, waiting, found, progress).run(output)
            output.finish(summary)
    return summary


def _name(model: Model | str | Path, out: Path, rounds_left: int | None) -> str:
    """The name or folder from which workers load the model. A model in memory gets a folder beside
    the unfinished plan."""
    given = model_for_rounds_left(model if isinstance(model, Model) else load(model), rounds_left)
    if not given.policy.gains_are_rewards:
        raise InputError(
            f"the model {model} is of the recipe paper, which judges all people together: plan "
            "with it from one file instead of a folder."
        )
    if isinstance(model, Model):
        name = str(out.absolute() / ".unfinished" / f"model-{fingerprint(model)[:16]}")
        keep_model(name, model)
        return name
    folder = find(model)
    return str(model) if folder == shipped_models().get(str(model)) else str(folder.absolute())


def open_engine(
    engine: str | Engine, workers: int | None
) -> contextlib.AbstractContextManager[Engine]:
    """The given engine, or a new one with this name."""
    return (
        contextlib.nullcontext(engine) if isinstance(engine, Engine) else engine_of(engine, workers)
    )


def plan_small(job: Job, chunks: list[Chunk], waiting: int, where: str) -> Summary:
    """Plans for few people: in one table, which is then written in chunks."""
    for chunk in chunks:
        passes.store_id_hashes(job, chunk, passes.read_chunk(job, chunk)[0].ids)
    refuse_duplicate_ids(job, chunks, Local())
    tables, model = [chunk.read() for chunk in chunks], model_of(job.model)
    known = model_columns(model)
    known += [name for name in job.rules.columns() if name and find_name(known, name) is None]
    try:
        # Files may spell a column in different ways.
        alike = zip(tables, chunks, strict=True)
        table = pl.concat(
            [rename_known(table, known, chunk.shown) for table, chunk in alike],
            how="diagonal_relaxed",
        )
    except pl.exceptions.PolarsError as error:
        first = str(error).partition("\n")[0]
        raise InputError(
            f"{where}: a column has different types in different files: {first}."
        ) from None
    left = job.rounds_left
    made = plan(model, table, job.budget, job.rules, waiting, where, rounds_left=left)
    with_reason = pl.col("reason").is_in(list(reasons_out().values()))
    if job.reasons:
        with_reason |= pl.col("list") != ""
    listed = made.frame.select(
        "id", "action", "cost", "score", "list", pl.when(with_reason).then("reason").alias("reason")
    )
    for chunk, table in zip(chunks, tables, strict=True):
        part = with_given_columns(listed.slice(chunk.start, chunk.rows), table)
        write_atomically(job.part(chunk), part.write_parquet)
    return dataclasses.replace(made.summary, rules={})


@dataclasses.dataclass
class Driver:
    """Runs the passes over all chunks. It holds only the people near the end of the budget or, with
    limits that people share, all who may be chosen."""

    job: Job
    chunks: list[Chunk]
    waiting: int
    engine: Engine
    progress: Progress | None

    def run(self, output: Output) -> Summary:
        """Runs all passes, and returns the summary."""
        job, price = self.job, output.price(self._price)
        reports = self.run_pass(
            "asking the model", functools.partial(passes.score_chunk, job, price)
        )
        self._check(reports)
        together, rate = job.rules.about_groups, price
        cuts: Sequence[Cut | None] = [None]
        if together:
            cut, one_more = choose_together(job, self.chunks, reports, self.run_pass, self.waiting)
        else:
            room, one_more = job.units.of_budget(job.budget) - _locked(reports), None
            ask = functools.cache(self._ask)
            cut = find_cut(ask, room, self.waiting)
            more = room + job.units.of_budget(1.0)
            cuts, rate = [cut, find_cut(ask, more, 0)], cut.rate
        tallies = self.run_pass(
            "choosing", functools.partial(passes.choice_totals, job, price, cuts)
        )
        self.run_pass("writing", functools.partial(passes.write_part, job, price, cut, together))
        sums = [functools.reduce(Totals.__add__, parts) for parts in zip(*tallies, strict=True)]
        if one_more is None:
            one_more = sums[1].gained - sums[0].gained
        return self._summary(price, rate, reports, sums[0], one_more)

    def run_pass(self, what: str, function: Callable[[Chunk], Any]) -> list[Any]:
        """Calls a function for every chunk, reports progress, and returns the results."""
        found = []
        begun = sum(list(SHARE_OF_TIME.values())[: list(SHARE_OF_TIME).index(what)])
        for result in self.engine.map(function, self.chunks):
            found.append(result)
            if self.progress is not None:
                done = begun + SHARE_OF_TIME[what] * len(found) / len(self.chunks)
                self.progress(done, f"{what}, chunk {len(found)} of {len(self.chunks)}")
        return found

    def _ask(
        self, question: Callable[..., Any], *about: Any, chunk: int | None = None
    ) -> list[Any]:
        """Asks one chunk, or every chunk; see `increments.Ask`."""
        function = functools.partial(passes.answer_question, self.job, question, about)
        if chunk is not None:
            return list(self.engine.map(function, [self.chunks[chunk]]))
        return self.run_pass("choosing", function)

    def _price(self) -> float:
        found = self.run_pass("finding the price", functools.partial(passes.price_sample, self.job))
        some = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        model = planner(self.job)
        return sample_price(model, *some, budget=self.job.budget, people=self.job.people)

    def _check(self, reports: list[Report]) -> None:
        """Raises an error about anything that no chunk can check alone."""
        job, found = self.job, {one for report in reports for one in report.named}
        for setting, ids in job.rules.ids().items():
            strange = set(map(str, ids)) - found
            if strange:
                raise InputError(f"nobody has the id '{min(strange)}' that {setting} names.")
        if _locked(reports) > job.units.of_budget(job.budget):
            raise InputError(
                f"those who are locked in cost {job.units.amount(_locked(reports)):g}, more than "
                f"the budget of {job.budget:g}."
            )
        refuse_duplicate_ids(job, self.chunks, self.engine)

    def _summary(
        self,
        price: float,
        rate: float,
        reports: list[Report],
        tally: Totals,
        one_more: float,
    ) -> Summary:
        job, names = self.job, model_of(self.job.model).action_names
        counts, budget = tally.counts.tolist(), job.units.of_budget(job.budget)
        free = job.units.amount(max(budget - _locked(reports), 0))
        total = lambda field: sum(getattr(report, field) for report in reports)  # noqa: E731
        out = {
            why: sum(report.kept_out.get(why, 0) for report in reports)
            for why in reasons_out().values()
        }
        return Summary(
            people=job.people,
            chosen=int(sum(counts[1:])),
            by_action={
                name: int(times) for name, times in zip(names, counts, strict=True)
                if times and name != names[0]
            },
            budget=job.budget,
            spent=job.units.amount(tally.spent),
            left=job.units.amount(budget - tally.spent),
            price=price,
            gain=tally.gained,
            bound=tally.gained_by_locked + tally.surplus + rate * free,
            one_more=one_more,
            opted_out=out.pop(reasons_out()[OUT]),
            excluded=out.pop(Exclude.kept_out),
            resting=out.pop(Cooldown.kept_out),
            kept_out=out,
            locked=total("locked"),
            incomplete=total("incomplete"),
            unknown=dict(sum((Counter(report.unknown) for report in reports), Counter())),
            rules={},
            outside_training=total("outside_training"),
            outside=dict(sum((Counter(report.outside) for report in reports), Counter())),
            states_read={k: v for report in reports for k, v in report.states_read.items()},
            rounds_left=job.rounds_left,
        )  # fmt: skip


def _locked(reports: Sequence[Report]) -> int:
    """The cost of those who are locked in, in units."""
    return sum(report.locked_units for report in reports)
