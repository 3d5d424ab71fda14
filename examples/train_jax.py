"""Train a bigram model on raw text with JAX over all devices, and go on from the middle with the same batches."""

import itertools
import json
import random
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import penstock as ps
import penstock.jax

STEPS = 40
WORDS = 64


def write_rows(folder: Path) -> ps.Recipe:
    """Raw rows in which a word tells much about the next one, a tokenizer for them, and the recipe over both."""
    draw = random.Random(1)
    (folder / "raw").mkdir()
    for part in range(2):
        with (folder / f"raw/{part}.jsonl").open("w") as file:
            for _ in range(400):
                words = [draw.randrange(WORDS)]
                for _ in range(draw.randint(5, 60)):
                    words.append((words[-1] * 5 + draw.randrange(3)) % WORDS)
                file.write(json.dumps({"text": " ".join(f"w{word}" for word in words)}) + "\n")
    tokenizer = Tokenizer(WordLevel({f"w{n}": n for n in range(WORDS)} | {"[UNK]": WORDS}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return ps.Recipe(
        sources=(ps.Source("rows@1"),),
        seed=7,
        batch=16 * jax.device_count(),
        stages=(ps.Tokenize(str(folder / "tokenizer.json")), ps.Pack(64)),
    )


@jax.jit
def train_step(weights: jax.Array, batch: penstock.jax.Batch) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent; only pairs within a document count."""

    def loss_of(weights: jax.Array) -> jax.Array:
        tokens, segments = batch["tokens"], batch["segments"]
        chances = jax.nn.log_softmax(weights[tokens[:, :-1]])
        likelihood = jnp.take_along_axis(chances, tokens[:, 1:, None], axis=-1)[..., 0]
        kept = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
        return -(likelihood * kept).sum() / kept.sum()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 30.0 * gradient, loss


def main(folder: Path) -> None:
    """From raw rows to a falling loss, stopped in the middle and taken up again."""
    recipe = write_rows(folder)
    registry = ps.Registry(folder / "registry")
    registry.register("rows", [str(folder / "raw/*.jsonl")])
    weights = jnp.zeros((WORDS + 1, WORDS + 1))
    losses, digests, state = [], [], {}
    with penstock.jax.loader(recipe, registry=registry) as batches:
        for batch in itertools.islice(batches, STEPS):
            weights, loss = train_step(weights, batch)
            losses.append(float(loss))
            digests.append(batch.digest)
            if batch.step == STEPS // 2:
                state = batches.state_dict()
            if batch.step % 10 == 0:
                print(f"step {batch.step:3d}  loss {losses[-1]:.3f}  batch {batch.digest[:12]}")

    assert losses[-1] < 0.7 * losses[0], "the loss did not fall"
    with penstock.jax.loader(recipe, registry=registry) as resumed:
        resumed.load_state_dict(state)
        again = [batch.digest for batch in itertools.islice(resumed, STEPS - STEPS // 2 - 1)]
    assert again == digests[STEPS // 2 + 1 :], "the resumed batches differ"
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; {len(again)} batches after the resume are the same")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
