# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Tutorial: two weeks with one holdout
#
# Half an hour, one real data set, from loading it to a report. You will register a holdout, run a
# search that confirms its finalists on it, read what may be believed, come back a week later with
# better features, and open the record in the end.
#
# This page is a notebook that was run when the page was built: [download it](tutorial.ipynb). It
# needs `pip install 'ladderholdout[report,tables]' statsmodels`.
#
# **The question.** In 1996 the American National Election Studies asked 944 people what they would
# vote, Clinton or Dole, and much else. How well can a vote be predicted from who people are? And
# how much better if we know what they think? With so few rows every search overfits something. We
# want a number at the end that we can defend.

# %% [markdown]
# ## 1. Load the data

# %%
import tempfile
import textwrap
import warnings
from pathlib import Path

import pandas as pd
from statsmodels.datasets import anes96

survey = anes96.load_pandas().data
survey.index.name = "person"

who = ["age", "educ", "income", "popul", "TVnews"]
opinions = ["selfLR", "ClinLR", "DoleLR"]
vote = survey["vote"].map({0.0: "Clinton", 1.0: "Dole"})

survey[who + opinions].describe().loc[["mean", "min", "max"]].round(1)

# %% [markdown]
# In the first week we have the columns of `who`: age, education, income, the size of the place,
# and how many days a week somebody watches the news. The opinions, on a scale from left to right
# about oneself and about both candidates, arrive in the second week.

# %% [markdown]
# ## 2. Split once
#
# Three parts: rows to **train** on, as often as we like; the **holdout**, which we will query over
# weeks; and **fresh** rows, which nobody touches before the very end. Many projects have no fresh
# rows. Here they are what we check the library's word by.

# %%
from sklearn.model_selection import train_test_split

train, rest = train_test_split(survey.index, train_size=444, random_state=1)
held, fresh = train_test_split(rest, train_size=300, random_state=1)
print(f"{len(train)} to train on, {len(held)} held out, {len(fresh)} fresh")

# %% [markdown]
# ## 3. Register the holdout
#
# Registering writes the rows into a ledger. The ledger is one file; usually it is in your data
# folder and you never name it. The tutorial has a ledger of its own, in a folder that goes away at
# the end.
#
# `ids=` says who is in each row. By them the holdout will be recognised next week, when its
# features are others.

# %%
from ladderholdout import LadderHoldout

folder = tempfile.TemporaryDirectory()
ledger = Path(folder.name) / "ledger.db"

holdout = LadderHoldout(
    survey.loc[held, who],
    vote[held],
    ids=list(held),
    scoring="accuracy",
    name="votes-1996",
    ledger=ledger,
)
holdout

# %% [markdown]
# The mechanism was chosen by the metric: for accuracy it is `PricedLadder`, which releases a new
# score only where a submission is better than the incumbent by more than chance explains.

# %% [markdown]
# ## 4. Search on the training rows, confirm on the holdout
#
# Any search of scikit-learn will do. `holdout.guard` lets it run as it is, on cross-validation of
# the training rows. Only its finalists, at most three that cross-validation cannot distinguish
# from the best, query the holdout.

# %%
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV

grid = {
    "max_depth": [2, 3, 5, 8],
    "min_samples_leaf": [1, 5, 20],
    "max_features": [0.3, 0.6, 1.0],
}
forest = RandomForestClassifier(n_estimators=40, random_state=0)

first = holdout.guard(GridSearchCV(forest, grid, cv=5))
first.fit(survey.loc[train, who], vote[train])
print(first.best_params_)
print(f"{first.best_score_:.3f}")

# %% [markdown]
# The table has one line for each finalist, in the order in which they queried the holdout. The
# inner score is that of the cross-validation. All but the improvements look the same: what is not
# released cannot be overfitted.

# %%
pd.DataFrame(
    {
        "candidate": [one.candidate for one in first.finalists_],
        "inner score": [round(one.inner_score, 3) for one in first.finalists_],
        "released": [round(one.release.score, 3) for one in first.finalists_],
        "improved": [one.release.improved for one in first.finalists_],
    }
)

# %% [markdown]
# ## 5. What may be believed
#
# Two numbers answer that. The **estimate** corrects the winner's score for having been chosen
# among the finalists. It is a best guess without a guarantee.

# %%
print(holdout.estimate())

# %% [markdown]
# The **certificate** is an interval for the true score that holds with a confidence of 95 %,
# however the models were chosen. It counts everything that was released.

# %%
for line in str(first.certificate_).splitlines():
    print(textwrap.fill(line, 84, subsequent_indent="  "))

