"""A small model is trained from raw text through a feed, killed in the middle, its newest checkpoint damaged, and ends bit-equal."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import Checkpoints, Filter, Pack, Recipe, Registry, Source, Tokenize
from penstock.cli.scenes import insist

_STEPS = 120
_KILL_AFTER = 45
_TIMEOUT_S = 100
_LANGUAGES = {
    "en": ["the", "water", "turns", "turbine", "pressure", "rises", "and", "falls"],
    "de": ["das", "wasser", "dreht", "rad"],
}
_RECIPE = """\
seed = 17
batch = [[0, 8], [60, 16]]
weights = [[0, {{ web = 0.8, notes = 0.2 }}], [50, {{ web = 0.3, notes = 0.7 }}]]
sources = [{{ name = "web@1" }}, {{ name = "notes@1" }}]

[[stages]]
kind = "filter"
expression = "lang == 'en' and len(text) > 20"

[[stages]]
kind = "tokenize"
tokenizer = "{tokenizer}"

[[stages]]
kind = "pack"
length = 64
"""
#: A bigram model in numpy: next-token logits per token, trained by gradient descent. What is saved is the weights, the losses so far and
#: the feed's cursor; nothing else is needed to go on.
_WORKER = """
import sys
import numpy as np
import penstock as ps

place, registry, steps, threads, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
recipe = ps.Recipe.load(f"{place}/recipe.toml")
state = {"weights": np.zeros((512, 512)), "losses": np.zeros(steps)}
checkpoints = ps.Checkpoints(f"{place}/{sys.argv[6]}", keep=ps.Keep(last=8))
found = checkpoints.resume(state)
cursor = ps.Cursor.from_json(checkpoints.entries(found)["cursor"]) if found else None
weights, done = state["weights"], found.step if found else 0
with ps.open(recipe, registry=ps.Registry(registry), cursor=cursor, threads=threads) as feed:
    for batch in feed:
        tokens = batch["tokens"].astype(np.int64)
        same = batch["segments"][:, 1:] == batch["segments"][:, :-1]
        before, after = tokens[:, :-1][same], tokens[:, 1:][same]
        logits = weights[before]
        chances = np.exp(logits - logits.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        state["losses"][done] = -np.log(chances[np.arange(len(after)), after]).mean()
        chances[np.arange(len(after)), after] -= 1
        np.add.at(weights, before, -8.0 / len(after) * chances)
        done += 1
        if done % 15 == 0 or done == steps:
            checkpoints.save(done, state, entries={"cursor": feed.cursor.to_json()})
        if done == pause:
            checkpoints.wait()
            print("half-way", flush=True)
            sys.stdin.read()
        if done == steps:
            break
checkpoints.wait()
checkpoints.close()
"""


def play(place: Path) -> Iterator[str]:
    """Write text, make a tokenizer, train twice (once through a kill), compare."""
    registry = Registry(place / "registry")
    rows = _write(place)
    for name in ("web", "notes"):
        registry.register(name, place / name)
    recipe = Recipe.load(_recipe(place))
    yield f"{rows:,} raw documents, a tokenizer made from them, a recipe: filter, tokenise, pack, two sources, weights and batch that change"

    _train(place, registry, "straight", threads=2, kill=False)
    _train(place, registry, "killed", threads=2, kill=True)
    damaged = _flip_a_bit(place / "killed")
    _train(place, registry, "killed", threads=0, kill=False)
    straight, resumed = _outcome(place, "straight"), _outcome(place, "killed")
    insist("the loss falls", holds=straight[0][-1] < 0.8 * straight[0][0])
    insist("a killed and resumed run has the same losses, bit for bit", holds=straight[0] == resumed[0])
    insist("and the same weights", holds=straight[1] == resumed[1])
    yield f"trained {_STEPS} steps: loss {straight[0][0]:.3f} → {straight[0][-1]:.3f}"
    kept = Checkpoints(place / "killed", read_only=True).list()
    insist(
        "a damaged checkpoint is noticed",
        holds=[checkpoint.step for checkpoint in kept if checkpoint.damage] == [damaged],
    )
    yield f"killed (signal 9) after {_KILL_AFTER} steps, one bit of its newest checkpoint (step {damaged}) flipped on the disk"
    yield "resumed from the newest good one with other threads: all losses and weights bit-equal"
    insist("the recipe is equal in Python and TOML", holds=_in_python(place) == recipe)


def _train(place: Path, registry: Registry, name: str, *, threads: int, kill: bool) -> None:
    pause = _KILL_AFTER if kill else -1
    words = [str(place), registry.url, str(_STEPS), str(threads), str(pause), name]
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        if kill:
            assert worker.stdout is not None
            worker.stdout.readline()
            worker.kill()
        worker.wait(_TIMEOUT_S)
    insist("the trainer does its work", holds=worker.returncode == (-9 if kill else 0))


def _outcome(place: Path, name: str) -> tuple[list[float], bytes]:
    import numpy as np

    state = {"weights": np.zeros((512, 512)), "losses": np.zeros(_STEPS)}
    checkpoints = Checkpoints(place / name, read_only=True)
    checkpoints.load(checkpoints.at(_STEPS), into=state)
    return state["losses"].tolist(), state["weights"].tobytes()


def _flip_a_bit(place: Path) -> int:
    """Damage the newest checkpoint; its step."""
    newest = Checkpoints(place, read_only=True).list()[-1]
    path = place / newest.manifest.files[0].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return newest.step


def _write(place: Path) -> int:
    draw = random.Random(5)
    count = 0
    for name, documents in (("web", 1500), ("notes", 500)):
        (place / name).mkdir()
        for part in range(2):
            lines = []
            for _ in range(documents // 2):
                lang = draw.choice(list(_LANGUAGES))
                text = " ".join(draw.choices(_LANGUAGES[lang], k=draw.randint(2, 60)))
                lines.append(json.dumps({"lang": lang, "text": text}))
            (place / name / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
        count += documents
    return count


def _recipe(place: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel()
    texts = [" ".join(words) for words in _LANGUAGES.values()]
    tokenizer.train_from_iterator(
        texts, BpeTrainer(vocab_size=512, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    )
    tokenizer.save(str(place / "tokenizer.json"))
    path = place / "recipe.toml"
    path.write_text(_RECIPE.format(tokenizer="tokenizer.json"))
    return path


def _in_python(place: Path) -> Recipe:
    return Recipe(
        sources=(Source("web@1"), Source("notes@1")),
        seed=17,
        batch=((0, 8), (60, 16)),
        weights=((0, {"web": 0.8, "notes": 0.2}), (50, {"web": 0.3, "notes": 0.7})),
        stages=(
            Filter("lang == 'en' and len(text) > 20"),
            Tokenize(str(place / "tokenizer.json")),
            Pack(64),
        ),
    )
