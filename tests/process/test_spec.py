"""A job is checked when it is described, and what makes no sense is refused with its role and field."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import JobInvalid
from penstock.process import Budget, Hang, JobSpec, Launch, Policy, Restarts, Role, Slots
from penstock.process.job.launch import prepare, stem
from penstock.process.job.role_order import cycle, waves

HERE = Path("/")


def spec(*roles: Role, **fields: Any) -> JobSpec:
    return JobSpec(roles=roles or [Role(command=["true"])], directory=HERE, **fields)


def test_the_document_is_the_contract_with_the_agent() -> None:
    """Goal: the agent reads what is written here. Method: the whole document of a job with everything set."""
    policy = Policy(
        restart="all", budget=Budget(crash=1, memory=2, hang=3, preemption=4), hang=Hang(silence_s=1.5)
    )
    role = Role(
        name="trainer",
        command=["python", "t.py"],
        ranks=4,
        environment={"A": "b"},
        directory=Path("/tmp"),
        master_port=29500,
        slots=Slots(gpus=1, memory_bytes=8 << 30),
        spares=1,
        terminal=True,
        policy=policy,
    )
    document = spec(role, name="x", python=Path("/bin/python"), pressure="drop").to_json("x-0001")
    assert document == {
        "id": "x-0001",
        "detached": False,
        "colour": False,
        "cgroup": True,
        "isolate": False,
        "directory": "/",
        "python": "/bin/python",
        "segment_bytes": 0,
        "segments_kept": 0,
        "pressure": "drop",
        "roles": [
            {
                "name": "trainer",
                "kind": "gang",
                "command": ["python", "t.py"],
                "ranks": 4,
                "host": None,
                "after": [],
                "environment": {"A": "b"},
                "directory": "/tmp",
                "master_port": 29500,
                "slots": {"cpus": 0, "gpus": 1, "memory_bytes": 8 << 30, "ports": 0},
                "spares": 1,
                "terminal": True,
                "stdin": None,
                "zygote": None,
                "zygote_why": "",
                "hidden": {},
                "policy": {
                    "restart": "all",
                    "budget": {"crash": 1, "memory": 2, "hang": 3, "preemption": 4, "host": 100},
                    "refill_steps": 100,
                    "backoff_ms": 1000,
                    "backoff_max_ms": 30000,
                    "same_failure_max": 2,
                    "stop_grace_ms": 10000,
                    "save_grace_ms": 300000,
                    "failure_grace_ms": 500,
                    "hang": {
                        "factor": 10.0,
                        "least_ms": 60000,
                        "silence_ms": 1500,
                        "given": False,
                        "stopped_ms": 600000,
                    },
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"command": []}, "command", "there is no command to run"),
        ({"ranks": 0}, "ranks", "must be 1 to 4096, got 0"),
        ({"ranks": 5000}, "ranks", "must be 1 to 4096, got 5000"),
        ({"kind": "gnag"}, "kind", "one of gang, service, task"),
        ({"name": "3x"}, "name", "is not valid for a role"),
        ({"master_port": 70000}, "master_port", "must be 1 to 65535, got 70000"),
        ({"slots": Slots(gpus=-1)}, "slots.gpus", "must be 0 or more, got -1"),
        ({"policy": Policy(restart="some")}, "restart", "one of one, gang, all"),
        ({"policy": Policy(budget=Budget(crash=-1))}, "budget.crash", "must be 0 or more"),
        ({"policy": Policy(stop_grace_s=-1)}, "stop_grace_s", "must be 0 or more"),
        ({"policy": Policy(hang=Hang(factor=0))}, "hang.factor", "must be 1 to 1e+06"),
        ({"environment": {"A B": "c"}}, "environment.A B", "cannot be a variable of the environment"),
    ],
)
def test_a_role_that_makes_no_sense_is_refused(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(JobInvalid, match=r"role '") as caught:
        Role(**{"command": ["true"], **fields})
    assert caught.value.role == fields.get("name", "rank")
    assert caught.value.field == field
    assert words in str(caught.value)


def _role(name: str, *after: str, kind: str = "gang") -> Role:
    return Role(name=name, command=["true"], after=after, kind=kind)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ([_role("a"), _role("a")], "role 'a': name is used twice"),
        ([_role("a", "a")], "role 'a': after names the role itself"),
        ([_role("a", "b")], "role 'a': after names 'b', which is not a role of this job"),
        ([_role("a", "b"), _role("b", "c"), _role("c", "b")], "goes in a circle: b after c after b"),
        (
            [Role(name="a", command=["x"], stdin=0), Role(name="b", command=["x"], stdin=0)],
            "role 'b': stdin is given to 'a' already",
        ),
        ([Role(name="a", command=["x"], ranks=4000), Role(name="b", command=["x"], ranks=97)], "4097 ranks"),
    ],
)
def test_roles_that_do_not_fit_together_are_refused(roles: list[Role], words: str) -> None:
    with pytest.raises(JobInvalid) as caught:
        spec(*roles)
    assert words in str(caught.value)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=3)))
def test_roles_go_in_a_circle_or_can_start_one_after_the_other(graph: dict[str, list[str]]) -> None:
    """Goal: no job waits for itself. Method: any graph has a circle whose every step is in it, or an order that obeys it."""
    after = {name: [other for other in before if other in graph] for name, before in graph.items()}
    circle = cycle(after)
    if circle:
        assert circle[0] == circle[-1]
        assert all(other in after[name] for name, other in pairwise(circle))
    else:
        done: set[str] = set()
        for wave in waves(after):
            assert all(done.issuperset(after[name]) for name in wave)
            done.update(wave)
        assert done == set(after)


def test_restarts_are_a_budget_for_each_cause() -> None:
    assert Budget.of(0) == Budget()
    assert Budget.of(5) == Budget(crash=5, memory=2, hang=5, preemption=1000)
    assert Budget.of(1).memory == 1


def test_the_short_way_makes_one_role(tmp_path: Path) -> None:
    job = prepare(
        tmp_path,
        Launch(command=["python", "-m", "a.b.train"], ranks=3, restarts=Restarts(most=4, backoff_s=0)),
    )
    (role,) = job.description()["roles"]
    assert job.id.startswith("train-")
    assert (role["name"], role["ranks"], role["kind"]) == ("rank", 3, "gang")
    assert (role["policy"]["budget"]["crash"], role["policy"]["backoff_ms"]) == (4, 0)
    assert (job.directory / "logs").is_dir()


def test_a_job_is_called_after_what_it_runs() -> None:
    assert stem(["python", "-u", "some/train.py", "--x"]) == "train"
    assert stem(["python", "-m", "pkg.mod"]) == "mod"
    assert stem(["/bin/sleep", "5"]) == "sleep"
