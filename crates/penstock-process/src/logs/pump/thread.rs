//! The pump's thread: moves what workers write into their logs and to the person.
//!
//! Sources wait in one set per console, so that a full console is left alone by leaving its set alone, however many workers there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::distress::{Distress, DistressScanner};
use super::in_hand::InHand;
use super::{Shared, Speaker, WorkerOutput};
use crate::job::Stream;
use crate::logs::console::{Console, Voice};
use crate::system;
use crate::system::epoll::{Epoll, READY_MAX};
use crate::system::terminal::Size;

/// Reads of a pipe whose writer cannot be killed; what it writes after them is not listened to.
const LAST_READS_MAX: u32 = 64;

/// How often it is looked who has to wait, while a console is full.
const HELD_LOOK: Duration = Duration::from_millis(500);
/// Who speaks when we do.
const OUR_NAME: &str = "penstock";

/// One output of one worker.
pub(super) struct Source {
    pub(super) speaker: Speaker,
    /// The worker's number among all of the job.
    pub(super) place: u32,
    /// Our end of a pipe, or of a terminal.
    pub(super) pipe: File,
    /// Whether it is a terminal, which wants to know its size.
    pub(super) is_terminal: bool,
    pub(super) kept: WorkerOutput,
    pub(super) stream: Stream,
    pub(super) voice: Voice,
    pub(super) scanner: DistressScanner,
    /// The person does not want to see it.
    pub(super) is_hidden: bool,
}

/// What the thread holds.
pub(super) struct PumpThread {
    pub(super) arriving: Receiver<Source>,
    pub(super) woken: File,
    pub(super) shared: Arc<Shared>,
    pub(super) consoles: [Console; 2],
    /// Which console shows which stream: both on the first one, when both are the same terminal.
    pub(super) routes: [usize; 2],
    /// The sources of each console.
    pub(super) sets: [Epoll; 2],
    /// By a number of their own that is never used again.
    pub(super) sources: BTreeMap<u64, Source>,
    pub(super) next: u64,
    /// Somebody's output is left alone.
    pub(super) is_holding: bool,
    pub(super) hand: InHand,
}

impl PumpThread {
    pub(super) fn run(mut self) {
        loop {
            self.welcome();
            self.announce();
            let closing = self.shared.is_closing();
            if closing {
                self.let_go();
                self.consoles.iter_mut().for_each(Console::clear);
            }
            if closing && self.consoles.iter().all(Console::is_empty) {
                self.shared.finish();
                return;
            }
            self.shared.moving_since_ms.store(0, Ordering::Relaxed);
            let ready = self.wait();
            self.shared.moving_since_ms.store(system::now_ms(), Ordering::Relaxed);
            self.note_held();
            while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            if self.shared.take_resized() {
                self.resize();
            }
            self.consoles.iter_mut().for_each(Console::flush);
            for set in (0..2).filter(|set| ready[*set]) {
                for name in self.sets[set].ready() {
                    if self.move_some(name) {
                        self.forget(name);
                    }
                }
            }
            self.draw();
        }
    }

    /// Shows what the agent itself has to say, where errors are shown.
    fn announce(&mut self) {
        for line in self.shared.take_announcements() {
            let mut voice = Voice::new(OUR_NAME, None, 0);
            let console = &mut self.consoles[self.routes[Stream::Err as usize]];
            console.show(&mut voice, format!("{line}\n").as_bytes(), 0, Instant::now());
        }
    }

    /// Takes over what the agent added.
    fn welcome(&mut self) {
        while let Ok(source) = self.arriving.try_recv() {
            let set = &self.sets[self.routes[source.stream as usize]];
            if set.add(&source.pipe, self.next).is_err() {
                // Only for want of memory in the kernel. Closing tells the writer.
                self.shared.one_less(source.place);
                continue;
            }
            if source.is_terminal {
                self.size_for(&source).give(&source.pipe);
            }
            self.sources.insert(self.next, source);
            self.next += 1;
        }
    }

    /// Takes what is in the pipes and closes them: the job is over, and whoever still holds their other ends cannot be killed.
    fn let_go(&mut self) {
        let names: Vec<u64> = self.sources.keys().copied().collect();
        for name in names {
            for _ in 0..LAST_READS_MAX {
                if self.move_some(name) {
                    break;
                }
            }
            self.forget(name);
        }
    }

