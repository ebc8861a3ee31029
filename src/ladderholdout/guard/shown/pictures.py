"""What is drawn of a ladder: its released score over submissions, and the certificate's band."""

from __future__ import annotations

from collections.abc import Sequence

from ladderholdout.guard.shown.score_certificate import ScoreCertificate
from ladderholdout.guard.shown.views import Status, Submission, score_line
from ladderholdout.pictures import Picture, Shot


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
