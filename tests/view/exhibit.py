"""Something of everything to look at: text, code, conversations, pictures, sound, and values that mean harm.

One folder with raw files, a registry, a byte-level tokenizer and recipes. Tests of views, the pictures of the documents and
the benchmark show it; the same call gives the same bytes.
"""

import io
import json
import math
import random
import struct
import tarfile
import wave
import zlib
from dataclasses import dataclass
from pathlib import Path

import penstock as ps

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
TURNED = "pay\u202e001\u202c now\u200b\u2066hidden\u2069"
HOSTILE_FIELD = "<b onmouseover=alert(1)>\u202efield"
_WORDS = [
    "the",
    "river",
    "turns",
    "below",
    "the",
    "mill",
    "and",
    "the",
    "wheel",
    "carries",
    "water",
    "to",
    "the",
    "field",
    "while",
    "rain",
    "falls",
    "on",
    "stones",
    "a",
    "pipe",
    "brings",
    "pressure",
    "from",
    "the",
    "dam",
    "to",
    "the",
    "turbine",
    "hall",
    "where",
    "engineers",
    "measure",
    "every",
    "step",
    "of",
    "flow",
    "data",
    "moves",
    "like",
    "water",
    "it",
    "must",
    "arrive",
    "clean",
    "in",
    "order",
    "and",
    "at",
    "full",
    "pressure",
    "or",
    "the",
    "machine",
    "waits",
]
_ODD = (
    "naïve café – 東京は雨",
    "emoji 🚰💧 and ﷽",
    "Ελληνικά και русский",
    "שלום مرحبا",
    "tab\there\r\nand there",
)
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


@dataclass(frozen=True)
class Exhibit:
    """Where everything is."""

    folder: Path

    @property
    def registry(self) -> ps.Registry:
        """Names and versions."""
        return ps.Registry(self.folder / "registry")


def make_exhibit(folder: Path) -> Exhibit:
    """Write and register everything."""
    folder.mkdir(parents=True, exist_ok=True)
    exhibit = Exhibit(folder)
    registry = exhibit.registry
    documents = [_document(number) for number in range(1200)]
    _write_lines(folder / "raw/web/000.jsonl", documents[:600])
    registry.register("web", folder / "raw/web", about=ps.About(note="first crawl"))
    _write_lines(folder / "raw/web/001.jsonl", documents[600:])
    web = registry.register("web", folder / "raw/web", about=ps.About(note="second crawl", licence="CC0"))
    registry.tag("web@2", "gold")
    _write_lines(folder / "raw/code.jsonl", [_code(number) for number in range(300)])
    registry.register("code", folder / "raw/code.jsonl")
    _write_lines(folder / "raw/chat.jsonl", [_conversation(number) for number in range(200)])
    registry.register("chat", folder / "raw/chat.jsonl")
    _write_pictures(folder / "raw/pictures.tar", 24)
    registry.register("pictures", folder / "raw/pictures.tar")
    write_tokenizer(folder / "tokenizer.json", [row["text"] for row in documents[:300]])
    (folder / "chat.jinja").write_text(TEMPLATE)
    _write_recipes(folder)
    # The browser's view measures nothing.
    for name in ("recipe", "edited", "chat", "pictures"):
        ps.batch_at(ps.Recipe.load(folder / f"{name}.toml"), step=0, registry=registry)
    registry.export(web.address, "parquet", folder / "exported", name="web/parquet")
    return exhibit


