"""Secrets are hidden wherever text is shown, and what is no secret stays."""

import json

import pytest

from penstock.events.redaction import HIDDEN, Redaction, is_secret_name
from tests.conftest import ROOT

#: The agent's own tests read the same file: one set of rules, in two languages.
CASES = json.loads((ROOT / "tests/golden/redaction.json").read_text())


@pytest.mark.parametrize(("text", "shown"), CASES["hidden"])
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert Redaction().text(text) == shown
    assert Redaction().text(shown) == shown


@pytest.mark.parametrize("text", CASES["kept"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_names_that_say_secret() -> None:
    assert [name for name in CASES["secret_names"] if not is_secret_name(name)] == []
    assert [name for name in CASES["other_names"] if is_secret_name(name)] == []


def test_values_of_an_environment_are_replaced_by_their_names() -> None:
    redaction = Redaction({"HF_TOKEN": "hunter2hunter2", "SHORT_TOKEN": "abc", "HOME": "/some/where/long"})
    assert redaction.text("got hunter2hunter2 abc /some/where/long") == "got [HF_TOKEN] abc /some/where/long"


def test_commands_hide_what_follows_an_option() -> None:
    words = ["python", "train.py", "--token", "abc", "--lr", "3e-4", "--api_key=k", "--max-tokens", "2048"]
    assert Redaction().command(words) == [
        "python",
        "train.py",
        "--token",
        HIDDEN,
        "--lr",
        "3e-4",
        f"--api_key={HIDDEN}",
        "--max-tokens",
        "2048",
    ]


def test_documents_hide_fields_by_name_and_text_by_shape() -> None:
    document = {
        "environment": {"HF_TOKEN": "x", "MODE": "fast"},
        "command": ["run", "--password", "p"],
        "ranks": [{"stderr": ["got sk-0123456789abcdefgh"], "pid": 7}],
    }
    shown = json.dumps(Redaction().document(document))
    assert shown == json.dumps(
        {
            "environment": {"HF_TOKEN": HIDDEN, "MODE": "fast"},
            "command": ["run", "--password", HIDDEN],
            "ranks": [{"stderr": [f"got {HIDDEN}"], "pid": 7}],
        }
    )


@pytest.mark.parametrize(
    "word",
    ["y" * 200_000, "token" * 40_000, "a-" * 100_000, "token " * 40_000, "://" * 60_000, "key " * 50_000],
    ids=["letters", "names", "dashes", "words", "addresses", "keys"],
)
def test_a_very_long_word_is_looked_at_once(word: str) -> None:
    """Goal: a command with a long argument holds up no list of jobs (it took minutes). Method: words that rules could begin in anywhere."""
    shown = Redaction().text(f"{word}, --api-key=abcd1234efgh")
    assert shown.endswith("--api-key=[secret]")
