"""Secrets are hidden wherever text is shown, and what is no secret stays."""

import json

import pytest

from penstock.process.redacting import HIDDEN, Redaction, is_secret_name


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "github_token", "MY_PASSPHRASE"],
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PATH", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "NUM_TOKENS", "KEYBOARD", "RANK", "PAD_TOKEN"]
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("login with hf_abcdefghijklmnopqrst failed", "hf_abcdefghijklmnopqrst"),
        ("using sk-proj-0123456789abcdefghij", "sk-proj-0123456789abcdefghij"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ0123456 pushed", "ghp_0123456789abcdefghijABCDEFGHIJ0123456"),
        ("AKIAIOSFODNN7EXAMPLE in s3", "AKIAIOSFODNN7EXAMPLE"),
        (
            "wandb key: 0123456789abcdef0123456789abcdef01234567",
            "0123456789abcdef0123456789abcdef01234567",
        ),
        ("postgres://me:hunter2two@db/x", "hunter2two"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ('{"password": "correcthorse9"}', "correcthorse9"),
        ("--api-key=zzzzzzzz1", "zzzzzzzz1"),
        ("export MY_TOKEN=abcdefghij", "abcdefghij"),
    ],
)
def test_shapes_that_are_known_are_hidden(text: str, secret: str) -> None:
    shown = Redaction().text(text)
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "commit 0123456789abcdef0123456789abcdef01234567",
        "num_tokens: 123456789",
        "tokens/s 1234567890",
        "max_tokens=20480000",
        "tokenizer: meta-llama/Llama-3.1",
        "KeyError: 'weights-of-layer'",
        "token embeddings",
        "step 41207 loss 0.1234567890",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().text(text) == text


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
