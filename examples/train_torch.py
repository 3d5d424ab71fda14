"""Train a small language model on raw text files with PyTorch, and go on from the middle with the same batches."""

import itertools
import random
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import WordLevelTrainer

import penstock as ps
import penstock.torch

STEPS = 40
SUBJECTS = ["the river", "a turbine", "the valve", "one engineer", "the reservoir"]
VERBS = ["feeds", "opens", "holds", "measures", "follows"]
ENDINGS = ["at full pressure", "before the storm", "without a sound", "until morning"]


def write_text(folder: Path) -> None:
    """Raw files: one document per line, sentences with a structure that can be learnt."""
    draw = random.Random(1)
    folder.mkdir()
    for part in range(4):
        documents = (
            " . ".join(
                f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(SUBJECTS)} {draw.choice(ENDINGS)}"
                for _ in range(draw.randint(1, 8))
            )
            for _ in range(500)
        )
        (folder / f"{part}.txt").write_text("\n".join(documents) + "\n")


def train_tokenizer(folder: Path) -> Path:
    """A word tokenizer of these files, saved as Hugging Face tokenizers are."""
    tokenizer = Tokenizer(WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.train(
        [str(path) for path in sorted(folder.glob("*.txt"))], WordLevelTrainer(special_tokens=["[UNK]"])
    )
    path = folder.parent / "tokenizer.json"
    tokenizer.save(str(path))
    return path


class Model(torch.nn.Module):
    """One layer of causal attention over embeddings."""

    def __init__(self, words: int, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.places = torch.nn.Embedding(length, width)
        self.layer = torch.nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.out = torch.nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """The score of every word at every place; a document sees itself only."""
        length = tokens.shape[1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        apart = segments[:, :, None] != segments[:, None, :]
        mask = (hidden | apart).repeat_interleave(4, dim=0)
        scores: torch.Tensor = self.out(
            self.layer(self.words(tokens) + self.places(positions), src_mask=mask)
        )
        return scores


def main(folder: Path) -> None:
    """From raw files to a falling loss, stopped in the middle and taken up again."""
    write_text(folder / "raw")
    tokenizer = train_tokenizer(folder / "raw")
    registry = ps.Registry(folder / "registry")
    registry.register("text", [str(folder / "raw/*.txt")])
    recipe = ps.Recipe(
        sources=(ps.Source("text@1"),),
        seed=7,
        batch=16,
        stages=(ps.Tokenize(str(tokenizer)), ps.Pack(64)),
    )

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model(Tokenizer.from_file(str(tokenizer)).get_vocab_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    fields = {"tokens": torch.long, "positions": torch.long, "segments": None, "loss_mask": torch.bool}
    losses, digests, state = [], [], {}
    with penstock.torch.loader(recipe, registry=registry, fields=fields) as batches:
        for batch in itertools.islice(batches, STEPS):
            scores = model(batch["tokens"], batch["positions"], batch["segments"])
            kept = batch["loss_mask"][:, 1:]
            loss = torch.nn.functional.cross_entropy(scores[:, :-1][kept], batch["tokens"][:, 1:][kept])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            digests.append(batch.digest)
            if batch.step == STEPS // 2:
                state = batches.state_dict()
            if batch.step % 10 == 0:
                print(f"step {batch.step:3d}  loss {losses[-1]:.3f}  batch {batch.digest[:12]}")

    assert sum(losses[-5:]) < 0.7 * sum(losses[:5]), "the loss did not fall"
    with penstock.torch.loader(recipe, registry=registry) as resumed:
        resumed.load_state_dict(state)
        again = [batch.digest for batch in itertools.islice(resumed, STEPS - STEPS // 2 - 1)]
    assert again == digests[STEPS // 2 + 1 :], "the resumed batches differ"
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; {len(again)} batches after the resume are the same")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
