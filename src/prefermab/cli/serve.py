"""The command `serve`: web pages and an API for the people who run a programme."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from prefermab.cli.options import Flag, option
from prefermab.errors import InputError, brief, missing

if TYPE_CHECKING:
    from prefermab.service.auth.settings import Settings

ALL_INTERFACES = ("0.0.0.0", "::")
"""Addresses that stand for all network interfaces."""

DEMO = (("Ada", "admin"), ("Paul", "planner"), ("Ana", "field worker"), ("Vera", "viewer"))
"""Users of the demo."""


@dataclasses.dataclass(frozen=True)
class ServeCommand:
    """Serve programmes as web pages and an API.

    Several people can then run a programme together in their browsers.
    """

    places: Annotated[Positional[tuple[str, ...]], option("FILE_OR_URL ...")] = ()
    """File of a programme, such as calls.db, or address of its database. May be several."""
    demo: Flag = False
    """Serve a made-up programme of 400 people in week 5. It is deleted when the server ends."""
    host: Annotated[str, option("ADDRESS")] = "127.0.0.1"
    """Address to listen on. Default: this machine only."""
    port: int = 8321
    """Port to listen on."""
    workers: int = 1
    """Number of worker processes."""
    allow_host: Annotated[tuple[str, ...], option("NAME ...")] = ()
    """Host names that browsers may use to reach the server, besides localhost."""
    https: Flag = False
    """Give this if browsers use https through a proxy: cookies are then sent by https only."""
    proxy: Annotated[tuple[str, ...], option("ADDRESS ...")] = ()
    """IP addresses or networks of reverse proxies, such as 127.0.0.1 or 10.0.0.0/8. Only these are
    believed when they say from where a request comes (X-Forwarded-For)."""
    worker_column: Annotated[str, option("COLUMN")] = "worker"
    """Column of the roster with the name of each person's field worker."""

    def run(self) -> None:
        """Starts the server; Ctrl-C ends it."""
        if self.demo:
            self.run_demo()
        elif not self.places:
            raise InputError("serve needs the file of a programme, such as calls.db, or --demo.")
        else:
            self.serve(*self.places)

    def run_demo(self) -> None:
        """Serves a made-up programme and deletes it when the server ends."""
        import signal
        import sys
        import tempfile
        from pathlib import Path

        from prefermab.common.files import use_compilation_cache

        try:
            from prefermab.service.work.demo import make_demo
        except ModuleNotFoundError as error:
            raise missing(error, "serve", "serve") from None
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        use_compilation_cache()
        with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
            print("Making up 400 people and four weeks of calls ...", flush=True)
            make_demo(Path(folder) / "demo.db")
            self.serve(str(Path(folder) / "demo.db"))

    def serve(self, *places: str) -> None:
        """Serves the programmes at these places."""
        try:
            import uvicorn

            from prefermab.service.auth.settings import (
                VARIABLE,
                Settings,
                as_text,
                check_programme_names,
                name_of,
            )
        except ModuleNotFoundError as error:
            raise missing(error, "serve", "serve") from None
        import os
        import signal
        import tempfile
        from pathlib import Path

        for one in self.proxy:
            check_proxy(one)
        named = () if self.host in ALL_INTERFACES else (self.host,)
        settings = [
            Settings(
                place, hosts=(*self.allow_host, *named), https=self.https,
                worker_column=self.worker_column, name=name_of(place) if len(places) > 1 else "",
            )
            for place in places
        ]  # fmt: skip
        check_programme_names(settings)
        host = "localhost" if self.host in ALL_INTERFACES else self.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        links = [line for one in settings for line in self.first_links(one, address + one.root)]
        print(f"{address}  (Ctrl-C ends it)", *links, sep="\n", flush=True)
        # Nobody else may read this folder.
        with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
            file = Path(folder) / "settings.json"
            file.write_text(as_text(*settings), "utf-8")
            os.environ[VARIABLE] = str(file)
            if self.workers > 1:
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            # uvicorn handles Ctrl-C itself; our own handler would raise the interrupt again.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if not self.demo:
                signal.signal(signal.SIGTERM, signal.default_int_handler)
            # The long health check: a worker that still imports packages must not count as dead.
            uvicorn.run(
                "prefermab.service.several:serve_from_environment", factory=True, host=self.host,
                port=self.port, workers=self.workers, access_log=False, log_level="warning",
                server_header=False, timeout_worker_healthcheck=60, timeout_keep_alive=75,
                proxy_headers=bool(self.proxy), forwarded_allow_ips=list(self.proxy),
            )  # fmt: skip

    def first_links(self, settings: "Settings", address: str) -> list[str]:
        """Lines with the one-time links of a programme in which nobody has an account yet."""
        import time

        from prefermab.service.auth.accounts import add_user, first_link
        from prefermab.service.auth.database import Records

        records, now = Records(settings.place, settings.wait), time.time()
        with records.writing() as sql:
            if self.demo:
                links = {f"{name}, {role}": add_user(sql, name, role, now) for name, role in DEMO}
            else:
                links = {"the first admin": first_link(sql, now)}
        records.close()
        lines = [f"{name}: {address}/welcome/{link}" for name, link in links.items() if link]
        if not lines:
            return []
        where = f" in {settings.name}" if settings.name else ""
        use = "Each link sets a password, once, within three days:"
        return [f"Nobody has an account yet{where}. {use}", *lines]


def check_proxy(address: str) -> None:
    """Raises unless this is an IP address or a network.

    >>> from prefermab.cli.serve import check_proxy
    >>> check_proxy("proxy.example")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: --proxy must be an IP address or a network, such as 127.0.0.1 or \
10.0.0.0/8, not 'proxy.example'.
    """
    import ipaddress

    try:
        ipaddress.ip_network(address)
    except ValueError:
        raise InputError(
            "--proxy must be an IP address or a network, such as 127.0.0.1 or 10.0.0.0/8, not "
            f"'{brief(address)}'."
        ) from None
