"""What time is spent on. Every nanosecond of a rank is in one account (O1); a nanosecond of ``train`` is in one part of a step as well.

The order is that of a life. ``unmeasured`` is time that nothing recorded tells about: it is shown, never guessed and never left out (O7).
"""

UNKNOWN = "unmeasured"

#: Accounts of a life.
ACCOUNTS = {
    "queue": "from the request of a life until it has its machine",
    "spawn": "until its process exists",
    "start": "from the birth of the process until it joined the run: imports, the model",
    "rendezvous": "waiting for the other ranks before training",
    "compile": "compiling the model",
    "restore": "reading a checkpoint, and going back to an earlier step",
    "train": "steps that count, and what lies before each of them",
    "lost": "steps that do not count: training resumed before them",
    "torn": "the step that a death interrupted",
    "finish": "from the last step to the end of the process: the last checkpoint, the last evaluation",
    "hang": "from the last sign of work until the supervisor called it a hang",
    "drain": "from a failure until all processes of the life are gone",
    "backoff": "the supervisor waits before it starts another life",
    "down": "from the end of a life until the next one is requested",
    "suspended": "the machine slept",
    UNKNOWN: "nothing that was recorded tells",
}

#: Parts of a step.
PARTS = {
    "data": "waiting for a batch",
    "transfer": "moving the batch to the device",
    "forward": "the model and the loss",
    "backward": "gradients, and collectives inside of them",
    "optimizer": "the update",
    "exchange": "waiting for other ranks",
    "judge": "waiting for values that a policy judges",
    "checkpoint": "training stands still for a save",
    "eval": "evaluation",
    "gc": "Python collects garbage",
    "user": "other code of the program",
    "rest": "between what is recorded",
    UNKNOWN: "nothing that was recorded tells",
}

#: Accounts that a span may name; the other accounts follow from marks and steps.
SPAN_ACCOUNTS = tuple(name for name in ACCOUNTS if name not in ("train", "lost", "torn", UNKNOWN))
#: Parts that a span may name.
STEP_PARTS = tuple(name for name in PARTS if name != UNKNOWN)
SPAN_PARTS = frozenset(STEP_PARTS)

_NAMES = (*ACCOUNTS, *(f"train.{part}" for part in PARTS))
#: Small numbers for arrays: accounts first, then parts.
CODE = {name: code for code, name in enumerate(_NAMES)}
PART_CODE = {part: CODE[f"train.{part}"] for part in PARTS}
