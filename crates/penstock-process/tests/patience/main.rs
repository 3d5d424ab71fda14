//! An hour of imagined time for programs that only seem to hang, and for programs that do: the real judgement, by the default rule with
//! restarts. `python -m benchmarks hangs` runs real programs of these kinds.

mod world;

use penstock_process::coordinator::hang::HoldKind;
use serde_json::json;

use crate::world::{Deed, FOR_EVER, Outcome, Program, run, step};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn program(name: &'static str, ranks: u32, deed: fn(u32, u64) -> Option<Deed>) -> Program {
    Program { name, ranks, pulses: true, rule: json!({}), deed }
}

/// The same for every rank.
fn mixed(number: u64, most_ms: u64) -> u64 {
    let mixed =
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 33) % most_ms + 1
}

fn healthy() -> Vec<Program> {
    vec![
        program("steady steps", 8, |_, _| Some(step(300))),
        program("an evaluation of 14 s that nobody announced, idle", 2, |_, n| {
            Some(step(if n % 100 == 99 { 14_000 } else { 300 }))
        }),
        program("rank 0 saves for 3 minutes, its peers wait", 4, |rank, n| {
            let save = Deed { bytes: 50 << 20, ..step(3 * MINUTE) };
            Some(if rank == 0 && n % 200 == 150 { save } else { step(400) })
        }),
        program("a file server that stalls for 50 s", 2, |rank, n| {
            let stall = Deed { unreadable: true, ..step(50_000) };
            Some(if rank == 1 && n % 500 == 400 { stall } else { step(200) })
        }),
        program("steps between 0.1 s and 40 s", 2, |_, n| {
            let long = mixed(n, 100) > 90;
            Some(step(if long { mixed(n, 40_000) } else { 100 + mixed(n, 900) }))
        }),
        program("an evaluation of 20 minutes in Python", 2, |rank, n| {
            let evaluation = Deed { moves: true, ..step(20 * MINUTE) };
            Some(if rank == 0 && n == 300 { evaluation } else { step(500) })
        }),
        program("an export of 25 minutes after the last step", 2, |rank, n| match n {
            0..2000 => Some(step(500)),
            2000 if rank == 0 => Some(Deed { bytes: 1 << 20, last: true, ..step(25 * MINUTE) }),
            2000 => Some(Deed { last: true, ..step(500) }),
            _ => None,
        }),
        program("a reader that pauses for 40 minutes", 2, |rank, n| {
            let held = Deed { hold: Some(HoldKind::Output), ..step(40 * MINUTE) };
            Some(if rank == 1 && n == 1000 { held } else { step(300) })
        }),
        program("paused for 20 minutes, then held by a debugger for 25", 2, |rank, n| {
            let held = |kind, minutes| Deed { hold: Some(kind), ..step(minutes * MINUTE) };
            Some(match (rank, n) {
                (_, 500) => held(HoldKind::Stopped, 20),
                (1, 600) => held(HoldKind::Traced, 25),
                (_, 700) => held(HoldKind::Frozen, 5),
                _ => step(300),
            })
        }),
        program("a machine that sleeps for a night in the middle of a step", 2, |_, n| {
            let sleep_ms = if n % 700 == 600 { 8 * HOUR } else { 0 };
            Some(Deed { sleep_ms, ..step(1000) })
        }),
        program("compiles for 40 minutes", 2, |rank, n| {
            let compile = Deed { phase: "compile", ..step(40 * MINUTE) };
            Some(if rank == 0 && n == 3 { compile } else { step(300) })
        }),
    ]
}

