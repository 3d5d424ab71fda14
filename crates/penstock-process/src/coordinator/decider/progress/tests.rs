//! What one host takes for a hang, another may excuse.

use super::*;
use crate::tree::summary::{HangFinding, Progress, SlowFinding};

fn finding(given: bool, held: bool) -> HangFinding {
    let what = "rank 3 hangs: no step for 9.0 s".to_owned();
    HangFinding { unproven: false, since_ms: 1000, rank: Some(3), what, given, limit_ms: 5000, held }
}

fn judged(progress: Progress, past: Past) -> Judgement {
    found_by_hosts(&GangView { progress, ..GangView::default() }, &past, 10_000)
}

#[test]
fn a_finding_counts_unless_somebody_elsewhere_saves_works_or_is_held() {
    let found = |given, held| Progress { hang: Some(finding(given, held)), ..Progress::default() };
    let hangs = |progress| matches!(judged(progress, Past::default()), Judgement::Hung(_));
    assert!(hangs(found(false, false)));
    assert!(!hangs(Progress { busy: true, ..found(true, false) }), "its peers wait for who saves");
    assert!(!hangs(Progress { held: true, ..found(true, false) }), "nobody is judged meanwhile");
    assert!(hangs(Progress { held: true, ..found(false, true) }), "who is stopped alone has its own limit");
    assert!(!hangs(Progress { worked_ms: Some(6000), ..found(false, false) }));
    assert!(hangs(Progress { worked_ms: Some(5000), ..found(false, false) }), "that was too long ago");
    assert!(hangs(Progress { worked_ms: Some(9000), ..found(true, false) }), "work is no excuse then");
}

#[test]
fn what_people_were_told_and_patience_that_was_given_are_not_said_again() {
    let hang = Progress { hang: Some(finding(false, false)), ..Progress::default() };
    let told = Past { warned_ms: Some(1000), ..Past::default() };
    assert_eq!(judged(hang, told), Judgement::Fine(None));
    let slow = SlowFinding { times: 1, what: "slow".to_owned() };
    let slow = Progress { slow: Some(slow), look: true, ..Progress::default() };
    assert_eq!(judged(slow.clone(), Past::default()), Judgement::Slow("slow".to_owned()));
    assert_eq!(judged(slow, Past { times: 2, ..Past::default() }), Judgement::Look);
}
