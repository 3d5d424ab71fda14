//! The zygotes of a job: started with it, started again when they are gone, given up when they cannot be used.

use std::fs::File;
use std::os::fd::RawFd;
use std::path::Path;

use crate::job::exit::Exit;
use crate::zygote::{Warmth, Zygote, ZygoteMessage, ZygoteSpec};

/// A zygote that is not warm after so long is given up.
const WARM_LIMIT_MS: u64 = 60_000;
/// Before the second start in a row; doubled for each further one.
const BACKOFF_MS: u64 = 200;
/// Starts in one minute; then it rests until the first is a minute ago.
const STARTS_MAX: usize = 5;
const MINUTE_MS: u64 = 60_000;
/// Zygotes at a time: each holds what it preloaded.
const ZYGOTES_MAX: usize = 4;

/// Whether workers can be forked from a zygote now.
#[derive(Debug, Clone, PartialEq)]
pub enum Readiness {
    /// Yes; what it has.
    Warm(Warmth),
    /// Soon: it is importing.
    Warming,
    /// No, and why.
    Cold(String),
}

/// One spec and what became of it.
struct PooledZygote {
    spec: ZygoteSpec,
    zygote: Option<Zygote>,
    readiness: Readiness,
    /// No further one is started.
    given_up: bool,
    /// Of those that were started in the last minute.
    starts_ms: Vec<u64>,
}

/// Something to write down.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// The zygote.
    pub pid: i32,
    /// What is with it now.
    pub readiness: Readiness,
}

/// The zygotes of a job. The number of a spec is its place here.
#[derive(Default)]
pub struct ZygotePool {
    kept: Vec<PooledZygote>,
}

impl ZygotePool {
    /// The number of a spec, which is kept up from now on; nothing when there are too many others.
    pub fn add(&mut self, spec: ZygoteSpec) -> Option<usize> {
        if let Some(known) = self.kept.iter().position(|kept| kept.spec == spec) {
            return Some(known);
        }
        if self.kept.len() == ZYGOTES_MAX {
            return None;
        }
        let readiness = Readiness::Warming;
        self.kept.push(PooledZygote {
            spec,
            zygote: None,
            readiness,
            given_up: false,
            starts_ms: Vec::new(),
        });
        Some(self.kept.len() - 1)
    }

    /// The spec of a number.
    pub fn spec(&self, number: usize) -> &ZygoteSpec {
        &self.kept[number].spec
    }

    /// Whether workers can be forked for a spec.
    pub fn readiness(&self, number: usize) -> &Readiness {
        &self.kept[number].readiness
    }

    /// The zygote of a spec, if it is warm.
    pub fn warm(&mut self, number: usize) -> Option<&mut Zygote> {
        let kept = &mut self.kept[number];
        kept.zygote.as_mut().filter(|_| matches!(kept.readiness, Readiness::Warm(_)))
    }

    /// Processes of all zygotes.
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.kept.iter().filter_map(|kept| Some(kept.zygote.as_ref()?.pid))
    }

    /// Descriptors to poll.
    pub fn numbers(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.kept.iter().filter_map(|kept| Some(kept.zygote.as_ref()?.number()))
    }

    /// Starts who is missing and gives up who takes too long; when to call again.
    pub fn keep_up(&mut self, log: &Path, file_limit: libc::rlimit, now_ms: u64) -> (Vec<News>, Option<u64>) {
        let mut news = Vec::new();
        let mut next: Option<u64> = None;
        for kept in &mut self.kept {
            let before = kept.readiness.clone();
            let pid = kept.zygote.as_ref().map_or(0, |zygote| zygote.pid);
            let due_ms = kept.keep_up(log, file_limit, now_ms);
            next = next.into_iter().chain(due_ms).min();
            if kept.readiness != before {
                news.push(News { pid, readiness: kept.readiness.clone() });
            }
        }
        (news, next)
    }

    /// Hears what they have to say; what changed.
    pub fn hear(&mut self) -> Vec<News> {
        self.kept.iter_mut().filter_map(PooledZygote::hear).collect()
    }

    /// What the end of a child means, if it was a zygote.
    pub fn note_reaped(&mut self, pid: i32, exit: &Exit) -> Option<Vec<News>> {
        let is_it = |kept: &&mut PooledZygote| kept.zygote.as_ref().is_some_and(|zygote| zygote.pid == pid);
        let kept = self.kept.iter_mut().find(is_it)?;
        // It may have said why it leaves.
        let mut news: Vec<News> = kept.hear().into_iter().collect();
        kept.zygote = None;
        // One that ends by itself while it gets warm would do so again.
        kept.given_up |= kept.readiness == Readiness::Warming && exit.signal.is_none();
        if !matches!(kept.readiness, Readiness::Cold(_)) {
            kept.readiness = Readiness::Cold(format!("the zygote {exit}; zygote.log may say why"));
            news.push(News { pid, readiness: kept.readiness.clone() });
        }
        Some(news)
    }

    /// Ends the zygote of a spec that nobody will use again: what it holds is of use to others. What changed.
    pub fn retire(&mut self, number: usize) -> Option<News> {
        let kept = &mut self.kept[number];
        let pid = kept.zygote.as_ref().map(|zygote| (zygote.kill(), zygote.pid).1)?;
        kept.given_up = true;
        kept.readiness =
            Readiness::Cold("the zygote was not kept, since no restarts were asked for".to_owned());
        Some(News { pid, readiness: kept.readiness.clone() })
    }

    /// Ends all of them.
    pub fn close(&mut self) {
        for zygote in self.kept.drain(..).filter_map(|kept| kept.zygote) {
            zygote.kill();
        }
    }
}

