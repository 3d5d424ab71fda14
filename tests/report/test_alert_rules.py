"""``alerts.toml``: what it may say, and errors that name the key and what was expected."""

from pathlib import Path

import pytest

from penstock.errors import AlertsInvalid
from penstock.report.watch.alert_rules import DEFAULTS, read_rules, rules_of


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(
        '[notify]\ncommand = ["notify", "--quiet"]\ntimeout_s = 5\n'
        "[alerts.stall]\nfor_s = 600\n[alerts.nan]\nenabled = false\n[alerts.goodput]\nabove = 2\n"
        '[alerts."loss too high"]\nkind = "threshold"\nsignal = "scalar.loss"\nabove = 10\n'
    )
    rules = rules_of(tmp_path)
    by_name = {rule.name: rule for rule in rules.rules}
    assert (rules.command, rules.timeout_s) == (("notify", "--quiet"), 5)
    assert set(by_name) == {*DEFAULTS, "loss too high"} - {"nan"}
    assert by_name["stall"].for_s == 600
    assert by_name["stall"].usual_steps == DEFAULTS["stall"].usual_steps
    assert (by_name["goodput"].above, by_name["goodput"].below, by_name["goodput"].clear) == (2, None, None)
    assert by_name["mfu_drop"] == DEFAULTS["mfu_drop"]


def test_the_file_of_the_run_comes_before_the_one_beside_the_job(tmp_path: Path) -> None:
    run, job = tmp_path / "run", tmp_path / "job"
    run.mkdir()
    job.mkdir()
    assert rules_of(run, job).file == ""
    (job / "alerts.toml").write_text("")
    assert rules_of(run, job).file == str(job / "alerts.toml")
    (run / "alerts.toml").write_text("")
    assert rules_of(run, job).file == str(run / "alerts.toml")


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("alerts = 3", "alerts", "must be a table, got 3"),
        ("[alarms.x]", "alarms", "unknown; there are alerts, notify"),
        ("[alerts]\nstall = 3", "alerts.stall", "must be a table"),
        ("[alerts.stall]\nfor = 3", "alerts.stall.for", "unknown; there are kind, signal"),
        ("[alerts.stall]\nfor_s = '3'", "alerts.stall.for_s", "must be a finite number, got '3'"),
        ("[alerts.stall]\nfor_s = nan", "alerts.stall.for_s", "must be a finite number, got nan"),
        ("[alerts.stall]\nfor_s = -1", "alerts.stall.for_s", "must be 0 to 2592000 seconds, got -1.0"),
        ("[alerts.stall]\nfor_s = true", "alerts.stall.for_s", "must be a finite number, got True"),
        ("[alerts.stall]\nusual_steps = -1", "alerts.stall.usual_steps", "must not be negative"),
        ("[alerts.stall]\nenabled = 1", "alerts.stall.enabled", "must be true or false, got 1"),
        ("[alerts.stall]\nabove = 1", "alerts.stall", "absence has no above or below"),
        ("[alerts.goodput]\nabove = 1\nbelow = 2", "alerts.goodput", "either above or below, not both"),
        (
            "[alerts.goodput]\nclear = 0.1",
            "alerts.goodput.clear",
            "must not be beyond the limit 0.5, got 0.1",
        ),
        ("[alerts.x]\nsignal = 'mfu'", "alerts.x.kind", "missing"),
        ("[alerts.x]\nkind = 'slope'", "alerts.x.signal", "missing"),
        (
            "[alerts.x]\nkind = 'slop'\nsignal = 'mfu'",
            "alerts.x.kind",
            "must be one of threshold, absence, ratio, slope",
        ),
        ("[alerts.x]\nkind = 'slope'\nsignal = 'mfu'", "alerts.x", "slope needs above or below"),
        (
            "[alerts.x]\nkind = 'slope'\nsignal = 'loss'\nabove = 1",
            "alerts.x.signal",
            "or scalar.NAME, got 'loss'",
        ),
        (
            "[alerts.x]\nkind = 'absence'\nsignal = 'mfu'",
            "alerts.x.signal",
            "absence is of step or of scalar.NAME",
        ),
        (
            "[alerts.x]\nkind = 'ratio'\nsignal = 'step'\nabove = 1",
            "alerts.x.signal",
            "step goes with kind absence",
        ),
        ("[notify]\ncommand = 'mail me'", "notify.command", "must be a list of words"),
        ("[notify]\ncommand = []", "notify.command", "must be a list of words"),
        ("[notify]\ncommand = ['a', 3]", "notify.command", "must be a list of words"),
        ("[notify]\ntimeout_s = 0", "notify.timeout_s", "above 0 and at most 600"),
        ("[notify]\nmail = 'me'", "notify.mail", "unknown; there are command, timeout_s"),
        ("[alerts", "", "must be TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, key: str, reason: str) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    with pytest.raises(AlertsInvalid) as problem:
        read_rules(path)
    assert problem.value.key == key
    assert reason in problem.value.reason
    assert str(path) in str(problem.value)


def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(AlertsInvalid, match="must be TOML"):
        read_rules(path)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(AlertsInvalid, match="more than"):
        read_rules(path)
