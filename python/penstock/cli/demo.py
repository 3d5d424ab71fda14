"""``penstock demo``: the best real thing this build does, end to end, and checked.

The demo is a list of scenes. A scene does something real in a fresh directory, tells what it did in a few lines, and
raises ``DemoFailed`` when what it claims is not so; the command exits 0 only if every scene held.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.cli.job.home import home
from penstock.cli.output import Json, command_app, print_json
from penstock.cli.scenes import far, flight, gang, raw, training

app = command_app(
    "demo",
    "Show the best real thing this build does, end to end, and check it.",
    examples="  penstock demo\n  penstock demo --json",
)

Scene = Callable[[Path], Iterator[str]]
SCENES: dict[str, Scene] = {
    "Raw files become a dataset where they are": raw.play,
    "Data is far away: its store refuses, lies and dies, and no bit changes": far.play,
    "A killed process still tells its story": flight.play,
    "A model is trained from raw text, killed, its checkpoint damaged, and resumed bit-equal": training.play,
    "A gang of ranks is supervised: one is killed, the others go on with it, then fewer of them": gang.play,
}


@app.default
def demo(*, json: Json = False) -> int:
    """Play every scene; exit 0 only if what each one shows was checked."""
    begun = time.monotonic()
    account: list[dict[str, object]] = []
    folder = home() / "demo"
    # What the last one left is kept until now, for whoever wants to look at it.
    shutil.rmtree(folder, ignore_errors=True)
    for number, (title, scene) in enumerate(SCENES.items(), start=1):
        place = folder / f"scene-{number}"
        place.mkdir(parents=True)
        if not json:
            print(f"\n{number}. {title}", flush=True)
        lines = []
        for line in scene(place):
            lines.append(line)
            if not json:
                print(f"   {line}", flush=True)
        account.append({"scene": title, "lines": lines})
    took_s = time.monotonic() - begun
    if json:
        print_json({"scenes": account, "took_s": round(took_s, 2)})
    else:
        print(
            f"\nEverything shown above was checked, and lies in {folder} until the next demo. {took_s:.1f} s"
        )
    return 0
