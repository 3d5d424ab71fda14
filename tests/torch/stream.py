"""A small stream of raw text for tests of adapters: two sources, a filter, weights and batches that change."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import penstock as ps
from tests.registry.test_measuring import write_tokenizer


@dataclass(frozen=True)
class Stream:
    """Registered raw files and a tokenizer; recipes over them, endless and finite."""

    folder: Path

    @property
    def registry(self) -> ps.Registry:
        return ps.Registry(str(self.folder / "registry"))

    def recipe(self, seed: int = 17) -> ps.Recipe:
        return ps.Recipe(
            sources=(
                ps.Source("web@1", stages=(ps.Filter("lang == 'en'"),)),
                ps.Source("code@1"),
            ),
            seed=seed,
            batch=((0, 16), (6, 24)),
            stages=(ps.Tokenize(str(self.folder / "tokenizer.json")), ps.Pack(32)),
            weights=((0, {"web": 0.7, "code": 0.3}), (4, {"web": 0.2, "code": 0.8})),
        )

    def finite(self) -> ps.Recipe:
        return ps.Recipe(
            sources=(ps.Source("code@1", epochs=2),),
            batch=16,
            stages=(ps.Tokenize(str(self.folder / "tokenizer.json")), ps.Pack(32)),
        )

    def batches(
        self, count: int, recipe: ps.Recipe | None = None, lane: ps.Lane | None = None
    ) -> list[ps.Batch]:
        """The first batches as the feed itself gives them."""
        with ps.open(recipe or self.recipe(), registry=self.registry, lane=lane, threads=0) as feed:
            return [next(feed) for _ in range(count)]


def make_stream(folder: Path) -> Stream:
    """Write the files, register them, and measure what the recipes need, so that nobody measures twice."""
    draw = random.Random(5)
    for name, rows in (("web", 600), ("code", 300)):
        (folder / name).mkdir()
        for part in range(2):
            lines = [
                {
                    "lang": draw.choice(["en", "de"]),
                    "text": " ".join(str(draw.randint(0, 999)) for _ in range(draw.randint(1, 40))),
                }
                for _ in range(rows // 2)
            ]
            (folder / name / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_tokenizer(folder / "tokenizer.json")
    stream = Stream(folder)
    for name in ("web", "code"):
        stream.registry.register(name, folder / name)
    stream.batches(1)
    return stream
