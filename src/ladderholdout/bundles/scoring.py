"""Score a submission by asking a server of ladderholdout, which alone has the labels.

`ladder-holdout bundle` copies this file into the bundle of a challenge. It runs in the images of
the platforms: Python 3.7 and its standard library are enough. It keeps no state, and sends the
same submission under the same idempotency key, so that a rerun is a repeat.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

COLUMNS = ("score", "low", "high", "best_rank", "worst_rank", "improved")
MEDIA = {
    ".csv": "text/csv",
    ".npy": "application/x-npy",
    ".json": "application/json",
    ".arrow": "application/vnd.apache.arrow.stream",
    ".feather": "application/vnd.apache.arrow.stream",
}
SPLIT = "holdout"
TOKEN = "token.txt"

_PATIENCE = 120.0  # seconds for which a server that does not answer is asked again
_MOST_DIGITS = 10  # that a column of Codabench keeps
_AWAY = (429, 502, 503, 504)
_RUN = re.compile(r"/uPK-(\d+)_sID-(\d+)__")


class NotScored(Exception):
    """The submission has no score; the text is for the participant and the organiser."""


class _NoRedirect(HTTPRedirectHandler):
    """Follow no redirect: it would take the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request to send instead."""


def score(
    settings: dict[str, Any],
    file: str,
    participant: str | None,
    token: str | None = None,
    notes: dict[str, str] | None = None,
) -> dict[str, float | None]:
    """Return the columns of a submission, as numbers by their names; None where there is none.

    Parameters
    ----------
    settings : dict
        The content of server.json.
    file : str
        The predictions; its name shows their form.
    participant : str or None
        For whom the organiser's account submits.
    token : str, optional
        The participant's own, instead of the organiser's.
    notes : dict, optional
        What the history of the server shows of the submission.
    """
    kind = os.path.splitext(file)[1].lower()
    if kind not in MEDIA:
        raise NotScored(
            "Predictions are a file of one of these kinds: {}.".format(", ".join(sorted(MEDIA)))
        )
    with open(file, "rb") as opened:
        data = opened.read()
    server = _Server(settings, token)
    if participant is None:
        account, stated = server.ask("describe")["account"], {}
    else:
        account, stated = participant, {"account": participant}
    if settings.get("ids") and kind in (".csv", ".arrow", ".feather"):
        stated["ids"] = settings["ids"]
    # The same predictions of the same participant are the same submission, whatever number the
    # platform has for a rerun.
    key = hashlib.sha256(json.dumps([account, kind]).encode() + data).hexdigest()
    stated.update(key=key, context=json.dumps(notes or {}))
    release = server.ask("submit?" + urlencode(stated), data, MEDIA[kind])
    rows = server.ask("leaderboard")["rows"]
    known = {"score": release["score"]}
    for row in rows:
        if account in row["accounts"]:  # those of a team have its row
            known = row
    known = dict(known, improved=release["improved"])
    return {name: _number(known.get(name)) for name in COLUMNS}


class _Server:
    """The holdout of a server, asked with one token."""

    def __init__(self, settings: dict[str, Any], token: str | None) -> None:
        self._holdout = "{}/v1/holdouts/{}".format(
            settings["server"].rstrip("/"), quote(settings["holdout"], safe="")
        )
        self._token = token or settings.get("token") or ""
        if not self._token:
            raise NotScored(
                "The organiser has not put the token of the account into server.json. Nothing was "
                "sent or counted."
            )
        self._patience = float(settings.get("patience", _PATIENCE))
        self._opener = build_opener(_NoRedirect)

    def ask(self, command: str, data: bytes = b"{}", media: str = "application/json") -> Any:
        """Return what the server answers, as JSON; ask again while it is away."""
        sent = {"Content-Type": media, "Authorization": "Bearer " + self._token}
        end, pause = time.monotonic() + self._patience, 0.5
        while True:
            request = Request(f"{self._holdout}/{command}", data=data, headers=sent, method="POST")
            try:
                with self._opener.open(request, timeout=120) as answer:
                    return json.loads(answer.read().decode("utf-8"))
            except HTTPError as error:
                problem = _problem(error)
                # A limit of the day has a type; one of a server that is busy has none.
                if error.code not in _AWAY or "DailyLimit" in problem.get("type", ""):
                    raise NotScored(_refused(error.code, problem)) from None
                reason = f"answered with status {error.code}"
            except (OSError, ValueError, HTTPException) as error:
                reason = f"did not answer ({type(error).__name__})"
            if time.monotonic() + pause > end:
                raise NotScored(
                    f"The server of the challenge {reason} for {self._patience:g} seconds. Run "
                    "this submission again later: if the server had recorded it, that is a repeat, "
                    "with the same answer, which no limit counts."
                )
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def _problem(error: HTTPError) -> dict[str, Any]:
    """Return the problem details of an answer, empty where it has none."""
    try:
        problem = json.loads(error.read().decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _refused(status: int, problem: dict[str, Any]) -> str:
    """Return the text for what the server refused: it has recorded nothing."""
    if status == 401:
        reason = "The token is wrong, expired or revoked."
    elif status == 404:
        reason = "The token is for another holdout, or its account may not submit."
    else:
        reason = problem.get("detail") or problem.get("title") or "It gives no reason."
    return f"The server refused the submission (status {status}), and counted nothing. {reason}"


def _number(value: Any) -> float | None:
    """Return a number that any platform takes; None for what is missing or not finite."""
    if value is None or not math.isfinite(float(value)):
        return None
    return round(float(value), _MOST_DIGITS)


def _settings(file: str) -> Any:
    """Read server.json."""
    with open(file, encoding="utf-8") as opened:
        return json.loads(opened.read())


# -- Codabench --------------------------------------------------------------------------


def main(folder: str, output: str, mounts: str = "/proc/self/mountinfo") -> None:
    """Score the submission in `folder`/res and write `output`/scores.json, as Codabench asks.

    Parameters
    ----------
    folder, output : str
    mounts : str
        Where the kernel lists the folders of the worker, whose names have the numbers of the
        participant and of the submission.
    """
    settings = _settings(os.path.join(folder, "ref", "server.json"))
    results = os.path.join(folder, "res")
    token, participant, notes = None, None, {"platform": "codabench"}
    if os.path.exists(os.path.join(results, TOKEN)):
        with open(os.path.join(results, TOKEN), encoding="utf-8") as opened:
            token = opened.read().strip()
    else:
        participant, notes["submission"] = _run_of(mounts)
    columns = score(settings, _predictions_in(results), participant, token, notes)
    os.makedirs(output, exist_ok=True)
    with open(os.path.join(output, "scores.json"), "w", encoding="utf-8") as opened:
        # A column without a number is left out: a number is all that it takes.
        json.dump({name: value for name, value in columns.items() if value is not None}, opened)


def _run_of(mounts: str) -> tuple[str, str]:
    """Return the participant and the submission, by the folders that the worker mounted."""
    try:
        with open(mounts, encoding="utf-8") as opened:
            runs = set(_RUN.findall(opened.read()))
    except OSError:
        runs = set()
    if len(runs) != 1:
        raise NotScored(
            "This compute worker does not name the participant: it is older than Codabench 1.24, "
            "or of another kind. Put the token of your own account, which the organiser gives "
            f"you, into a file {TOKEN} beside the predictions. Nothing was sent or counted."
        )
    ((user, submission),) = runs
    return "codabench-" + user, submission


def _predictions_in(folder: str) -> str:
    """Return the one file of predictions of a submission."""
    names = sorted(os.listdir(folder))
    files = [name for name in names if os.path.splitext(name)[0] == "predictions"]
    if len(files) != 1:
        raise NotScored(
            "A submission has one file of predictions at its top, such as predictions.csv; this "
            f"one has {len(files)}. Nothing was sent or counted."
        )
    return os.path.join(folder, files[0])


# -- EvalAI -----------------------------------------------------------------------------


def evaluate(
    test_annotation_file: str, user_submission_file: str, phase_codename: str, **known: Any
) -> dict[str, Any]:
    """Score a submission, as EvalAI asks; what it raises fails the submission.

    Parameters
    ----------
    test_annotation_file : str
        server.json.
    user_submission_file : str
    phase_codename : str
    **known
        Has ``submission_metadata``, with the numbers of the team and of the submission.
    """
    submission = known.get("submission_metadata") or {}
    team = submission.get("participant_team")
    if team is None:
        raise NotScored("EvalAI did not name the team. Nothing was sent or counted.")
    notes = {
        "platform": "evalai",
        "phase": phase_codename,
        "submission": str(submission.get("id")),
        "team": str(submission.get("participant_team_name")),
    }
    settings, participant = _settings(test_annotation_file), f"evalai-{team}"
    columns = score(settings, user_submission_file, participant, None, notes)
    return {"result": [{SPLIT: columns}], "submission_result": columns}


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except NotScored as error:
        sys.exit(f"Not scored: {error}")