/// With the rank to blame, and within which time it is to be named.
fn hanging() -> Vec<(Program, Option<u32>, u64)> {
    vec![
        (
            program("all in one collective, which never ends", 2, |_, n| {
                Some(if n < 100 { step(300) } else { Deed { collective: true, ..step(FOR_EVER) } })
            }),
            None,
            70_000,
        ),
        (
            program("rank 1 outside the collective", 2, |rank, n| {
                Some(step(if rank == 1 && n == 100 { FOR_EVER } else { 300 }))
            }),
            Some(1),
            70_000,
        ),
        (
            program("rank 2 holds the lock of the interpreter in C", 3, |rank, n| {
                Some(step(if rank == 2 && n == 100 { FOR_EVER } else { 300 }))
            }),
            Some(2),
            70_000,
        ),
        (
            program("rank 0 sleeps in the kernel", 4, |rank, n| {
                let dead = Deed { unreadable: true, ..step(FOR_EVER) };
                Some(if rank == 0 && n == 100 { dead } else { step(300) })
            }),
            Some(0),
            80_000,
        ),
        (
            program("one rank alone", 1, |_, n| Some(step(if n == 100 { FOR_EVER } else { 300 }))),
            Some(0),
            70_000,
        ),
    ]
}

/// The same, where more than a minute without a step is needed, or less.
fn hanging_otherwise() -> Vec<(Program, Option<u32>, u64)> {
    let with = |rule, program| Program { rule, ..program };
    vec![
        (
            program("rank 1 was stopped", 2, |rank, n| {
                let stopped = Deed { hold: Some(HoldKind::Stopped), ..step(FOR_EVER) };
                Some(if rank == 1 && n == 100 { stopped } else { step(300) })
            }),
            Some(1),
            10 * MINUTE + 5000,
        ),
        (
            with(
                json!({"silence_ms": 300_000}),
                Program {
                    pulses: false,
                    ..program("silent, without pulses", 1, |_, n| {
                        Some(step(if n == 100 { FOR_EVER } else { 300 }))
                    })
                },
            ),
            Some(0),
            5 * MINUTE + 5000,
        ),
        (
            program("a checkpoint that never ends", 2, |rank, n| {
                let save = Deed { phase: "checkpoint", ..step(FOR_EVER) };
                Some(if rank == 1 && n == 100 { save } else { step(300) })
            }),
            Some(1),
            30 * MINUTE + 45_000,
        ),
        (
            program("a loop of Python that never ends", 2, |rank, n| {
                let busy = Deed { moves: true, ..step(FOR_EVER) };
                Some(if rank == 1 && n == 100 { busy } else { step(300) })
            }),
            Some(1),
            30 * MINUTE + 45_000,
        ),
        (
            program("after gaps of 40 s, which is three times as long", 2, |rank, n| {
                Some(step(match n {
                    50 => 40_000,
                    100 if rank == 1 => FOR_EVER,
                    _ => 300,
                }))
            }),
            Some(1),
            130_000,
        ),
        (
            program("a monitor of a progress bar writes on", 2, |rank, n| {
                let hung = Deed { bytes: 20, ..step(FOR_EVER) };
                Some(if rank == 1 && n == 100 { hung } else { step(300) })
            }),
            Some(1),
            70_000,
        ),
        (
            with(
                json!({"given": true, "least_ms": 10_000}),
                program("a chosen limit, though it works", 2, |rank, n| {
                    let busy = Deed { bytes: 1 << 20, moves: true, ..step(FOR_EVER) };
                    Some(if rank == 1 && n == 100 { busy } else { step(300) })
                }),
            ),
            Some(1),
            15_000,
        ),
    ]
}

#[test]
fn programs_with_irregular_steps_run_for_an_hour_without_a_false_hang() {
    for program in healthy() {
        let Outcome { hang, steps, .. } = run(&program, HOUR);
        assert_eq!(hang, None, "{}, at step {steps}", program.name);
        assert!(steps > 3, "{} has run", program.name);
    }
}

#[test]
fn programs_that_hang_are_named_with_the_rank_to_blame() {
    for (program, rank, within_ms) in hanging().into_iter().chain(hanging_otherwise()) {
        let outcome = run(&program, HOUR);
        let (named, what) = outcome.hang.unwrap_or_else(|| panic!("{} is not named", program.name));
        assert_eq!(named, rank, "{}: {what}", program.name);
        assert!(
            outcome.after_ms <= within_ms,
            "{}: named after {} ms: {what}",
            program.name,
            outcome.after_ms
        );
    }
}
