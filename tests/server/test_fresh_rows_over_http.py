"""Attacks fresh rows behind a server: tokens and limits go on, no client is scored on others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.cli.agents import Tools
from ladderholdout.errors import DailyLimit, HoldoutConflict, InvalidArgument
from ladderholdout.guard.health import verify_holdout
from ladderholdout.server.accounts import add_account, limit_account
from tests.support.holdouts import coins
from tests.support.server import Visitor, local_pages, serving

pytestmark = pytest.mark.processes
N = 60


class Constant:
    """A fitted classifier, of a sort."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> Any:
        return (np.asarray(X)[:, 0] > 0).astype(int)


def test_clients_go_on_when_they_know_the_fresh_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = str(tmp_path / "ledger.db")
    first = LadderHoldout(*coins(N), scoring="accuracy", name="coins", ledger=ledger)
    tokens = {
        name: add_account(ledger, "coins", name, role, per_day=limit, budget=budget).token
        for name, role, limit, budget in (
            ("ada", "analyst", 20, 5),
            ("ben", "analyst", None, None),
            ("olga", "owner", None, None),
        )
    }
    with serving(ledger, tmp_path, "--share-rows", "coins") as server:
        url = f"{server.url}/holdouts/coins"
        ada, ben = (LadderHoldout.connect(url, tokens[name]) for name in ("ada", "ben"))
        assert ada.submit(Constant()).submission == 1
        assert ada.submit(coins(N)[1]).score == 1.0
        monkeypatch.setenv("LADDERHOLDOUT_TOKEN", tokens["ben"])
        agent = Tools(url)
        assert agent.call("status", {})["block"] == 1
        X, y = coins(N, 1)
        with pytest.raises(HoldoutConflict, match="ladder-holdout replenish coins FILE --target"):
            ada.replenish(X, y)
        first.replenish(X, y)
        # As many rows as before: nothing but the block shows that they are others.
        for stale in (ada, ben):
            for question, *asked in (
                (stale.submit, coins(N)[1]),
                (stale.submit, Constant()),
                (stale.status,),
                (stale.certificate,),
            ):
                with pytest.raises(HoldoutConflict, match=r"at block 2.*Connect again"):
                    question(*asked)
            with pytest.raises(HoldoutConflict, match="at block 2"), stale.batch() as batch:
                batch.submit(coins(N)[1])
        again = LadderHoldout.connect(url, tokens["ada"])
        share = np.mean((X[:, 0] > 0) == y)
        assert again.submit(Constant()).score == pytest.approx(share)  # on the rows of now
        assert again.submit(y).score == 1.0
        assert (again.status().block, again.status().budget) == (2, 5)
        assert again.history()[0].number == 1
        health = again.health(more=3, spent_at=0.1)
        told = server.ask(
            "POST", "/v1/holdouts/coins/health?more=3&spent_at=0.1", tokens["ada"]
        ).json()
        assert (told["width"], told["width_after"]) == (health.width, health.width_after)
        assert (told["spent"], told["block"], told["fresh_rows"]) == (True, 2, health.fresh_rows)
        for wrong in ("more=0", "spent_at=-1", "spent_at=nan"):
            path = f"/v1/holdouts/coins/health?{wrong}"
            assert server.ask("POST", path, tokens["ada"]).status_code == 422
        # The owner's rule is everybody's, and a client states none.
        assert again.health().spent is None
        with pytest.raises(HoldoutConflict, match="for the owner"):
            again.owner.spent_at(0.1)
        LadderHoldout.open("coins", ledger=ledger).owner.spent_at(0.1)
        assert again.health(more=3) == health and again.status().spent_at == 0.1
        # The tools of an agent are refused until it was told that there are other rows.
        guess = {"predictions": (1 - y).tolist()}
        for name in ("submit", "health", "submit"):
            with pytest.raises(HoldoutConflict, match="at block 2"):
                agent.call(name, guess if name == "submit" else {})
        assert agent.call("status", {})["block"] == 2
        assert agent.call("submit", guess)["submission"] == 1
        # What a day may have is counted through both blocks.
        limit_account(ledger, "coins", "ada", 4)
        with pytest.raises(DailyLimit):
            again.submit(1 - y)
        limit_account(ledger, "coins", "ada", 5)
        again.submit(1 - y)
        # Who states no block is taken at the word, and who states another is refused.
        asked = {"json": {"predictions": (1 - y).tolist()}, "token": tokens["ben"]}
        path = "/v1/holdouts/coins/submit"
        assert server.ask("POST", path, headers={"Holdout-Block": "1"}, **asked).status_code == 409
        assert server.ask("POST", path, headers={"Holdout-Block": "2"}, **asked).ok
        assert server.ask("POST", "/v1/holdouts/coins/describe", tokens["ben"]).json()["block"] == 2
        # Rows of one's own are compared with those of now.
        with pytest.raises(InvalidArgument):
            LadderHoldout.connect(url, tokens["ben"], coins(N)[0])
        mine = LadderHoldout.connect(url, tokens["ben"], X[::-1])
        assert mine.submit(y[::-1]).score == 1.0
        # A page that was open when the rows came is refused, and one of now is not.
        visitor = Visitor(server, tokens["ben"])
        page = visitor.get("/holdouts/coins").text
        assert "2, fresh rows in the place of those before" in page
        assert 'name="block" value="2"' in page
        file = ("predictions.csv", "label\n" + "\n".join(map(str, y[::-1])))
        assert "at block 2" in visitor.post("/holdouts/coins/submissions", file, block="1").text
        assert visitor.post("/holdouts/coins/submissions", file, block="2").status_code == 303
        accounts = server.ask("POST", "/v1/holdouts/coins/accounts", tokens["olga"]).json()
        assert {account["name"] for account in accounts} == {"ada", "ben", "olga"}
    with local_pages(ledger, tmp_path) as (home, printed):
        visitor = Visitor(home)
        visitor.get(printed.removeprefix(home.url))
        assert "/holdouts/coins%401" in visitor.get("/").text
        earlier = visitor.get("/holdouts/coins@1?account=ada&ladder=main").text
        assert "they are block 1 of coins" in earlier and 'type="file"' not in earlier
        assert 'type="file"' in visitor.get("/holdouts/coins?account=ada&ladder=main").text
    verified = verify_holdout(f"sqlite:///{ledger}", "coins")
    assert (verified.blocks, verified.findings) == (2, ())
