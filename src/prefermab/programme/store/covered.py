"""Which tables the audit log covers: the one place that says it, for all tables of a database.

Each entry of the log stores the rows that its change wrote, as they were after the change
(`changes.py`), and `verify` compares the tables with the last entry of each row. A new table needs
a line here, in `COVERED` or, with the reason, in `NOT_COVERED`; a test fails for a table or column
without one. Nothing else has to be done: rows are noted where they are written.
"""

import dataclasses

HEAD_KEY = "audit_head"
"""The key of the table `meta` under which the number and hash of the log's last row are stored."""


@dataclasses.dataclass(frozen=True)
class Covered:
    """A table that the audit log covers.

    Args:
        keys: The columns that identify a row, with blanks between them.
        plain: Columns whose values the log stores.
        hashed: Columns of which it stores a hash, since they are large, personal or secret.
        besides: The keys of rows that are left out.
        scripts: The table with the version of the scripts that make this table.
    """

    keys: str
    plain: str = ""
    hashed: str = ""
    besides: tuple[str, ...] = ()
    scripts: str = "prefermab_version"

    @property
    def key(self) -> list[str]:
        """The columns that identify a row."""
        return self.keys.split()

    @property
    def columns(self) -> list[str]:
        """All columns that are covered, those of the key first."""
        return [*self.key, *self.plain.split(), *self.hashed.split()]


def _service(keys: str, plain: str, hashed: str = "") -> Covered:
    return Covered(keys, plain, hashed, scripts="service_version")


COVERED = {
    # the programme, by `schema.py`
    "meta": Covered("key", "value", besides=(HEAD_KEY,)),
    "models": Covered("number", "hash name since"),
    "columns": Covered("name", "number kind"),
    "people": Covered("id", "number", "details"),
    "stays": Covered("id joined", "gone"),
    "states": Covered("id round", "state"),
    "plans": Covered(
        "round attempt", "status model asked versions made closed facts layout", "inputs output"
    ),
    "actions": Covered("id round", "attempt action cost reached"),
    "deviations": Covered("round id", "planned done allowed why"),
    # the service, by `service/auth/database.py`
    "users": _service("name", "role active made", "password"),
    "links": _service("secret", "name role ends"),
    "tokens": _service("number", "label name scopes made ends", "secret"),
    "marks": _service("round person", "action reached why name at"),
    "late": _service("round person", "action reached why name at came"),
    "approvals": _service("round attempt", "name at"),
}

NOT_COVERED = {
    "audit": "it is the log itself: its rows are chained by hashes",
    "changes": "each of its rows has a hash in the log",
    "prefermab_version": "a wrong version is refused when the programme is opened",
    "service_version": "a wrong version is refused when the service starts",
    "sessions": "they change with requests and end by themselves; sign-ins are in the log",
    "attempts": "failed sign-ins are counted for 15 minutes, and are in the log",
    "known_addresses": "they only spare somebody a wait at sign-in; sign-ins are in the log",
    "jobs": "they change every second; the plans that they make are covered",
    "uploads": "they wait for an hour; what is imported from them is covered",
}
"""Tables that the log does not cover, and why."""