impl PooledZygote {
    fn keep_up(&mut self, log: &Path, file_limit: libc::rlimit, now_ms: u64) -> Option<u64> {
        if self.given_up {
            return None;
        }
        if let Some(zygote) = &self.zygote {
            let due_ms = self.starts_ms.last().copied().unwrap_or(now_ms) + WARM_LIMIT_MS;
            if self.readiness != Readiness::Warming || now_ms < due_ms {
                return (self.readiness == Readiness::Warming).then_some(due_ms);
            }
            zygote.kill();
            self.given_up = true;
            self.readiness =
                Readiness::Cold(format!("the zygote was not ready after {} s", WARM_LIMIT_MS / 1000));
            return None;
        }
        let due_ms = next_start_ms(&self.starts_ms);
        if now_ms < due_ms {
            return Some(due_ms);
        }
        self.starts_ms.retain(|start| now_ms < start + MINUTE_MS);
        self.starts_ms.push(now_ms);
        let file = File::options().create(true).append(true).open(log).ok();
        let file = file.or_else(|| File::options().write(true).open("/dev/null").ok())?;
        match Zygote::start(&self.spec, file, file_limit) {
            Ok(zygote) => {
                self.zygote = Some(zygote);
                self.readiness = Readiness::Warming;
                Some(now_ms + WARM_LIMIT_MS)
            }
            Err(problem) => {
                self.given_up = true;
                self.readiness = Readiness::Cold(problem.to_string());
                None
            }
        }
    }

    fn hear(&mut self) -> Option<News> {
        let zygote = self.zygote.as_ref()?;
        let readiness = match zygote.hear() {
            Ok(Some(ZygoteMessage::Ready { ready })) => Readiness::Warm(ready),
            Ok(Some(ZygoteMessage::Unfit { unfit })) => {
                self.given_up = true;
                Readiness::Cold(unfit)
            }
            // Late answers to a request that was given up.
            Ok(_) => return None,
            Err(_) => {
                // It closed the conversation, or speaks another language: it is of no use, and its end is noted when it is reaped.
                zygote.kill();
                return None;
            }
        };
        self.readiness = readiness.clone();
        Some(News { pid: zygote.pid, readiness })
    }
}

/// When the next one may be started, after those of the last minute.
fn next_start_ms(starts_ms: &[u64]) -> u64 {
    match starts_ms {
        [] => 0,
        [only] => only + BACKOFF_MS,
        [.., last] if starts_ms.len() < STARTS_MAX => last + (BACKOFF_MS << (starts_ms.len() - 1)),
        [first, ..] => first + MINUTE_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_come_ever_more_slowly_and_at_most_five_a_minute() {
        let (mut starts, mut now_ms) = (Vec::new(), 1000);
        for _ in 0..STARTS_MAX {
            starts.push(now_ms);
            now_ms = next_start_ms(&starts);
        }
        let pauses: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses, [200, 400, 800, 1600]);
        assert_eq!(now_ms, 1000 + MINUTE_MS);
    }
}
