"""How the history of a ladder prints: a table as text and HTML, lines, and a picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from ladderholdout.errors import printable
from ladderholdout.guard.certificate import ScoreCertificate
from ladderholdout.guard.context import APART
from ladderholdout.guard.views import TOGETHER, Status, Submission, outcome, score_line
from ladderholdout.pictures import Picture, Shot

_LONGEST_VALUE = 24
_LONGEST_CELL = 200
_MOST = 100
_COLUMNS = ("number", "time (UTC)", "metric", "own score", "released", "", "from")
# Of a submission's context, what has a place of its own or is for `estimate`.
_ELSEWHERE = frozenset({"estimator", "parameters", APART, TOGETHER})
# What the lines of one submission by several metrics share, and its number where it is the same:
# each ladder numbers the members of a batch in an order of its own.
_AS_ABOVE = dict.fromkeys(("time (UTC)", "from"), "")
_NUMBERS = frozenset({"number", "own score", "released"})


class Submissions(tuple[Submission, ...]):
    """Submissions in their order; a tuple with a table for notebooks and for ``print``.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 0], context={"idea": "all 0"}), holdout.submit([0, 1])
    >>> len(holdout.history()), holdout.history()[1].improved
    (2, True)
    >>> holdout.history()._repr_html_().count("<tr>")
    3
    """

    def __str__(self) -> str:
        return "\n".join([text_table(self._lines(), _NUMBERS), *self._rest()])

    def _repr_html_(self) -> str:
        heads, *rows = self._lines()

        def line(cells: Sequence[str], tag: str) -> str:
            inside = ""
            for head, cell in zip(heads, cells, strict=True):
                side = "right" if head in _NUMBERS else "left"
                inside += f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            return f"<tr>{inside}</tr>"

        body = "".join(line(cells, "td") for cells in rows)
        rest = "".join(f"<p>{escape(one)}</p>" for one in self._rest())
        return f"<table><thead>{line(heads, 'th')}</thead><tbody>{body}</tbody></table>{rest}"

    def _rest(self) -> list[str]:
        more = len(self) - _MOST
        return [f"the last {_MOST} of {len(self)}"] if more > 0 else []

    def _lines(self) -> list[list[str]]:
        """Return the heads of the table, and a line for each submission and metric."""
        shown, several = self[-_MOST:], any(one.by_metric for one in self)
        differing = varied(shown)
        heads = [name for name in _COLUMNS if name != "metric" or several]
        lines = [heads]
        for submission in shown:
            by_metric = submission.by_metric or {"": submission}
            for place, (metric, entry) in enumerate(by_metric.items()):
                texts = cells(entry, differing) | {"metric": printable(metric)}
                where = printable(texts["from"], longest=_LONGEST_CELL).replace("\n", "\\n")
                same = {"number": ""} if entry.number == submission.number else {}
                texts |= {"from": where} if place == 0 else _AS_ABOVE | same
                lines.append([texts[name] for name in heads])
        return lines


def text_table(lines: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Return lines, of which the first has the heads, as a table; some columns are to the right.

    Examples
    --------
    >>> print(text_table([("rank", "account"), ("1", "Ada")], right=["rank"]))
    rank  account
       1  Ada
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [str.rjust if head in right else str.ljust for head in lines[0]]
    texts = (
        "  ".join(side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        for line in lines
    )
    return "\n".join(map(str.rstrip, texts))


def cells(submission: Submission, differing: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Return a line of a table of submissions, by the heads of its columns."""
    return {
        "number": str(submission.number),
        "time (UTC)": f"{submission.time:%Y-%m-%d %H:%M}",
        "own score": number(submission.own_score, "-"),
        "released": number(submission.score),
        "": outcome(submission).removeprefix("not improved"),
        "batch": (submission.batch or "")[:8],
        "from": origin(submission, differing),
    }


def number(score: float | None, otherwise: str = "", digits: int = 6) -> str:
    """Return a score in few digits, or a text where there is none.

    Examples
    --------
    >>> number(0.91234567, "-"), number(None, "-")
    ('0.912346', '-')
    """
    return otherwise if score is None else f"{score:.{digits}g}"


def origin_of(context: Mapping[str, Any], parameters: Collection[str] = ()) -> str:
    """Return in a line where a submission came from: its estimator and its context.

    Parameters
    ----------
    context : mapping
    parameters : collection of str
        Those of the estimator to name: a pipeline has a hundred.

    Examples
    --------
    >>> origin_of({"estimator": "Ridge", "parameters": {"alpha": 2, "tol": 0.1}}, ["alpha"])
    'Ridge alpha=2'
    """
    noted = {k: v for k, v in context.items() if k not in _ELSEWHERE}
    noted |= {k: v for k, v in context.get("parameters", {}).items() if k in parameters}
    source = str(context.get("estimator", "by hand"))
    return " ".join([source, *(f"{name}={value}" for name, value in noted.items())])


def origin(submission: Submission, differing: Mapping[str, Collection[str]]) -> str:
    """Return where a submission came from, with the parameters in which the shown ones differ."""
    known = differing.get(str(submission.context.get("estimator", "by hand")), ())
    values = submission.context.get("parameters", {})
    # The steps of a pipeline and their like are long; their own parameters are there too.
    short = {name for name in known if len(str(values.get(name))) <= _LONGEST_VALUE}
    return origin_of(submission.context, short)


def varied(latest: Sequence[Submission]) -> dict[str, set[str]]:
    """Return, for each class of estimators, the parameters in which the shown ones differ."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for submission in latest:
        for name, value in submission.context.get("parameters", {}).items():
            values[str(submission.context.get("estimator"))][name].add(repr(value))
    return {
        estimator: {name for name, seen in parameters.items() if len(seen) > 1}
        for estimator, parameters in values.items()
    }


def picture_of(
    status: Status, certificate: ScoreCertificate, submissions: Sequence[Submission]
) -> Picture:
    """Describe the picture of a ladder; of one that shows no values, how often it improved.

    Parameters
    ----------
    status : Status
    certificate : ScoreCertificate
        Whose ends are the band.
    submissions : sequence of Submission
        What is drawn, in the ledger's order; at least one.

    Returns
    -------
    Picture
    """
    counts = all(submission.score is None for submission in submissions)
    done, shots = 0, []
    for shown in submissions:
        fresh, again = shown.improved, shown.repeat_of is not None
        done += fresh
        value = float(done) if counts else shown.score
        what = f"{done} improvements" if counts else f"released score {score_line(value)}"
        what += f", a repeat of {shown.repeat_of}" if again else ""
        text = f"Submission {shown.number}, {shown.time:%Y-%m-%d %H:%M} UTC: {what}"
        shots.append(Shot(shown.number, value, fresh, text))
    band = None
    low, high = certificate.low, certificate.high
    if not counts and certificate.missing is None and low is not None and high is not None:
        band = low, high
    label = "improvements so far" if counts else f"released score ({status.metric})"
    gains = sum(shot.improved for shot in shots)
    description = f"{gains} of {len(shots)} submissions improved."
    if status.score is not None:
        description += f" The released score is {status.score:.6g}."
    if band is not None:
        doubts = "".join(f", {doubt}" for doubt in certificate.doubts)
        description += f" The certificate goes from {band[0]:.4g} to {band[1]:.4g}{doubts}."
    return Picture(
        shots,
        None if counts else status.score,
        band,
        certificate.submission or 0,
        label,
        counts,
        f"Released score of {status.name} over submissions",
        description,
    )