    fn forget(&mut self, name: u64) {
        if let Some(mut source) = self.sources.remove(&name) {
            // The keeper has a copy, so closing ours would not be enough. Who was not in the set is not waited for anyway.
            let _ = self.sets[self.routes[source.stream as usize]].remove(&source.pipe);
            let at = source.kept.log.lock().map_or(0, |log| log.log(source.stream).at());
            let console = &mut self.consoles[self.routes[source.stream as usize]];
            console.finish(&mut source.voice, at, Instant::now());
            if source.stream == Stream::Err || source.is_terminal {
                self.shared.stderr.end(source.speaker);
            }
            self.shared.one_less(source.place);
        }
    }

    /// Waits until something can be moved or drawn; which sets have sources with something in them.
    fn wait(&self) -> [bool; 2] {
        let hurry = self.shared.is_hurrying() || self.shared.is_closing();
        let set = |at: usize| {
            if self.consoles[at].is_full() && !hurry { -1 } else { self.sets[at].as_raw_fd() }
        };
        let mut interests = [
            system::interest(self.woken.as_raw_fd(), libc::POLLIN),
            system::interest(self.consoles[0].interest(), libc::POLLOUT),
            system::interest(self.consoles[1].interest(), libc::POLLOUT),
            system::interest(set(0), libc::POLLIN),
            system::interest(set(1), libc::POLLIN),
        ];
        let due = self.consoles.iter().filter_map(Console::due).min();
        // A millisecond more, because the wait is cut to whole ones.
        let timeout = due.map(|due| due.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let full = self.consoles.iter().any(Console::is_full) && !hurry;
        let timeout = timeout.into_iter().chain(full.then_some(HELD_LOOK)).min();
        system::poll(&mut interests, timeout);
        [interests[3].revents != 0, interests[4].revents != 0]
    }

    /// Says which workers have output that is left alone. One that has none is not held, however full the console is.
    fn note_held(&mut self) {
        let hurry = self.shared.is_hurrying() || self.shared.is_closing();
        let mut held = BTreeSet::new();
        for at in (0..2).filter(|at| self.consoles[*at].is_full() && !hurry) {
            // Each call gives some of them, and others the next time.
            for _ in 0..=self.sources.len() / READY_MAX {
                let names = self.sets[at].ready();
                held.extend(names.filter_map(|name| Some(self.sources.get(&name)?.place)));
            }
        }
        if self.is_holding || !held.is_empty() {
            self.is_holding = !held.is_empty();
            *self.shared.held.lock().expect("nobody panics while holding this") = held;
        }
    }

    /// Moves what one read gives; true when the source ended.
    fn move_some(&mut self, name: u64) -> bool {
        let Some(source) = self.sources.get_mut(&name) else { return false };
        let Ok(mut log) = source.kept.log.lock() else { return true };
        let offset = log.log(source.stream).at();
        let bytes = match self.hand.read(&mut source.pipe, (source.speaker, source.stream, offset)) {
            Ok([]) => return true,
            Ok(bytes) => bytes,
            // A terminal whose other end is closed answers with an error.
            Err(problem) => return !matches!(problem.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        let now = Instant::now();
        source.kept.heard_ms.store(system::now_ms(), Ordering::Relaxed);
        log.append(source.stream, bytes, now);
        drop(log);
        if source.stream == Stream::Err || source.is_terminal {
            self.shared.stderr.add(source.speaker, bytes);
        }
        if let Some(offset) = source.scanner.find(bytes, offset) {
            let distress = Distress { at_ms: system::now_ms(), stream: source.stream, offset };
            source.kept.distresses.lock().expect("nobody panics while holding this").add(distress);
        }
        if !source.is_hidden {
            self.consoles[self.routes[source.stream as usize]].show(&mut source.voice, bytes, offset, now);
        }
        self.hand.put_down();
        false
    }

    fn draw(&mut self) {
        let now = Instant::now();
        for at in 0..2 {
            if self.consoles[at].due().is_some_and(|due| due <= now) {
                let mut shown: Vec<&Source> = self.sources.values().collect();
                shown.retain(|source| self.routes[source.stream as usize] == at);
                shown.sort_by_key(|source| (source.place, source.stream));
                self.consoles[at].draw(shown.into_iter().map(|source| &source.voice), now);
            }
        }
    }

    fn resize(&mut self) {
        let now = Instant::now();
        self.consoles.iter_mut().for_each(|console| console.resize(now));
        for source in self.sources.values().filter(|source| source.is_terminal) {
            self.size_for(source).give(&source.pipe);
        }
    }

    /// The size of a worker's terminal: what is left beside its name on the person's.
    fn size_for(&self, source: &Source) -> Size {
        let seen = self.consoles[self.routes[source.stream as usize]].size();
        seen.map_or(Size::UNSEEN, |size| size.beside(source.voice.prefix_columns()))
    }
}
