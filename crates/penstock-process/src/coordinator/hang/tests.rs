//! Limits, excuses, work and blame, without a clock or a process.

use proptest::prelude::*;

use super::*;

const GIVEN: HangRule =
    HangRule { factor: 10.0, least_ms: 2000, silence_ms: 0, given: true, stopped_ms: 600_000 };
const DEFAULT: HangRule = HangRule { least_ms: 60_000, given: false, ..GIVEN };

fn pulse(step: u64, at_ms: u64, typical_ms: u64) -> Pulse {
    Pulse {
        step,
        step_at_ms: at_ms,
        steps: 9,
        typical_ms,
        longest_ms: typical_ms,
        phase: "step".into(),
        ..Pulse::default()
    }
}

fn suspect(rank: u32, pulse: &Pulse) -> Suspect<'_> {
    Suspect { rank, pulse: Some(pulse), heard_ms: None, signs: Signs::default() }
}

/// With looks at stacks as often as they are wanted.
fn judged(now_ms: u64, suspects: &[Suspect<'_>], rule: &HangRule) -> Judgement {
    let looks: Vec<u64> = (0..).map(|n| n * 1000).take_while(|at_ms| *at_ms <= now_ms).collect();
    let patience = Patience::default();
    judge(&Case { now_ms, suspects, patience: &patience, looks: &looks, rule, past: Past::default() })
}

fn hung(now_ms: u64, suspects: &[Suspect<'_>], rule: &HangRule) -> Option<(Option<u32>, String)> {
    match judged(now_ms, suspects, rule) {
        Judgement::Hung(hang) => Some((hang.rank, hang.what)),
        _ => None,
    }
}

#[test]
fn a_hang_is_many_times_the_learned_step() {
    let one = pulse(40, 1000, 500);
    assert_eq!(judged(5999, &[suspect(0, &one)], &GIVEN), Judgement::Fine(Some(6000)));
    let (rank, why) = hung(6000, &[suspect(0, &one)], &GIVEN).unwrap();
    assert_eq!(
        (rank, why.as_str()),
        (Some(0), "rank 0 hangs: no step for 5.0 s after step 40; a step usually takes 0.500 s")
    );
}

#[test]
fn without_a_chosen_limit_it_is_a_minute_at_least_and_three_times_the_longest_gap_of_any_life() {
    let one = pulse(40, 1000, 100);
    assert_eq!(hung(60_999, &[suspect(0, &one)], &DEFAULT), None);
    assert!(hung(61_000, &[suspect(0, &one)], &DEFAULT).is_some());
    let past = Past { longest_ms: 40_000, ..Past::default() };
    assert_eq!(limit_ms(&one, &DEFAULT, &past), 120_000);
    assert_eq!(limit_ms(&pulse(40, 0, 30_000), &DEFAULT, &past), 300_000);
    assert_eq!(limit_ms(&one, &DEFAULT, &Past { times: 4, ..past }), 480_000);
}

#[test]
fn stacks_are_looked_at_before_a_verdict_once_for_a_chosen_limit_and_often_for_the_default() {
    let one = pulse(40, 0, 100);
    let suspects = [suspect(0, &one)];
    let at = |now_ms, looks: &[u64], rule| {
        let patience = Patience::default();
        judge(&Case { now_ms, suspects: &suspects, patience: &patience, looks, rule, past: Past::default() })
    };
    assert_eq!(at(1999, &[], &GIVEN), Judgement::Fine(Some(2000)));
    assert_eq!(at(2000, &[], &GIVEN), Judgement::Look);
    assert_eq!(at(2500, &[1900], &GIVEN), Judgement::Look, "that was too early");
    assert!(matches!(at(2500, &[2400], &GIVEN), Judgement::Hung(_)));
    // Four looks, 7.5 s apart.
    assert_eq!(at(29_000, &[], &DEFAULT), Judgement::Fine(Some(30_000)));
    assert_eq!(at(30_000, &[], &DEFAULT), Judgement::Look);
    assert!(matches!(at(38_000, &[31_000], &DEFAULT), Judgement::Fine(_)));
    assert_eq!(at(38_500, &[31_000], &DEFAULT), Judgement::Look);
    assert_eq!(at(60_000, &[31_000, 39_000, 47_000], &DEFAULT), Judgement::Look);
    let four = [31_000, 39_000, 47_000, 55_000];
    assert_eq!(at(56_000, &four, &DEFAULT), Judgement::Fine(Some(60_000)));
    assert!(matches!(at(60_000, &four, &DEFAULT), Judgement::Hung(_)));
}

#[test]
fn work_of_anybody_gives_the_gang_half_an_hour_but_not_against_a_chosen_limit() {
    let (one, other) = (pulse(40, 1000, 100), pulse(40, 1000, 100));
    let mut busy = suspect(1, &other);
    busy.signs.bytes_ms = Some(100_000);
    let suspects = [suspect(0, &one), busy];
    assert_eq!(hung(159_999, &suspects, &DEFAULT), None);
    assert!(hung(160_000, &suspects, &DEFAULT).is_some(), "a minute after the last work");
    assert!(hung(100_000, &suspects, &GIVEN).is_some());
    let mut busy = suspect(1, &other);
    busy.signs.bytes_ms = Some(1000 + WORK_MS - 1);
    let suspects = [suspect(0, &one), busy];
    assert_eq!(hung(1000 + WORK_MS - 1, &suspects, &DEFAULT), None);
    assert!(hung(1000 + WORK_MS, &suspects, &DEFAULT).is_some(), "work is no excuse for ever");
}

#[test]
fn bytes_are_work_from_a_floor_on_and_children_that_end_take_nothing_away() {
    let mut signs = Signs::default();
    signs.note_bytes(10_000, 1);
    assert_eq!(signs.bytes_ms, None, "what came before is not known");
    signs.note_bytes(10_000 + IDLE_BYTES_MAX, 2);
    assert_eq!(signs.bytes_ms, None);
    signs.note_bytes(30_000, 3);
    assert_eq!(signs.bytes_ms, Some(3));
    signs.note_bytes(5000, 4);
    signs.note_bytes(30_000, 5);
    assert_eq!(signs.bytes_ms, Some(3));
    let place = |digest| Some(StackPlace { digest, collective: false });
    signs.note_place(place(1), 0, 6);
    signs.note_place(None, 0, 7);
    signs.note_place(place(1), 0, 8);
    assert_eq!(signs.moved_ms, None);
    signs.note_place(place(2), 9, 10);
    assert_eq!(signs.moved_ms, None, "it has made a step since");
    signs.note_place(place(1), 9, 11);
    assert_eq!((signs.moved_ms, signs.work_ms()), (Some(11), Some(11)));
}

#[test]
fn who_stands_at_a_step_for_the_second_time_and_moves_gets_twice_the_time() {
    let one = pulse(40, 0, 100);
    let mut moving = suspect(0, &one);
    moving.signs.moved_ms = Some(1500);
    let suspects = [moving];
    let at = |hung_at, times, now_ms| {
        let (patience, past) = (Patience::default(), Past { hung_at, times, ..Past::default() });
        let looks: Vec<u64> = (0..600).map(|n| n * 500).collect();
        judge(&Case { now_ms, suspects: &suspects, patience: &patience, looks: &looks, rule: &GIVEN, past })
    };
    assert!(matches!(at(None, 1, 2100), Judgement::Hung(_)));
    assert!(matches!(at(Some(39), 1, 2100), Judgement::Hung(_)));
    assert!(matches!(at(Some(40), 1, 2100), Judgement::Slow(_)));
    assert!(matches!(at(Some(40), 2, 2100), Judgement::Fine(_)));
    assert!(matches!(at(Some(40), 2, 4300), Judgement::Slow(_)));
    assert!(matches!(at(Some(40), TIMES_MAX, 300_000), Judgement::Hung(_)), "not for ever");
}

#[test]
fn saving_and_the_first_steps_are_no_hangs_but_saving_for_ever_is() {
    let saving = Pulse { phase: "checkpoint".into(), phase_at_ms: 1000, ..pulse(40, 1000, 10) };
    let young = Pulse { steps: 2, ..pulse(1, 1000, 10) };
    for rule in [&GIVEN, &DEFAULT] {
        assert_eq!(hung(1_700_000, &[suspect(0, &saving), suspect(1, &young)], rule), None);
        assert_eq!(hung(1_801_000, &[suspect(0, &saving)], rule).unwrap().0, Some(0));
        assert_eq!(hung(1_801_000, &[suspect(1, &young)], rule).unwrap().0, Some(1));
    }
}

#[test]
fn who_waits_for_a_rank_that_saves_does_not_hang() {
    let saving = Pulse { phase: "eval".into(), phase_at_ms: 1000, ..pulse(40, 1000, 10) };
    let waiting = pulse(41, 1000, 10);
    let suspects = [suspect(0, &saving), suspect(1, &waiting)];
    assert_eq!(hung(3_600_000, &suspects, &GIVEN), None);
    assert_eq!(hung(4 * 3_600_000 + 1000, &suspects, &GIVEN).unwrap().0, Some(0), "its own time is over");
}

#[test]
fn silence_counts_only_when_asked_for() {
    let quiet = || Suspect { rank: 1, pulse: None, heard_ms: Some(1000), signs: Signs::default() };
    assert_eq!(hung(999_999, &[quiet()], &GIVEN), None);
    let rule = HangRule { silence_ms: 5000, ..DEFAULT };
    assert_eq!(hung(6000, &[quiet()], &rule).unwrap().1, "rank 1 hangs: silent for 5.0 s");
}

fn held(rank: u32, pulse: &Pulse, kind: HoldKind, since_ms: u64) -> Suspect<'_> {
    Suspect { signs: Signs::held(Hold { kind, since_ms }), ..suspect(rank, pulse) }
}

#[test]
fn while_anybody_is_held_nobody_is_judged() {
    let one = pulse(40, 0, 10);
    for kind in [HoldKind::Output, HoldKind::Traced, HoldKind::Frozen, HoldKind::Stopped] {
        let suspects = [suspect(0, &one), held(1, &one, kind, 100)];
        assert_eq!(hung(500_000, &suspects, &GIVEN), None, "{kind:?}");
        let limited = kind == HoldKind::Stopped;
        assert_eq!(hung(900_000_000, &suspects, &GIVEN).is_some(), limited, "{kind:?}");
    }
    let all = [held(0, &one, HoldKind::Stopped, 100), held(1, &one, HoldKind::Stopped, 100)];
    assert_eq!(hung(900_000_000, &all, &GIVEN), None, "somebody paused the whole gang");
}

#[test]
fn a_rank_that_is_stopped_alone_is_named_when_its_own_limit_is_over() {
    let one = pulse(40, 0, 10);
    let suspects = [suspect(0, &one), held(1, &one, HoldKind::Stopped, 1000), suspect(2, &one)];
    assert_eq!(judged(600_999, &suspects, &DEFAULT), Judgement::Fine(Some(601_000)));
    let (rank, why) = hung(601_000, &suspects, &DEFAULT).unwrap();
    assert_eq!(
        (rank, why.as_str()),
        (Some(1), "rank 1 is stopped since 600.0 s, by a signal, and the gang waits")
    );
    let never = HangRule { stopped_ms: 0, ..DEFAULT };
    assert_eq!(hung(900_000_000, &suspects, &never), None);
}

#[test]
fn blame_falls_on_who_is_outside_the_collective_or_behind_or_elsewhere_and_else_on_nobody() {
    let (one, behind) = (pulse(40, 0, 10), pulse(39, 0, 10));
    let at = |rank, pulse, digest, collective| {
        let place = Some(StackPlace { digest, collective });
        Suspect { signs: Signs { place, ..Signs::default() }, ..suspect(rank, pulse) }
    };
    let named = |suspects: &[Suspect<'_>]| hung(9000, suspects, &GIVEN).unwrap();
    let two = [at(0, &one, 7, true), at(1, &one, 8, false)];
    assert_eq!(named(&two).0, Some(1));
    assert!(named(&two).1.ends_with("its peers wait in a collective"));
    // Who waits in the collective is not to blame, even if it is behind.
    assert_eq!(named(&[at(0, &behind, 7, true), at(1, &one, 8, false)]).0, Some(1));
    assert_eq!(named(&[at(0, &one, 7, true), at(1, &behind, 7, true)]).0, Some(1));
    assert_eq!(named(&[at(0, &one, 7, false), at(1, &one, 7, false), at(2, &one, 8, false)]).0, Some(2));
    for nobody in [
        [at(0, &one, 7, true), at(1, &one, 7, true)],
        [at(0, &one, 7, false), at(1, &one, 8, false)],
        [suspect(0, &one), suspect(1, &one)],
    ] {
        let (rank, why) = named(&nobody);
        assert_eq!(rank, None);
        assert!(why.starts_with("the gang hangs: no step for 9.0 s after step 40"), "{why}");
    }
    // Rank 0 was the first to wait, and is the first whose time is over.
    let later = pulse(40, 300, 10);
    let places = |rank, pulse, digest| at(rank, pulse, digest, false);
    let one_by_one = [places(0, &one, 7), places(1, &later, 8), places(2, &later, 7)];
    assert!(matches!(judged(2000, &one_by_one, &GIVEN), Judgement::Hung(Hang { rank: Some(1), .. })));
    let several = [at(0, &one, 7, true), at(1, &one, 8, false), at(2, &one, 9, false)];
    assert!(named(&several).1.starts_with("ranks 1,2 hang: "));
}

#[test]
fn excused_time_counts_for_nobody_and_sleep_and_gaps_are_noticed() {
    let mut patience = Patience::default();
    patience.excuse(2000, 5000);
    patience.excuse(5000, 6000);
    patience.excuse(9000, 9500);
    assert_eq!(patience.excused, [(2000, 6000), (9000, 9500)]);
    assert_eq!(patience.quiet_ms(1000, 10_000), 4500);
    assert_eq!(patience.quiet_ms(4000, 10_000), 3500);
    patience.refresh(9200);
    assert_eq!(patience.quiet_ms(1000, 10_000), 500);

    let mut clocks = Clocks::default();
    assert!(!clocks.look(1000, 1000, 6000).is_gap);
    assert_eq!(clocks.look(2000, 2000, 6000), Between { looked_ms: 1000, slept_ms: 0, is_gap: false });
    let night = clocks.look(28_803_000, 3000, 6000);
    assert_eq!(night, Between { looked_ms: 2000, slept_ms: 28_800_000, is_gap: false });
    assert!(clocks.look(28_810_000, 10_000, 6000).is_gap);
}

#[test]
fn a_step_in_which_a_rank_was_held_is_not_what_a_step_may_take() {
    let mut gaps = Gaps::default();
    let mut patience = Patience::default();
    let said = |step_at_ms, longest_ms| Pulse { longest_ms, ..pulse(1, step_at_ms, 10) };
    assert_eq!(gaps.note(&said(1000, 50), &patience), 50);
    patience.excuse(1500, 3_601_000);
    assert_eq!(gaps.note(&said(3_601_200, 3_600_200), &patience), 700);
    assert_eq!(gaps.note(&said(3_602_000, 3_600_200), &patience), 700);
    assert_eq!(gaps.note(&said(9_000_000, 5_000_000), &patience), 5_000_000);
}

proptest! {
    #[test]
    fn who_makes_steps_in_time_never_hangs(typical in 1..5000u64, late in 0..1000u64, given: bool) {
        let one = pulse(7, 10_000, typical);
        let rule = if given { GIVEN } else { DEFAULT };
        let allowed = limit_ms(&one, &rule, &Past::default());
        let now_ms = 10_000 + allowed.saturating_sub(1 + late);
        prop_assert_eq!(hung(now_ms, &[suspect(0, &one)], &rule), None);
        prop_assert!(hung(10_000 + allowed + 1000, &[suspect(0, &one)], &rule).is_some());
    }

    #[test]
    fn no_stretch_is_excused_twice(stretches in proptest::collection::vec((0..5000u64, 0..400u64), 0..80)) {
        let (mut patience, mut now_ms, mut awake) = (Patience::default(), 0, 0);
        for (apart, held) in stretches {
            now_ms += apart + held;
            awake += apart;
            patience.excuse(now_ms - held, now_ms);
        }
        prop_assert!(patience.quiet_ms(0, now_ms) <= awake);
        prop_assert!(patience.excused.len() <= 32);
        if patience.excused.len() < 32 {
            prop_assert_eq!(patience.quiet_ms(0, now_ms), awake);
        }
    }
}