# %% [markdown]
# How much is that? Among the training rows the more frequent answer alone is right this often.
# (Take the training rows for such questions. What you compute yourself on the holdout's labels, no
# ledger counts.)

# %%
print(f"{vote[train].value_counts(normalize=True).max():.3f}")

# %% [markdown]
# Who people are says little about their vote. That is the result of the first week, and it is on
# record.

# %% [markdown]
# ## 6. The second week: new features
#
# The opinions are in. Somebody opens the notebook again and registers the same people with more
# columns. The library recognises them by their ids: it is the same holdout, with another view, and
# its ladder goes on.

# %%
everything = who + opinions
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    holdout = LadderHoldout(
        survey.loc[held, everything],
        vote[held],
        ids=list(held),
        scoring="accuracy",
        name="votes-1996",
        ledger=ledger,
    )
for one in caught:
    print(textwrap.fill(f"{one.category.__name__}: {one.message}", 84))

# %% [markdown]
# The same search again, on eight columns. This time we follow it in MLflow: everything that is
# *released* goes into a run. `raw="sealed"` keeps raw scores out of MLflow until somebody opens
# the record.

# %%
import logging

import mlflow

logging.getLogger("alembic").setLevel(logging.WARNING)
logging.getLogger("mlflow").setLevel(logging.WARNING)
tracking_uri = f"sqlite:///{folder.name}/mlflow.db"

second = holdout.guard(GridSearchCV(forest, grid, cv=5))
with holdout.track(tracking_uri=tracking_uri, raw="sealed") as tracking:
    second.fit(survey.loc[train, everything], vote[train])

print(second.best_params_)
print(f"{second.best_score_:.3f}", second.is_incumbent_)

# %%
run = mlflow.MlflowClient(tracking_uri).get_metric_history(tracking.run_id, "ladder_released")
pd.DataFrame(
    {"submission": [one.step for one in run], "released": [one.value for one in run]}
).tail(3).round(3)

# %% [markdown]
# Opinions say a lot about a vote. The certificate of the new incumbent pays for everything that
# was released in both weeks:

# %%
print(second.certificate_.line())

# %% [markdown]
# `estimate()` is for one batch. Now there are two, and the second was begun by somebody who had
# seen what came of the first. No replay of a list would show that, so there is none, and it says
# why:

# %%
print(textwrap.fill(str(holdout.estimate()), 84))

# %% [markdown]
# ## 7. The record
#
# Every query of both weeks is in the ledger, in order, and `ladder-holdout verify` checks the
# chain of its entries. Each week was a batch. Where the history tells how good a submission was,
# it was an incumbent:

# %%
pd.DataFrame(
    [(one.number, one.batch[:8], round(one.score, 3), one.improved) for one in holdout.history()],
    columns=["submission", "batch", "released", "improved"],
)

# %% [markdown]
# ## 8. The audit
#
# At the end of the project somebody asks how much of the score is real. An audit opens the raw
# scores. That is for good: what is submitted afterwards can no longer be certified by this ladder.
# We give it the fresh rows, and the model that was chosen.

# %%
audit = holdout.owner.audit(fresh=(survey.loc[fresh, everything], vote[fresh]), model=second)
print(audit.verdict.headline)
for sentence in audit.verdict.sentences:
    print(textwrap.fill(f"- {sentence}", 84, subsequent_indent="  "))

# %% alt="Raw, released and fresh scores over two weeks: a jump where the opinions came in."
# %config InlineBackend.figure_formats = ["svg"]
import matplotlib.pyplot as plt

from ladderholdout.audit import plots

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
plots.scores(audit, ax=ax)
plt.show()

# %% [markdown]
# The line is what was released, with the certificate around it. The circles are raw scores, which
# nobody saw before the audit, and the triangle is the chosen model on the fresh rows.
#
# ## 9. The report
#
# `ladder-holdout report votes-1996` writes all of it as one page for those who were not there. In
# Python the same audit is a table:

# %%
audit.to_frame()[["raw", "incumbent_score", "improved", "disagreement"]].tail(4).round(3)

# %% [markdown]
# The folder of the tutorial goes away, and with it its ledger. Yours stays.

# %%
folder.cleanup()

# %% [markdown]
# ## Where to go on
#
# - [Which way?](which_way.md) is a page of decisions: few rows, adaptive searches, teams, agents.
# - [Search on the training rows, confirm on the holdout](guide/guard.md) has all about `guard`.
# - [The gallery](gallery/index.md) shows what the guard does to climbs, grids and attacks.
# - [Promises and words](promises.md) says what is guaranteed.
