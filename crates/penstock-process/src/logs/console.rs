//! What the person sees: the output of all workers on one terminal, or through one pipe.
//!
//! A console never blocks. When its reader is slow it fills up, and then either workers wait for it or what does not fit is left
//! out with a note of how much and from which place; log files are complete in both cases.

mod screen;
mod sink;
mod voice;
mod width;

use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

pub use screen::Screen;
pub use voice::Voice;
pub use width::harmless;

use self::sink::Sink;
use crate::system::terminal::Size;

/// So much may wait for the terminal before workers have to wait as well.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// So much may wait when workers are gone and what they left has to be read: more is left out, and told.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

/// One way to the person.
pub struct Console {
    sink: Sink,
    /// The terminal, when the other end is one.
    screen: Option<Screen>,
    /// Whether output is left out rather than workers held back.
    drops: bool,
}

impl Console {
    /// Through a pipe to the launcher, that it shows on `terminal`, if that is one.
    pub fn new(pipe: Option<OwnedFd>, terminal: Option<OwnedFd>, drops: bool) -> Self {
        Self { sink: Sink::new(pipe), screen: terminal.map(Screen::new), drops }
    }

    /// How large the terminal is, if there is one.
    pub fn size(&self) -> Option<Size> {
        self.screen.as_ref().map(Screen::size)
    }

    /// The terminal has another size.
    pub fn resize(&mut self, now: Instant) {
        self.screen.iter_mut().for_each(|screen| screen.resize(now));
    }

    /// Whether all was written that will ever be.
    pub fn is_empty(&self) -> bool {
        self.sink.waiting_bytes() == 0 && !self.screen.as_ref().is_some_and(Screen::has_lines)
    }

    /// Whether workers should wait.
    pub fn is_full(&self) -> bool {
        !self.drops && self.sink.waiting_bytes() >= WAITING_BYTES_MAX
    }

    /// The descriptor to poll for room; negative when nothing waits.
    pub fn interest(&self) -> RawFd {
        self.sink.interest()
    }

    /// When to draw.
    pub fn due(&self) -> Option<Instant> {
        self.screen.as_ref().filter(|_| self.sink.is_open()).and_then(Screen::due)
    }

    /// Shows what a worker wrote at `offset` of its stream.
    pub fn show(&mut self, voice: &mut Voice, bytes: &[u8], offset: u64, now: Instant) {
        if !self.sink.is_open() {
            return;
        }
        if self.has_no_room_for(voice) {
            voice.skip(offset + bytes.len() as u64);
            return;
        }
        let out = self.sink.directory();
        match &mut self.screen {
            Some(screen) => screen.feed(voice, bytes, offset, now, out),
            None => voice.feed(bytes, offset, false, out),
        }
        self.sink.flush();
    }

    /// Shows what is left of a stream that ended at `offset`.
    pub fn finish(&mut self, voice: &mut Voice, offset: u64, now: Instant) {
        if !self.sink.is_open() {
            return;
        }
        let out = self.sink.directory();
        match &mut self.screen {
            Some(screen) => screen.finish(voice, offset, now, out),
            None => voice.finish(offset, false, out),
        }
        self.sink.flush();
    }

    /// Draws the unfinished lines of these voices, if it is time.
    pub fn draw<'a>(&mut self, voices: impl Iterator<Item = &'a Voice>, now: Instant) {
        let behind = self.sink.waiting_bytes() > 0;
        if let Some(screen) = self.screen.as_mut().filter(|screen| screen.due().is_some_and(|due| due <= now))
        {
            screen.draw(voices.filter(|voice| voice.has_partial()), behind, now, self.sink.directory());
            self.sink.flush();
        }
    }

    /// Leaves a clean terminal: nobody draws any more.
    pub fn clear(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.clear(self.sink.directory());
        }
        self.sink.flush();
    }

    /// Writes as much as goes without waiting.
    pub fn flush(&mut self) {
        self.sink.flush();
    }

    fn has_no_room_for(&self, voice: &Voice) -> bool {
        let most = if self.drops { WAITING_BYTES_MAX } else { BACKLOG_BYTES_MAX };
        // Half must be free again before lines go on, else every other line would be missing.
        let most = if voice.is_skipping() { most / 2 } else { most };
        self.sink.waiting_bytes() >= most
    }
}
