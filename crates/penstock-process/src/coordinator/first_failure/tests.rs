//! Who is named, in lives as they were seen.

use super::*;
use crate::job::Stream;

fn exit(code: i32) -> Option<Exit> {
    Some(Exit { code: Some(code), signal: None, core: false, memory_exhausted: false })
}

fn killed(signal: i32) -> Option<Exit> {
    Some(Exit { code: None, signal: Some(signal), core: false, memory_exhausted: false })
}

fn said(at_ms: u64, error: &str) -> Option<(u64, LastWords)> {
    let of_connection = error.contains("peer");
    let points_to = error.ends_with("rank 1").then_some(1);
    Some((at_ms, LastWords { error: error.to_owned(), of_connection, points_to, ..LastWords::default() }))
}

fn account(rank: u32, exit: Option<Exit>, exit_ms: u64, words: Option<(u64, LastWords)>) -> Account {
    Account { rank, exit, exit_ms: Some(exit_ms), asked: false, words }
}

fn asked(rank: u32, exit_ms: u64, words: Option<(u64, LastWords)>) -> Account {
    Account { asked: true, ..account(rank, killed(libc::SIGTERM), exit_ms, words) }
}

#[test]
fn who_raised_and_needs_a_second_to_end_is_named_and_not_who_lost_the_connection() {
    let lives = [
        account(0, exit(1), 130, said(120, "RuntimeError: connection closed by peer")),
        asked(1, 640, said(100, "ValueError: boom")),
        account(2, exit(1), 125, said(99, "RuntimeError: reset by peer")),
        asked(3, 600, None),
    ];
    let found = culprit(&lives).unwrap();
    assert_eq!((found.rank, found.code), (1, 1));
    assert_eq!(found.what, "failed, and had not ended when others did: ValueError: boom");
    let order: Vec<u32> = ordered(&lives).iter().map(|(account, _)| account.rank).collect();
    assert_eq!(order, [1, 2, 0, 3]);
}

#[test]
fn the_first_to_say_so_is_named_and_not_the_first_to_be_gone() {
    let lives = [
        account(0, exit(1), 130, said(120, "KeyError: 1")),
        account(1, exit(3), 150, said(100, "ValueError: x")),
    ];
    let found = culprit(&lives).unwrap();
    assert_eq!((found.rank, found.what.as_str(), found.code), (1, "exited with code 3: ValueError: x", 3));
}

#[test]
fn a_kill_from_outside_is_a_cause_whatever_others_said_before_it() {
    let lives = [
        account(0, killed(libc::SIGKILL), 130, said(10, "IOError: tried again")),
        asked(1, 200, said(129, "IOError: tried again")),
    ];
    let found = culprit(&lives).unwrap();
    assert_eq!((found.rank, found.what.as_str(), found.code), (0, "was killed by SIGKILL", 137));
}

#[test]
fn who_went_on_after_an_error_or_said_it_later_is_not_named() {
    let mut chatty = asked(1, 200, said(100, "IOError: tried again"));
    if let Some((_, words)) = &mut chatty.words {
        words.further_lines = FURTHER_LINES_MAX + 1;
    }
    let first = account(0, exit(1), 130, said(120, "KeyError: 1"));
    assert_eq!(culprit(&[first.clone(), chatty]).unwrap().rank, 0);
    assert_eq!(culprit(&[first, asked(1, 200, said(140, "SystemExit: told to leave"))]).unwrap().rank, 0);
}

#[test]
fn where_all_lost_connections_the_rank_that_they_point_to_is_named_or_the_first() {
    let lost = |rank, at_ms, error| account(rank, exit(1), at_ms + 10, said(at_ms, error));
    let found = culprit(&[lost(0, 120, "gone: peer rank 1"), asked(1, 600, None)]).unwrap();
    assert_eq!((found.rank, found.what.as_str()), (1, "was lost by rank 0: gone: peer rank 1"));
    assert_eq!(culprit(&[lost(0, 120, "reset by peer"), lost(1, 110, "reset by peer")]).unwrap().rank, 1);
    assert_eq!(culprit(&[account(0, exit(0), 10, None), asked(1, 10, None)]), None);
}

#[test]
fn an_episode_is_what_was_said_at_once_after_the_last_step() {
    let at = |at_ms| Distress { at_ms, stream: Stream::Err, offset: at_ms };
    let all = [at(1000), at(50_000), at(51_500), at(52_000)];
    assert_eq!(last_episode(&all, 0, 53_000), Some(at(50_000)));
    assert_eq!(last_episode(&all, 50_000, 53_000), Some(at(51_500)));
    assert_eq!(last_episode(&all, 52_000, 53_000), None);
    assert_eq!(last_episode(&all[..1], 0, 1000 + FRESH_MS), Some(at(1000)));
    assert_eq!(last_episode(&all[..1], 0, 1001 + FRESH_MS), None);
}
