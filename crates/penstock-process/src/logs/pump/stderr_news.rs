//! What workers wrote to standard error and nobody outside of this host knows yet.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use memchr::memrchr;

use super::Speaker;
use crate::logs::stderr_tail::TAIL_BYTES_MAX;

/// A line that is longer is told before it has an end.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Of one worker.
struct News {
    speaker: Speaker,
    bytes: Vec<u8>,
    /// No more will come.
    ended: bool,
}

/// Of all workers.
#[derive(Default)]
pub(super) struct StderrNews {
    /// Somebody wants to know.
    wanted: AtomicBool,
    news: Mutex<BTreeMap<(usize, u32), News>>,
}

impl StderrNews {
    /// A worker wrote something.
    pub(super) fn add(&self, speaker: Speaker, bytes: &[u8]) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        let mut news = self.news.lock().expect("nobody panics while holding this");
        let begun = || News { speaker, bytes: Vec::new(), ended: false };
        let known = news.entry((speaker.role, speaker.rank)).or_insert_with(begun);
        if known.speaker.incarnation != speaker.incarnation {
            *known = begun();
        }
        known.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        let surplus = known.bytes.len().saturating_sub(TAIL_BYTES_MAX);
        known.bytes.drain(..surplus);
    }

    /// A worker will write nothing more.
    pub(super) fn end(&self, speaker: Speaker) {
        let mut news = self.news.lock().expect("nobody panics while holding this");
        let known = news.get_mut(&(speaker.role, speaker.rank));
        if let Some(known) = known.filter(|known| known.speaker.incarnation == speaker.incarnation) {
            known.ended = true;
        }
    }

    /// What is new.
    pub(super) fn take(&self) -> Vec<(Speaker, String)> {
        self.wanted.store(true, Ordering::Relaxed);
        let mut news = self.news.lock().expect("nobody panics while holding this");
        let mut told = Vec::new();
        news.retain(|_, one| {
            let whole = one.ended || one.bytes.len() > LINE_BYTES_MAX;
            let end =
                if whole { one.bytes.len() } else { memrchr(b'\n', &one.bytes).map_or(0, |end| end + 1) };
            if end > 0 {
                let rest = one.bytes.split_off(end);
                let text = std::mem::replace(&mut one.bytes, rest);
                told.push((one.speaker, String::from_utf8_lossy(&text).into_owned()));
            }
            !one.bytes.is_empty()
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_once_and_whole_and_the_last_one_at_the_end() {
        let (news, speaker) = (StderrNews::default(), Speaker { role: 0, rank: 1, incarnation: 2 });
        news.add(speaker, b"before anybody asked\n");
        assert!(news.take().is_empty());
        news.add(speaker, b"one\ntw");
        let told = |news: &StderrNews| news.take().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(told(&news), ["one\n"]);
        news.add(speaker, b"o\nthree");
        assert_eq!(told(&news), ["two\n"]);
        assert!(told(&news).is_empty());
        news.end(speaker);
        assert_eq!(told(&news), ["three"]);
        news.add(speaker, &[b'x'; 3 * TAIL_BYTES_MAX]);
        assert_eq!(told(&news)[0].len(), TAIL_BYTES_MAX);
    }
}
