"""Commands of a server: its accounts, the server itself, and its tools for agents."""

from __future__ import annotations

import os
import threading
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ladderholdout.cli import common, options
from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning, warn
from ladderholdout.ledger import resolve_url, shown
from ladderholdout.server import accounts
from ladderholdout.server.running import check_packages, run, run_ui
from ladderholdout.server.settings import settings_from


class Action(StrEnum):
    """What is done with an account."""

    ADD = "add"
    LIST = "list"
    LIMIT = "limit"
    REVOKE = "revoke"
    ROTATE = "rotate"


def account(
    action: Annotated[Action, {"metavar": "|".join(Action)}],
    name: str | None = None,
    *,
    holdout: str | None = None,
    role: str | None = None,
    per_day: int | None = None,
    show: str | None = None,
    budget: int | None = None,
    expires: str | None = None,
    ledger: str | None = None,
) -> None:
    """Add, list, limit, revoke or rotate the accounts that may query a holdout through the server.

    A token is printed once, when it is made, and works at once; it stops working at once when it
    is revoked or rotated.

    Parameters
    ----------
    action : add|list|limit|revoke|rotate

    name : NAME
        The account's name; not for list.
    holdout
        The holdout's name.
    role
        For add: analyst (submits, and sees the own ladder), program (an analyst that is shown
        improvements alone), host (submits for the accounts of a leaderboard, and sees all ladders),
        reader (sees all ladders) or owner (manages accounts, withdraws submissions, retires the
        holdout).
    per_day
        For add and limit: how many submissions a day, by UTC; left out for any number.
    show
        For add: what answers have, scores or improvements; by default as the holdout's.
    budget
        For add: how many times its released score may improve.
    expires : DATE
        For add and rotate: the last day of the token, as 2026-12-31.
    """
    if action is Action.LIST:
        known = accounts.accounts_of(ledger, holdout)
        lines = [line for listed in known for line in _lines(listed)] or ["No accounts yet."]
        common.print_result({"accounts": known}, *lines)
        return
    if name is None or holdout is None:
        missing = "NAME" if name is None else "--holdout"
        raise InvalidArgument(missing, f"stated for account {action}", "missing")
    if action is Action.ADD and role is None:
        raise InvalidArgument("--role", "analyst, program, host, reader or owner", "missing")
    kind = _DOES[action]
    done = accounts.execute(
        resolve_url(ledger), holdout, kind(**options.taken(kind, locals() | {"account": name}))
    )
    common.print_result(done, *_lines(done))


_DOES = {
    Action.ADD: accounts.AddAccount,
    Action.LIMIT: accounts.LimitAccount,
    Action.REVOKE: accounts.RevokeToken,
    Action.ROTATE: accounts.RotateToken,
}


def _lines(account: accounts.Account) -> list[str]:
    """Return an account in a line, and a token that was just made."""
    limit = "" if account.per_day is None else f", {account.per_day} submissions a day"
    ends = "" if account.expires is None else f", until {account.expires:%Y-%m-%d %H:%M} UTC"
    gone = account.revoked
    state = "" if gone is None else f", revoked on {gone:%Y-%m-%d %H:%M} UTC"
    lines = [f"{account.holdout}: {account.name}, {account.role}{limit}{ends}{state}"]
    if isinstance(account, accounts.Token):
        lines.append(f"token, shown this once: {account.token}")
    return lines


def serve(
    *,
    ledger: str | None = None,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    share_rows: list[str] | None = None,
    allow_estimates: list[str] | None = None,
    allow_reveals: list[str] | None = None,
    allow_comparisons: list[str] | None = None,
    metrics: list[str] | None = None,
    max_body: int | None = None,
    time_grid: int | None = None,
    max_refusals: int | None = None,
    config: Path | None = None,
) -> None:
    """Serve the ledger's holdouts over HTTP to those who have a token (see account).

    Settings come from flags, else from LADDERHOLDOUT_SERVE_HOST and its like, else from --config.

    Parameters
    ----------
    host
        The address to listen at; by default 127.0.0.1.
    port
        The port; by default 8765.
    workers
        Processes; more than one pays on PostgreSQL.
    tls_cert
        The certificate, in PEM.
    tls_key
        Its key, in PEM.
    share_rows : NAME
        Send this holdout's features to its accounts; * for all.
    allow_estimates : NAME
        Let analysts ask for corrected scores; * for all.
    allow_reveals : NAME
        Let analysts request scores of ladders that show improvements; * for all.
    allow_comparisons : NAME
        Let analysts compare two models; * for all.
    metrics : FILE.py:NAME
        A metric of your own, such as a judge: this file is run.
    max_body
        Megabytes that a request may have; by default 64.
    time_grid
        Milliseconds of which each answer takes a multiple; by default 25.
    max_refusals
        Requests of an account that may be refused in a minute before no more are read; by default
        100.
    config
        A TOML file with these settings; flags and environment come first.
    """
    flags = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if name != "config"
    }
    settings = settings_from(flags, os.environ, config)
    if ledger is not None and ":***@" in shown(settings.url):
        warn(
            "Other users of this machine can read the password in --ledger, as all that is on a "
            "command line: put it into PGPASSFILE, or the URL into the environment or --config.",
            LadderHoldoutWarning,
        )
    check_packages()
    where = f"{'http' if settings.tls_cert is None else 'https'}://{settings.host}:{settings.port}"
    begun = {"url": where, "ledger": shown(settings.url), "workers": settings.workers}
    common.print_result(begun, f"serving {shown(settings.url)} at {where}")
    run(settings)


def mcp(
    *,
    server: Annotated[str | None, {"envvar": "LADDERHOLDOUT_SERVER"}] = None,
    files: Path | None = None,
) -> None:
    """Offer a server's holdout to an agent over the Model Context Protocol, on standard streams.

    The tools are submit, decide, status, history and health, and nothing else. A local ledger is
    not offered: the labels would be on the agent's own machine. Programs that take --server for
    themselves state LADDERHOLDOUT_SERVER.

    Parameters
    ----------
    server : URL
        The server, or its holdout's URL; the token is in LADDERHOLDOUT_TOKEN, or in the private
        file that LADDERHOLDOUT_TOKEN_FILE names.
    files : FOLDER
        Where the files are that an agent may submit; by default the folder in which this is
        started. Files elsewhere are not read.
    """
    if server is None:
        raise InvalidArgument(
            "--server",
            "the URL of a server",
            "missing",
            "A ledger of this machine is not offered: the agent could read its labels.",
        )
    from ladderholdout.cli.agents import run as offer

    offer(server, files or Path())


def ui(
    *,
    ledger: str | None = None,
    port: Annotated[int, {"min": 0, "max": 65535}] = 0,
    no_browser: bool = False,
) -> None:
    """Show the holdouts of a ledger in the browser, on this machine, to its owner alone.

    The address that is printed works once. No raw score is shown. Ctrl-C stops it.

    Parameters
    ----------
    port
        Of 127.0.0.1; by default one that is free.
    no_browser
        Print the address, and open no browser.
    """
    url = resolve_url(ledger)

    def started(address: str) -> None:
        lines = f"the pages of {shown(url)}, until Ctrl-C; this address works once:", address
        common.print_result({"url": address, "ledger": shown(url)}, *lines)
        if not no_browser:
            # It may wait for the browser to end.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run_ui(url, port, started)
