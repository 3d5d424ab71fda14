"""Columns of the step table, and the parts that a step's time is divided into."""

#: Marks a value that was not measured (O7), in columns of floating-point numbers too: -2⁶³ is exact there.
UNMEASURED = -(1 << 63)
#: Parts of a step. They are disjoint and sum to the step: nested ones give their time to the innermost. ``user`` is the body of the loop as far as
#: nothing else is known of it, ``rest`` the run's own work around it.
PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "exchange",
    "judge",
    "checkpoint",
    "eval",
    "gc",
    "user",
    "rest",
)
#: Parts that only a hook or a span of the program tells: without one they are not measured, and their time is in ``user``.
TOLD_PARTS = ("transfer", "forward", "backward", "optimizer")
HOST = tuple(f"host.{part}" for part in PARTS)
#: The device's own split of a step, between the marks of two steps; ``idle`` is time in which it waited for the host.
DEVICE = (*(f"device.{part}" for part in PARTS), "device.idle")
#: Of the process, its feed and its device, which is looked at about twenty times a second whether it has anything to do. ``exchanged`` is the moment at which the exchange between ranks was over, which no rank leaves before the last has come.
FACTS = (
    "exchanged",
    "tokens",
    "padding",
    "flops_useful",
    "flops_executed",
    "memory_peak",
    "memory_reserved",
    "allocator_retries",
    "rss",
    "feed_depth",
    "bytes_read",
    "device_looks",
    "device_idle_looks",
)
FEED_STAGES = ("plan", "read", "digest", "map")
FEED = tuple(f"feed.{stage}" for stage in FEED_STAGES)
#: Every column of integers, in the order in which rows have them. Scalars are added as they come: ``scalar.NAME``.
INTEGERS = ("step", "begin", "end", *HOST, *DEVICE, *FACTS, *FEED)
#: Folder of the step files, below the directory of a run.
FOLDER = "steps"
