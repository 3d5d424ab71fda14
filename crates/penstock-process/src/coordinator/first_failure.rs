//! Who failed first, in a life that is gone: decided purely, from how workers ended and what they said last.
//!
//! Who raised an exception failed when it said so, not when its process was gone at last. Who lost a connection failed because of
//! somebody else, if somebody else failed. Who was ended by a signal from outside failed then, whatever others say.

use serde::{Deserialize, Serialize};

use crate::job::exit::Exit;
use crate::logs::last_words::LastWords;
use crate::logs::pump::Distress;

/// Lines of one failure are not further apart than this: linked exceptions, errors at the end of an interpreter.
const EPISODE_GAP_MS: u64 = 2000;
/// Older words are not about this end.
const FRESH_MS: u64 = 60_000;
/// Who says more after an error than this has gone on.
const FURTHER_LINES_MAX: usize = 60;

/// What is known of a worker that is gone.
#[derive(Debug, Clone)]
pub struct Account {
    /// Its rank.
    pub rank: u32,
    /// How it ended; nothing for one that was lost.
    pub exit: Option<Exit>,
    /// When that was noticed.
    pub exit_ms: Option<u64>,
    /// Whether it ended after it was asked to.
    pub asked: bool,
    /// What it said last, and when it began to say it.
    pub words: Option<(u64, LastWords)>,
}

/// Who failed first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its rank.
    pub rank: u32,
    /// What happened to it, without its name: `exited with code 1: KeyError: 'loss'`.
    pub what: String,
    /// What a shell would show of it.
    pub code: i32,
    /// It lost a connection, so somebody failed before, on another host perhaps.
    #[serde(default)]
    pub of_connection: bool,
    /// When it failed: when it said so, else when it was gone.
    #[serde(default)]
    pub failed_ms: Option<u64>,
}

/// What an account is in the order of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// It failed by itself.
    Cause,
    /// It lost its connection to somebody.
    Effect,
    /// It ended because it was asked, or did what it should.
    Bystander,
}

/// Where the last failure of a worker begins: after its last progress, not long before its end, and with all that was said at once.
pub fn last_episode(distresses: &[Distress], progress_ms: u64, end_ms: u64) -> Option<Distress> {
    let fresh = |distress: &&Distress| {
        distress.at_ms > progress_ms && distress.at_ms.saturating_add(FRESH_MS) >= end_ms
    };
    let mut begun: Option<Distress> = None;
    for distress in distresses.iter().rev().filter(fresh) {
        if begun.is_some_and(|later| later.at_ms.saturating_sub(distress.at_ms) > EPISODE_GAP_MS) {
            break;
        }
        begun = Some(*distress);
    }
    begun
}

/// The accounts in the order of causes, each with its part in it.
pub fn ordered(accounts: &[Account]) -> Vec<(&Account, Part)> {
    let own = |account: &&Account| !account.asked && !account.exit.as_ref().is_some_and(Exit::is_success);
    let first_ms = accounts.iter().filter(own).filter_map(|account| account.exit_ms).min();
    let from_outside = accounts.iter().filter(own).any(is_from_outside);
    let mut found: Vec<(&Account, Part)> = accounts
        .iter()
        .map(|account| {
            let failed = own(&account) || (!from_outside && was_failing(account, first_ms));
            (account, part(account, failed))
        })
        .collect();
    found.sort_by_key(|(account, part)| (*part, moment_ms(account, *part), account.rank));
    found
}

/// Who failed first; nobody, if all did what they should or what they were asked.
pub fn culprit(accounts: &[Account]) -> Option<Culprit> {
    let order = ordered(accounts);
    let (first, part) = order.first().filter(|(_, part)| *part != Part::Bystander)?;
    let words = first.words.as_ref().map(|(_, words)| words);
    if let Some(other) = words.filter(|_| *part == Part::Effect).and_then(|words| words.points_to) {
        let silent = order.iter().find(|(account, _)| account.rank == other && account.rank != first.rank);
        if let Some((other, Part::Bystander)) = silent {
            let error = words.map_or("", |words| &words.error);
            let what = format!("was lost by rank {}: {error}", first.rank);
            let failed_ms = Some(moment_ms(first, *part)).filter(|at_ms| *at_ms < u64::MAX);
            return Some(Culprit { rank: other.rank, what, code: 1, of_connection: false, failed_ms });
        }
    }
    let said = words.filter(|_| !is_from_outside(first)).map(|words| words.error.as_str());
    let (what, code) = match (&first.exit, said) {
        (Some(exit), Some(error)) if !first.asked => (format!("{exit}: {error}"), exit.shell_code()),
        (Some(exit), None) if !first.asked => (exit.to_string(), exit.shell_code()),
        (_, Some(error)) => (format!("failed, and had not ended when others did: {error}"), 1),
        _ => return None,
    };
    let failed_ms = Some(moment_ms(first, *part)).filter(|at_ms| *at_ms < u64::MAX);
    let of_connection = *part == Part::Effect;
    Some(Culprit { rank: first.rank, what, code: code.max(1), of_connection, failed_ms })
}

/// When a worker failed: when it said so, else when it was gone.
pub fn moment_ms(account: &Account, part: Part) -> u64 {
    let said = account.words.as_ref().map(|(at_ms, _)| *at_ms);
    let said = said.filter(|_| part != Part::Bystander && !is_from_outside(account));
    said.into_iter().chain(account.exit_ms).min().unwrap_or(u64::MAX)
}

fn part(account: &Account, failed: bool) -> Part {
    let lost = account.words.as_ref().is_some_and(|(_, words)| words.of_connection);
    match failed {
        false => Part::Bystander,
        true if lost && !is_from_outside(account) => Part::Effect,
        true => Part::Cause,
    }
}

/// Whether somebody was about to end by an error of its own when the first was gone, and was asked to end before it could.
fn was_failing(account: &Account, first_ms: Option<u64>) -> bool {
    let unharmed = account.exit.as_ref().is_some_and(Exit::is_success);
    let said = account.words.as_ref().filter(|(_, words)| words.further_lines <= FURTHER_LINES_MAX);
    !unharmed && said.zip(first_ms).is_some_and(|((at_ms, _), first_ms)| *at_ms <= first_ms)
}

/// Whether a signal ended it that neither an error of the program itself sends, nor we did.
fn is_from_outside(account: &Account) -> bool {
    const OWN: [i32; 7] =
        [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    let signal = account.exit.as_ref().and_then(|exit| exit.signal);
    !account.asked && signal.is_some_and(|signal| !OWN.contains(&signal))
}

#[cfg(test)]
mod tests;
