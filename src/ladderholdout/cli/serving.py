"""Commands of a server: its accounts, the server itself, and its tools for agents."""

from __future__ import annotations

import os
import threading
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ladderholdout.cli.common import JsonOption, LedgerOption, print_json, print_lines
from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning, warn
from ladderholdout.guard import commands
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
    action: Annotated[Action, typer.Argument(metavar="add|list|limit|revoke|rotate")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The account's name; not for list.")
    ] = None,
    holdout: Annotated[str | None, typer.Option(help="The holdout's name.")] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="For add: analyst (submits, and sees the own ladder), program (an analyst that "
            "is shown improvements alone), host (submits for the accounts of a leaderboard, and "
            "sees all ladders), reader (sees all ladders) or owner (manages accounts, "
            "withdraws submissions, retires the holdout)."
        ),
    ] = None,
    per_day: Annotated[
        int | None,
        typer.Option(
            help="For add and limit: how many submissions a day, by UTC; left out for any number."
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            help="For add: what answers have, scores or improvements; by default as the holdout's."
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="For add: how many times its released score may improve.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="For add and rotate: the last day of the token, as 2026-12-31."
        ),
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add, list, limit, revoke or rotate the accounts that may query a holdout through the server.

    A token is printed once, when it is made, and works at once; it stops working at once when it
    is revoked or rotated.
    """
    if action is Action.LIST:
        known = accounts.accounts_of(ledger, holdout)
        _print(known, {"accounts": known} if as_json else None)
        return
    if name is None or holdout is None:
        missing = "NAME" if name is None else "--holdout"
        raise InvalidArgument(missing, f"stated for account {action}", "missing")
    if action is Action.ADD and role is None:
        raise InvalidArgument("--role", "analyst, program, host, reader or owner", "missing")
    kind = _DOES[action]
    stated = {"role": role, "per_day": per_day, "budget": budget, "show": show, "expires": expires}
    known_to = commands.names_of(kind)
    given = {option: value for option, value in stated.items() if option in known_to}
    done = accounts.execute(resolve_url(ledger), holdout, kind(account=name, **given))
    _print((done,), done if as_json else None)


_DOES = {
    Action.ADD: accounts.AddAccount,
    Action.LIMIT: accounts.LimitAccount,
    Action.REVOKE: accounts.RevokeToken,
    Action.ROTATE: accounts.RotateToken,
}


def _print(known: tuple[accounts.Account, ...], as_json: Any) -> None:
    """Print accounts in a line each, and a token that was just made; or JSON."""
    if as_json is not None:
        print_json(as_json)
        return
    for account in known:
        limit = "" if account.per_day is None else f", {account.per_day} submissions a day"
        ends = "" if account.expires is None else f", until {account.expires:%Y-%m-%d %H:%M} UTC"
        gone = account.revoked
        state = "" if gone is None else f", revoked on {gone:%Y-%m-%d %H:%M} UTC"
        print_lines(f"{account.holdout}: {account.name}, {account.role}{limit}{ends}{state}")
        if isinstance(account, accounts.Token):
            print_lines(f"token, shown this once: {account.token}")
    if not known:
        print_lines("No accounts yet.")


def serve(
    ledger: LedgerOption = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen at; by default 127.0.0.1.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The port; by default 8765.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; more than one pays on PostgreSQL.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, in PEM.")] = None,
    share_rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Send this holdout's features to its accounts; * for all."
        ),
    ] = None,
    allow_estimates: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Let analysts ask for corrected scores; * for all."),
    ] = None,
    allow_reveals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Let analysts request scores of ladders that show improvements; * for all.",
        ),
    ] = None,
    allow_comparisons: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Let analysts compare two models; * for all."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="FILE.py:NAME",
            help="A metric of your own, such as a judge: this file is run.",
        ),
    ] = None,
    max_body: Annotated[
        int | None, typer.Option(help="Megabytes that a request may have; by default 64.")
    ] = None,
    time_grid: Annotated[
        int | None,
        typer.Option(help="Milliseconds of which each answer takes a multiple; by default 25."),
    ] = None,
    max_refusals: Annotated[
        int | None,
        typer.Option(
            help="Requests of an account that may be refused in a minute before no more are read; "
            "by default 100."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file with these settings; flags and environment come first."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve the ledger's holdouts over HTTP to those who have a token (see account).

    Settings come from flags, else from LADDERHOLDOUT_SERVE_HOST and its like, else from --config.
    """
    flags = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if name not in ("config", "as_json")
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
    if as_json:
        print_json({"url": where, "ledger": shown(settings.url), "workers": settings.workers})
    else:
        print_lines(f"serving {shown(settings.url)} at {where}")
    run(settings)


def mcp(
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="LADDERHOLDOUT_SERVER",
            help="The server, or its holdout's URL; the token is in LADDERHOLDOUT_TOKEN, or in "
            "the private file that LADDERHOLDOUT_TOKEN_FILE names.",
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the files are that an agent may submit; by default the folder in which "
            "this is started. Files elsewhere are not read.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Offer a server's holdout to an agent over the Model Context Protocol, on standard streams.

    The tools are submit, decide, status, history and health, and nothing else. A local ledger is
    not offered: the labels would be on the agent's own machine. Programs that take --server for
    themselves state LADDERHOLDOUT_SERVER.
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
    ledger: LedgerOption = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; by default one that is free.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the holdouts of a ledger in the browser, on this machine, to its owner alone.

    The address that is printed works once. No raw score is shown. Ctrl-C stops it.
    """
    url = resolve_url(ledger)

    def started(address: str) -> None:
        if as_json:
            print_json({"url": address, "ledger": shown(url)})
        else:
            print_lines(
                f"the pages of {shown(url)}, until Ctrl-C; this address works once:", address
            )
        if not no_browser:
            # It may wait for the browser to end.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run_ui(url, port, started)
