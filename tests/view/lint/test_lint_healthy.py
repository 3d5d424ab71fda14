"""Good data of many kinds: lint has nothing to say of it, because what cries wolf is switched off."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.view.lint.bench import SPECIALS, Bench, Case, chats
from tests.view.lint.healthy import HEALTHY


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_lint_has_nothing_to_say_of_good_data(case: Case, bench: Bench) -> None:
    """Goal: no false alarm. Method: a real recipe over real text, or batches of another loader; not even a warning."""
    report = case.make(bench)
    assert [(finding.kind, finding.sentence, finding.places) for finding in report.findings] == []
    assert report.batches > 0


@pytest.mark.parametrize("name", ["gptoss", "gemma3", "llama3_training", "phi3", "qwen3"])
def test_lint_has_nothing_to_say_of_templates_as_they_are_shipped(name: str, bench: Bench) -> None:
    """Goal: real templates are healthy. Method: those of TRL, with a tokenizer that has their special tokens."""
    from tokenizers import AddedToken, Tokenizer

    # Importing it would take longer than the test.
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    template = next(Path(spec.origin).parent.rglob(f"{name}.jinja"))
    words = set(re.findall(r"<\|[a-z_]+\|>|<(?:start|end)_of_turn>|<bos>|</s>", template.read_text()))
    folder = bench.folder / name
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_file(str(bench.tokenizer))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in sorted(words | {"</s>"})])
    tokenizer.save(str(folder / "tokenizer.json"))
    configuration = {"eos_token": "</s>", "bos_token": SPECIALS[0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))
    stage = {
        "kind": "chat",
        "tokenizer": str(folder / "tokenizer.json"),
        "template": str(template),
        "date": "2024-07-26",
    }
    recipe = bench.recipe(
        bench.rows("chats", chats(80)), stage, {"kind": "pack", "length": 768, "policy": "fit"}
    )
    assert [(finding.kind, finding.sentence) for finding in bench.lint(recipe, steps=4).findings] == []
