"""A keep-or-revert loop that can be killed; it writes down at once what it is told."""

import json
from pathlib import Path

from support.builders.challenges import make_challenged, wrong_on
from support.programs.sealed_training import arm

WRONG = (200, 120, 118, 60, 59, 20, 61, 2)  # on how many examples each challenger is wrong


def challenge(holdout, number):
    return holdout.challenge("acc", wrong_on(WRONG[number]), query=f"weights {number}")


def told(challenged):
    """What a challenge says, whether or not it was asked before."""
    return [challenged.number, challenged.kept, challenged.incumbent, challenged.price]


def run(url, folder, dies=None):
    """Challenge with all of them, from the first on: known ones repeat."""
    holdout, armed = make_challenged(url), []
    holdout.status()
    if dies is not None:
        arm(dies[0], armed)
    with open(Path(folder) / "shown.jsonl", "a", buffering=1) as shown:
        for number in range(len(WRONG)):
            if dies is not None and number == dies[1]:
                armed.append(True)
            challenged = challenge(holdout, number)
            print(json.dumps([number, *told(challenged)]), file=shown)