def write_tokenizer(path: Path, texts: list[str]) -> Path:
    """A byte-level tokenizer, trained on a little text, so that rare characters fall into bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|end|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return path


def _write_recipes(folder: Path) -> None:
    tokenize = '[[stages]]\nkind = "tokenize"\ntokenizer = "tokenizer.json"\n'
    mixed = '[[sources]]\nname = "web@2"\nweight = 0.7\n\n[[sources]]\nname = "code@1"\nweight = 0.3\n\n'
    pack = '\n[[stages]]\nkind = "pack"\nlength = 256\npolicy = "fit"\n'
    (folder / "recipe.toml").write_text(f"seed = 17\nbatch = 16\n\n{mixed}{tokenize}{pack}")
    (folder / "edited.toml").write_text(
        f"seed = 17\nbatch = 16\n\n{mixed.replace('0.7', '0.5').replace('0.3', '0.5')}{tokenize}{pack}"
    )
    chat = '[[sources]]\nname = "chat@1"\n\n[[stages]]\nkind = "chat"\ntokenizer = "tokenizer.json"\ntemplate = "chat.jinja"\n'
    (folder / "chat.toml").write_text(f"seed = 3\nbatch = 8\n\n{chat}{pack}")
    (folder / "pictures.toml").write_text('seed = 5\nbatch = 4\n\n[[sources]]\nname = "pictures@1"\n')


def _document(number: int) -> dict[str, object]:
    draws = random.Random(number)
    words = [draws.choice(_WORDS) for _ in range(draws.randint(8, 140))]
    if number % 7 == 0:
        words.insert(len(words) // 2, _ODD[number // 7 % len(_ODD)])
    text = " ".join(words)
    if number == 3:
        text = f"{SCRIPT} {IMAGE} {TURNED} {text}"
    row: dict[str, object] = {
        "id": number,
        "text": text,
        "lang": draws.choices(["en", "de", "fr", SCRIPT if number < 600 else "ja"], [70, 15, 10, 5])[0],
        "score": round(draws.betavariate(5, 2), 4),
        "tokens": len(words),
    }
    if number % 3:
        row["url"] = f"https://example.org/{number}"
    row[HOSTILE_FIELD] = TURNED if number == 3 else "quiet"
    return row


def _code(number: int) -> dict[str, object]:
    draws = random.Random(1000 + number)
    lines = [f"def f{number}(x):"]
    lines += [f"    {draws.choice(_WORDS)} = x * {draws.randint(2, 99)}" for _ in range(draws.randint(3, 20))]
    return {"id": number, "text": "\n".join([*lines, "    return x", ""]), "path": f"src/m{number}.py"}


def _conversation(number: int) -> dict[str, object]:
    draws = random.Random(2000 + number)
    messages = [{"role": "system", "content": "Answer briefly."}]
    for turn in range(draws.randint(2, 6)):
        said = " ".join(draws.choice(_WORDS) for _ in range(draws.randint(5, 30)))
        messages.append({"role": "assistant" if turn % 2 else "user", "content": said})
    return {"id": number, "messages": messages}


def _write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write_pictures(path: Path, count: int) -> None:
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            members = {
                "png": picture(96, 64, number),
                "wav": sound(0.25, 220 * 2 ** (number / 12)),
                "json": json.dumps({"caption": f"waves number {number}", "loud": number % 3}).encode(),
                "bin": random.Random(number).randbytes(300),
            }
            for extension, data in members.items():
                about = tarfile.TarInfo(f"{number:06d}.{extension}")
                about.size = len(data)
                archive.addfile(about, io.BytesIO(data))


def picture(width: int, height: int, seed: int) -> bytes:
    """A PNG of coloured waves."""
    rows = []
    for y in range(height):
        line = bytearray(b"\0")
        for x in range(width):
            wave_at = math.sin(x / 9 + seed) + math.cos(y / 7 - seed / 3)
            line += bytes((int(90 + 40 * wave_at), int(120 + 50 * wave_at), int(150 + 45 * wave_at)))
        rows.append(bytes(line))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def sound(seconds: float, pitch: float) -> bytes:
    """A WAV of one tone."""
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        samples = (int(8000 * math.sin(2 * math.pi * pitch * at / 8000)) for at in range(int(8000 * seconds)))
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return held.getvalue()


def add_large(exhibit: Exhibit, *, rows: int = 64, length: int = 8192) -> str:
    """A recipe whose step has many tokens, by its name; made once."""
    name = f"large-{rows}x{length}"
    if not (exhibit.folder / f"{name}.toml").exists():
        draws = random.Random(7)
        # A word is a token or a little more, so that twice the step is there to be read.
        documents = [{"text": " ".join(draws.choices(_WORDS, k=length // 8))} for _ in range(2 * rows * 8)]
        _write_lines(exhibit.folder / f"raw/{name}.jsonl", documents)  # type: ignore[arg-type]
        exhibit.registry.register(name, exhibit.folder / f"raw/{name}.jsonl")
        (exhibit.folder / f"{name}.toml").write_text(
            f'seed = 1\nbatch = {rows}\n\n[[sources]]\nname = "{name}@1"\n\n'
            '[[stages]]\nkind = "tokenize"\ntokenizer = "tokenizer.json"\n\n'
            f'[[stages]]\nkind = "pack"\nlength = {length}\n'
        )
        ps.batch_at(ps.Recipe.load(exhibit.folder / f"{name}.toml"), step=0, registry=exhibit.registry)
    return f"{name}.toml"
