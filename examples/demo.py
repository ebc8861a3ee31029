"""The main job on real data: one grid, searched twice, with and without the guard.

Handwritten digits, telling the odd from the even: a small holdout steers both searches, and
a large fresh part, which neither sees, says in the end what each winner is worth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, PredefinedSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from ladderholdout import LadderHoldout

GRID = {
    "pca__n_components": [10, 15, 20, 30, 40],
    "svc__C": [0.3, 1, 3, 10, 30],
    "svc__gamma": [0.001, 0.003, 0.01, 0.03, 0.1],
}
CANDIDATES = 5 * 5 * 5
MODEL = make_pipeline(StandardScaler(), PCA(random_state=0), SVC())


@contextmanager
def progress(title: str, holdout: LadderHoldout | None = None) -> Iterator[None]:
    """Show a bar that reads the ledger; without a guard nobody counts, so it only moves."""
    done = threading.Event()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=CANDIDATES if holdout else None)
        before = holdout.status().submissions if holdout else 0

        def follow() -> None:
            while holdout and not done.wait(0.2):
                bar.update(task, completed=holdout.status().submissions - before)

        watcher = threading.Thread(target=follow)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def main() -> None:
    started = time.perf_counter()
    X, y = load_digits(return_X_y=True)
    y = y % 2
    X_train, X_rest, y_train, y_rest = train_test_split(
        X, y, train_size=250, stratify=y, random_state=0
    )
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=150, stratify=y_rest, random_state=0
    )

    holdout = LadderHoldout(X_holdout, y_holdout, scoring="accuracy", name="demo-digits")
    before = holdout.status()

    guarded = GridSearchCV(
        MODEL, GRID, scoring=holdout, cv=holdout.split(), refit=holdout.select, n_jobs=2
    )
    with progress("guarded search", holdout):
        guarded.fit(X_train, y_train)

    # The same look at the same holdout without a guard: every raw score steers the search.
    parts = np.r_[np.full(len(y_train), -1), np.zeros(len(y_holdout), dtype=int)]
    unguarded = GridSearchCV(
        MODEL, GRID, scoring="accuracy", cv=PredefinedSplit(parts), refit=False, n_jobs=2
    )
    with progress("unguarded search"):
        unguarded.fit(np.r_[X_train, X_holdout], np.r_[y_train, y_holdout])
    naive = MODEL.set_params(**unguarded.best_params_).fit(X_train, y_train)

    after = holdout.status()
    table = Table(title=f"{CANDIDATES} candidates, {len(y_holdout)} rows in the holdout")
    for column in ("", "guarded", "unguarded"):
        table.add_column(column, justify="left" if not column else "right")
    looked = after.submissions - before.submissions
    table.add_row("looks at the holdout", str(looked), str(CANDIDATES))
    table.add_row("scores told", str(after.releases - before.releases), str(CANDIDATES))
    table.add_row("what the search believes", f"{after.score:.3f}", f"{unguarded.best_score_:.3f}")
    fresh = guarded.score(X_fresh, y_fresh), naive.score(X_fresh, y_fresh)
    table.add_row(f"on {len(y_fresh)} fresh rows", f"{fresh[0]:.3f}", f"{fresh[1]:.3f}")
    table.add_row(
        "believed too much",
        f"{after.score - fresh[0]:+.3f}",
        f"{unguarded.best_score_ - fresh[1]:+.3f}",
    )
    console = Console(highlight=False)
    console.print(table)
    if before.submissions:
        console.print(
            f"The ladder went on: it stood at {before.score:.3f} after {before.submissions} "
            f"submissions, and {after.repeats - before.repeats} of today's were repeats."
        )
    console.print(
        f"{after.submissions} submissions are on record in {after.ledger}", soft_wrap=True
    )
    console.print(
        f"Took {time.perf_counter() - started:.0f} s. Next: ladder-holdout status demo-digits"
    )


if __name__ == "__main__":
    main()
