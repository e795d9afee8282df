"""Opening a programme, and what holds for all its rounds: model, end, and the key of its ids."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from prefermab.errors import number
from prefermab.programme.store import queries, request
from prefermab.programme.store.audit import check_who, put_audit
from prefermab.programme.store.database import Database
from prefermab.programme.store.models import check_model, load_stored, model_hash
from prefermab.programme.store.reader import ProgrammeReader

MODEL_PLACE = "model_place"


class OpenProgramme(ProgrammeReader):
    """A `Programme` as it is opened, closed and set up."""

    def __init__(
        self,
        path: str | Path,
        model: Any = None,
        *,
        change_model: bool = False,
        wait: float = 60.0,
        begin: bool = True,
        who: str | None = None,
        why: str | None = None,
    ):
        """Begins a programme in a new place, or continues the one that is there.

        Args:
            path: The file, such as calls.db, or the address of a PostgreSQL database and the name
                of the programme in it, such as postgresql://anna@db.example.org/health#calls.
            model: The model that plans. It may be left out with `begin=False` if `keep_place` (or
                `prefermab programme begin`) stored where the model is.
            change_model: Continue with another model than the one that ran the programme so far.
            wait: Seconds to wait while another process changes the programme.
            begin: Whether a programme may be created; if not, it must exist.
            who: Who makes the changes, for the audit log; by default the user of the operating
                system. It is kept as the attribute `who`, which may be set.
            why: The reason for another model, for the audit log.
        """
        if model is not None or begin:
            check_model(model)
        self.who = check_who(who)
        self._database = Database(path, number(wait, "wait"), begin=begin, who=self.who)
        try:
            if model is None:
                with self._database.reading() as sql:
                    place = queries.get_meta(sql, MODEL_PLACE)
                model = load_stored(place, self._database.shown)
            self.model, self.hash = check_model(model), model_hash(model)
            self._take_over(change_model, why)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Closes the file or the connection."""
        self._database.close()

    def _take_over(self, change_model: bool, why: str | None) -> None:
        """Makes the model run the programme, unless it does already."""
        with self._database.reading() as sql:
            if queries.current_model(sql) == self.hash:
                return
        with self._database.writing() as sql:
            changed = queries.set_model(
                sql, self.model, self.hash, self._database.shown, change_model=change_model
            )
            if changed is not None:
                self._note(sql, "model", why, changed)

    def _note(
        self, sql: Connection, what: str, why: str | None, details: dict[str, Any], digest: str = ""
    ) -> None:
        put_audit(sql, self.who, what, why, details, digest)

    def check_key(self, mark: str | None) -> None:
        """Raises an error unless the ids are pseudonyms by the key with this mark
        (`privacy.key_mark`), or plain ids for None. Who joins first decides."""
        with self._database.writing() as sql:
            if queries.check_key(sql, mark):
                self._note(sql, "key", None, {"mark": mark})

    @property
    def last_round(self) -> int | None:
        """The round with which the programme ends; None where it goes on."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, request.LAST_ROUND)

    @last_round.setter
    def last_round(self, last: int | None) -> None:
        with self._database.writing() as sql:
            if request.set_last_round(sql, self.model, last):
                self._note(sql, "last round", None, {"last_round": last})

    def keep_place(self, name: str) -> None:
        """Stores where the model is, so that `Programme.open(path)` finds it.

        Args:
            name: The folder of the model, or the name of a model that ships.
        """
        folder = Path(name)
        place = str(folder.resolve()) if folder.is_dir() else name
        with self._database.writing() as sql:
            if queries.set_meta(sql, MODEL_PLACE, place):
                self._note(sql, "model place", None, {"place": place})
