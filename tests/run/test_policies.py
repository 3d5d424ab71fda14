"""Policies are pure: the same values give the same verdict, whoever judges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.run import Policy, Spike
from penstock.run.policies import Case, Observed, joined, judge, push, threshold

FLOATS = st.floats(min_value=-1e6, max_value=1e6)


@given(st.lists(FLOATS, max_size=40), st.floats(allow_nan=True), st.booleans())
def test_a_verdict_follows_from_values_alone(window: list[float], loss: float, early: bool) -> None:
    policy = Policy(non_finite="skip", spike=Spike(k=4, window=32, least=4, then="rollback", back=3))
    seen, case = Observed(50, loss), Case(window=window, early=early)

    verdict = judge(policy, seen, case)

    assert verdict == judge(policy, seen, case)
    assert (verdict.action == "go") == (verdict.reason == "")
    if verdict.leave_out is not None:
        first, stop = verdict.leave_out
        assert 0 <= first <= 50 < stop


@given(st.lists(FLOATS, min_size=16, max_size=128), st.floats(min_value=0, max_value=1e6))
def test_values_up_to_the_threshold_are_no_spike(window: list[float], below: float) -> None:
    spike = Spike(window=128)
    limit = threshold(spike, window)
    assert limit is not None

    def judged(loss: float) -> str:
        return judge(Policy(spike=spike), Observed(9, loss), Case(window=window)).action

    assert judged(limit) == judged(limit - below) == "go"
    above = math.nextafter(limit + abs(limit) * 1e-9 + 1e-9, math.inf)
    assert judged(above) == "skip"


@given(st.lists(FLOATS, max_size=300), st.integers(2, 64))
def test_the_window_is_the_last_accepted_values(values: list[float], size: int) -> None:
    spike = Spike(window=size, least=2)
    window: tuple[float, ...] = ()
    for value in values:
        window = push(window, value, spike)
        window = push(window, math.nan, spike)
    assert window == tuple(values[-size:])


@given(
    st.permutations(range(4)),
    st.lists(st.tuples(FLOATS, FLOATS, st.integers(0, 99)), min_size=4, max_size=4),
)
def test_bad_values_of_any_rank_count(order: list[int], rows: list[tuple[float, float, int]]) -> None:
    """Goal: it does not matter which rank has the NaN. Method: put it on each, in the loss and in the norm."""
    for rank in order:
        with_loss = [(math.nan if at == rank else a, b, c) for at, (a, b, c) in enumerate(rows)]
        with_norm = [(a, math.nan if at == rank else b, c) for at, (a, b, c) in enumerate(rows)]
        policy = Policy(non_finite="skip")
        assert judge(policy, joined(1, with_loss), Case()).action == "skip"
        assert judge(policy, joined(1, with_norm), Case()).action == "skip"
    assert judge(Policy(), joined(1, rows), Case()).action == "go"
    assert joined(1, rows).tokens == sum(tokens for _, _, tokens in rows)


def test_a_step_that_cannot_be_skipped_any_more_is_gone_back_behind() -> None:
    seen = Observed(7, math.inf)
    assert judge(Policy(non_finite="skip"), seen, Case(early=True)).action == "skip"
    late = judge(Policy(non_finite="skip"), seen, Case(early=False))
    assert (late.action, late.leave_out) == ("rollback", (7, 8))


def test_decisions_in_force_and_limits() -> None:
    """Goal: R2, and no endless intervening. Method: judge with a decision, after a replay, and with nothing left."""
    policy = Policy(non_finite="replay", interventions_max=2)
    bad = Observed(7, math.nan)
    assert judge(policy, Observed(7, 1.0), Case(forced={7: "skip"})).repeated
    assert judge(policy, Observed(8, 1.0), Case(forced={7: "skip"})).action == "go"
    assert judge(policy, bad, Case()).action == "replay"
    assert judge(policy, bad, Case(replayed=frozenset({7}))).action == "skip"
    spent = judge(policy, bad, Case(interventions=2))
    assert spent.action == "stop"
    assert "2 interventions" in spent.reason


@pytest.mark.parametrize(
    ("rules", "fields", "message"),
    [
        (Spike, {"k": 0}, "k must be positive, got 0"),
        (Spike, {"least": 1}, "least must be from 2 to window, got 1 of 128"),
        (Spike, {"window": 8}, "least must be from 2 to window, got 16 of 8"),
        (Spike, {"back": -1}, "back must be 0 or more, got -1"),
        (Spike, {"of": "tokens"}, "of must be 'loss' or 'grad_norm', got 'tokens'"),
        (Spike, {"then": "shrug"}, "then must be one of skip, rollback, replay, stop, got 'shrug'"),
        (Policy, {"save_every": 0}, "save_every must be positive, got 0"),
        (Policy, {"save_every_s": -1.0}, "save_every_s must be positive, got -1.0"),
        (Policy, {"digest_every": 0}, "digest_every must be positive, got 0"),
        (Policy, {"grace_s": 0}, "grace_s must be positive, got 0"),
        (Policy, {"interventions_max": -1}, "interventions_max must be 0 or more, got -1"),
        (Policy, {"when_busy": "hurry"}, "when_busy must be 'wait' or 'postpone', got 'hurry'"),
        (
            Policy,
            {"non_finite": "shrug"},
            "non_finite must be None or one of skip, rollback, replay, stop, got 'shrug'",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_what_came(
    rules: type[Spike] | type[Policy], fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        rules(**fields)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_the_identity_is_of_the_rules_alone() -> None:
    assert Policy(save_every=3).identity == Policy(stop_at=9).identity
    assert Policy(spike=Spike()).identity != Policy(spike=Spike(k=9)).identity


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        (Policy(), {"stop"}),
        (Policy(non_finite=None), set()),
        (Policy(non_finite="rollback", spike=Spike(then="replay")), {"rollback", "replay"}),
        (Policy(spike=Spike()), {"stop", "skip"}),
    ],
)
def test_a_policy_names_what_its_rules_can_ask_for(policy: Policy, actions: set[str]) -> None:
    assert policy.actions == actions
