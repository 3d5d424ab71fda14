"""Draws docs/images/terminal-batch.svg: the terminal view of a batch of conversations, coloured by loss.

``python -m workshop.terminal_picture [FILE]``. A test draws it again and compares what is written in it.
"""

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/images/terminal-batch.svg"
_TOPICS = ("snow", "rivers", "bridges", "sluices", "turbines", "gears", "locks", "pumps")
_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_RECIPE = """
seed = 5
batch = 4
[[sources]]
name = "talks@1"
[[stages]]
kind = "chat"
tokenizer = "tokenizer.json"
template = "chat.jinja"
[[stages]]
kind = "pack"
length = 256
policy = "fit"
"""
_LOOKS_MAX = 2000


def main(picture: Path = PICTURE) -> int:
    """Make a small library, look at it, and write the picture."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _library()
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(asyncio.run(_drawn()))
    return 0


def _library() -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    from penstock import Registry

    rows = [
        {
            "messages": [
                {
                    "role": "user",
                    "content": f"Tell me in one sentence how {topic} work, please ☃ ({number}).",
                },
                {
                    "role": "assistant",
                    "content": f"What people call {topic} moves water, number {number} of many.",
                },
            ]
        }
        for number, topic in enumerate(_TOPICS * 8)
    ]
    Path("talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(word, special=True) for word in ("<|end|>", "<|user|>", "<|assistant|>")],
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        [message["content"] for row in rows for message in row["messages"]], trainer
    )
    tokenizer.save("tokenizer.json")
    Path("chat.jinja").write_text(_TEMPLATE)
    Path("recipe.toml").write_text(_RECIPE)
    Registry("registry").register("talks", "talks.jsonl")


async def _drawn() -> str:
    from penstock import Registry
    from penstock.view.address import parse
    from penstock.view.opener import Opener
    from penstock.view.terminal.app import ViewApp
    from penstock.view.terminal.pages.batch_page import BatchPage

    app = ViewApp(
        parse("recipe.toml#step=3,row=1,token=61"), lambda watch: Opener(Registry("registry"), watch=watch)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(_LOOKS_MAX):
            await pilot.pause(0.005)
            if isinstance(app.screen, BatchPage) and app.screen.loader.idle:
                break
        await pilot.press("c")
        for _ in range(20):
            await pilot.pause()
        drawn = app.export_screenshot(title="penstock view recipe.toml#step=3,row=1,token=61")
    # Nothing is fetched from elsewhere: fonts are those of whoever looks.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
