"""A trainer with scikit-learn: logistic regression on its own digits. What is learned need not be a network.

    python3 sklearn_digits.py --init init.safetensors                      writes the initial model
    edge-client join TICKET --trainer 'python3 sklearn_digits.py'
    aggregator simulate --set model.parameters=init.safetensors \\
        --set simulation.trainer='python3 sklearn_digits.py' --set evaluate.command='python3 sklearn_digits.py'

A fifth of the digits are for tests. In a simulation client k of n has every n-th of the others, from the k-th on.
"""

import argparse
import pathlib

import numpy
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

import federation

CLASSES = numpy.arange(10)


def main() -> None:
    """Writes the initial model, or does what it is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", type=pathlib.Path, help="write the initial model to this file, and end")
    given = parser.parse_args()
    if given.init:
        federation.save({"coef": numpy.zeros((10, 64)), "intercept": numpy.zeros(10)}, given.init)
        return
    x, y = load_digits(return_X_y=True)
    x = x / 16
    tests = numpy.arange(len(y)) % 5 == 0
    train_x, train_y = x[~tests], y[~tests]
    for task in federation.tasks(samples=lambda client, clients: len(train_y[client::clients])):
        model = SGDClassifier(
            loss="log_loss", learning_rate="constant", eta0=task.learning_rate or 1.0, random_state=task.seed
        )
        # One call of partial_fit makes the attributes, whose values are then those of the task.
        model.partial_fit(train_x[:1], train_y[:1], classes=CLASSES)
        state = task.arrays()
        model.coef_, model.intercept_ = state["coef"].astype(float), state["intercept"].astype(float)
        if task.is_test:
            loss = log_loss(y[tests], model.predict_proba(x[tests]), labels=CLASSES)
            task.tested(samples=int(tests.sum()), loss=loss, accuracy=model.score(x[tests], y[tests]))
            continue
        own_x, own_y = train_x[task.client :: task.clients], train_y[task.client :: task.clients]
        for epoch in range(task.epochs):
            model.partial_fit(own_x, own_y)
            if not task.progress(epoch + 1, task.epochs):
                break
        loss = log_loss(own_y, model.predict_proba(own_x), labels=CLASSES)
        task.finish({"coef": model.coef_, "intercept": model.intercept_}, loss=loss, steps=task.epochs * len(own_y))


if __name__ == "__main__":
    main()
