"""The command that writes the bundle of a challenge for another platform."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

from ladderholdout.bundles import PLATFORMS, Challenge, write_bundle
from ladderholdout.cli import common
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.leaderboard import Leaderboard, standings
from ladderholdout.ledger.log import now
from ladderholdout.ledger.place import resolve_url
from ladderholdout.remote.connection import place_of
from ladderholdout.server.accounts import home_of

_DAYS = 90


def bundle(
    platform: Annotated[str, {"help": f"One of {', '.join(PLATFORMS)}."}],
    name: str,
    folder: Path,
    *,
    server: str | None = None,
    title: str | None = None,
    until: str | None = None,
    per_day: int = 5,
    ids: str | None = None,
    ledger: str | None = None,
) -> None:
    """Write the bundle of a challenge for Codabench or EvalAI, whose scores come from a server.

    It has no label and no token: put that of an account with the role host into server.json.

    Parameters
    ----------
    platform : PLATFORM
        One of codabench, evalai.
    name : NAME
        The holdout's name; it has a leaderboard.
    folder : DIR
        Where to write it: a new or empty directory.
    server : URL
        Where serve answers, as the platform reaches it.
    title
        Of the challenge; by default the holdout's name.
    until : DATE
        The last day, as 2026-12-31; by default in 90 days.
    per_day
        Submissions of a participant a day, on the platform.
    ids : COLUMN
        The column of predictions that has the ids of the rows.
    """
    if server is None:
        raise InvalidArgument("--server", "the URL of a server", "missing")
    place, _ = place_of(server)
    home = home_of(resolve_url(ledger), name)
    facts, state = home.facts, home.execute(commands.State())
    if facts.account != standings.BOARD:
        raise HoldoutConflict(
            f"{name!r} has no leaderboard. Start one with its rows: Leaderboard(X, y, name=...)."
        )
    if Leaderboard.open(name, ladder=facts.ladder, ledger=ledger).by_rounds:
        raise HoldoutConflict(
            f"The leaderboard of {name!r} answers by rounds, and the platforms wait for a score of "
            'each submission. Start another one that answers at once: ladder="another name".'
        )
    if ids is not None and not state.has_ids:
        raise InvalidArgument("--ids", "left out for rows that were registered without ids", ids)
    start = now().date()
    challenge = Challenge(
        holdout=name,
        server=place,
        title=name if title is None else title,
        metric=home.metric.name,
        response=home.metric.response,
        mechanism=repr(facts.rules.mechanism),
        n=facts.n,
        classes=() if facts.classes is None else tuple(map(str, facts.classes.tolist())),
        start=start,
        end=start + timedelta(days=_DAYS - 1) if until is None else _day(until),
        per_day=per_day,
        ids=ids,
    )
    written = write_bundle(platform, challenge, folder)
    (secret,) = (file for file in written if file.endswith("server.json"))
    common.print_result(
        {"platform": platform, "files": written},
        *(str(folder / file) for file in written),
        "Next: the token of a host goes into "
        f"{folder / secret} (ladder-holdout account add {platform} --holdout {name} --role host "
        f"--per-day {per_day}), and then the content of {folder} into a zip.",
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("--until", "a date, as 2026-12-31", repr(text)) from None
