"""The command `serve`: pages and an API for the people who run a programme together."""

import dataclasses
from typing import Annotated

from tyro.conf import Positional, arg

from prefermab.cli.options import Flag, option
from prefermab.errors import InputError

ANYWHERE = ("0.0.0.0", "::")
"""Addresses that stand for every network that the machine is in."""


@dataclasses.dataclass(frozen=True)
class ServeCommand:
    """Serve a programme to several people.

    Pages for a browser, and an API for programs.
    """

    place: Annotated[Positional[str], arg(metavar="FILE_OR_URL")]
    """The programme's file, such as calls.db, or the address of its database."""
    host: Annotated[str, option("ADDRESS")] = "127.0.0.1"
    """Address to listen on. Default: this machine only."""
    port: int = 8321
    """Port to listen on."""
    workers: int = 1
    """Number of worker processes."""
    allow_host: Annotated[tuple[str, ...], option("NAME ...")] = ()
    """Names under which browsers may ask for it, besides localhost."""
    https: Flag = False
    """Browsers reach it by https, through a proxy: cookies are then sent by https only."""
    worker_column: Annotated[str, option("COLUMN")] = "worker"
    """Column of the roster with the name of the field worker whom a person belongs to."""

    def run(self) -> None:
        """Starts the server; Ctrl-C ends it."""
        try:
            import uvicorn

            from prefermab.service.accounts import first_link
            from prefermab.service.database import Records
            from prefermab.service.settings import Settings
        except ModuleNotFoundError as error:
            raise InputError(
                f"serve needs the package {error.name}: pip install 'prefermab[serve]'."
            ) from None
        import time

        named = () if self.host in ANYWHERE else (self.host,)
        settings = Settings(
            self.place, hosts=(*self.allow_host, *named), https=self.https,
            worker_column=self.worker_column,
        )  # fmt: skip
        records = Records(settings.place, settings.wait)
        with records.writing() as sql:
            link = first_link(sql, time.time())
        records.close()
        shown = "localhost" if self.host in ANYWHERE else self.host
        print(f"http://{shown}:{self.port}  (Ctrl-C ends it)")
        if link is not None:
            print(f"Nobody has an account yet. The first admin sets a password here, within three "
                  f"days:\nhttp://{shown}:{self.port}/welcome/{link}", flush=True)  # fmt: skip
        settings.to_environment()
        uvicorn.run(
            "prefermab.service.app:from_environment", factory=True, host=self.host, port=self.port,
            workers=self.workers, access_log=False, log_level="warning", server_header=False,
        )  # fmt: skip
