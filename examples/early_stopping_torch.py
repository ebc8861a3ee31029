# Install: pip install '.[deep]'
"""A training loop of PyTorch that stops by the ladder, not by a validation score.

A small network learns handwritten digits. Each epoch is a submission; training stops when ten in
a row did not improve, and the network gets the weights of the best one. Run it twice: the second
time every epoch gets its first answer, and the released score does not change.

    python examples/early_stopping_torch.py
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from torch import nn

from ladderholdout import LadderHoldout
from ladderholdout.integrations.torch import ladder_stopping, untouched

EPOCHS = 200


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the network is small
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=500, random_state=0)
    X_holdout, X_fresh, y_holdout, y_fresh = train_test_split(
        X_rest, y_rest, train_size=600, random_state=0
    )
    holdout = LadderHoldout(X_holdout, y_holdout, scoring="accuracy", name="digits-torch")

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs, targets = torch.tensor(X_train), torch.tensor(y_train)
    # The network puts out logits, one column a class.
    epochs = ladder_stopping(holdout, patience=10, link=partial(softmax, axis=1)).start()
    for _ in range(EPOCHS):
        model.train()
        for rows in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
        if epochs.update(model):
            break
    epochs.restore(model)

    seen = epochs.stopping
    print(f"stopped after     {seen.rounds} of {EPOCHS} epochs, kept number {seen.best_round}")
    print(f"improved in       {sum(one.improved for one in seen.releases)} of them")
    with untouched(model):
        guesses = model(torch.tensor(X_fresh)).argmax(1).numpy()
    print(f"on fresh rows     {accuracy_score(y_fresh, guesses):.3f}")
    print()
    print(holdout.status())


if __name__ == "__main__":
    main()
