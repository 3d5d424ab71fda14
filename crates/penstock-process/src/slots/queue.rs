//! The queue: who wants more than is free takes a ticket and waits, first come first served.
//!
//! A ticket is a locked file, so a killed waiter leaves the queue by itself. Only requests for the same kind of thing wait for each
//! other. Waiting costs nothing: the kernel tells when the file of a slot or a ticket is closed. It tells so a moment before the lock is
//! gone, so one looks again shortly after; and now and then anyway, where the kernel tells nothing.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use super::allocation::{compete, described, impossible, place};
use super::inventory::Inventory;
use super::lock_directory::{Holder, LockDirectory, LockGuard, SlotLock, can_bind};
use super::{Share, Want};
use crate::error::{ProcessError, Result};
use crate::job::state::wall_s;

/// After something was closed: when to look, in milliseconds from then.
const LOOKS_MS: [u64; 4] = [0, 5, 25, 125];
/// Without any news.
const TICK_MS: u64 = 2_000;
const TICKET: &str = "ticket-";

/// What a ticket says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ticket {
    /// Name of the file.
    pub name: String,
    /// Who waits.
    #[serde(flatten)]
    pub holder: Holder,
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// For what.
    pub wants: Vec<Want>,
}

/// Locks of a request: for every want, one for each place.
pub type Grant = Vec<Vec<SlotLock>>;

/// What a look at the queue gave.
pub enum Answer {
    /// All of it.
    Granted(Grant),
    /// Nothing yet, because of this.
    Wait(String),
}

/// A request on its way. Dropped, it leaves the queue.
pub struct Waiting {
    locks: LockDirectory,
    holder: Holder,
    wants: Vec<Want>,
    /// Our place in the queue, once we had to wait.
    ticket: Option<(u64, File)>,
    /// Tells what is closed in the directory of locks. Nothing where the system has no more of these.
    news: Option<File>,
    /// How many of the looks after the newest news are done, and when these came.
    looks: usize,
    news_ms: u64,
    next_ms: u64,
}

impl Waiting {
    /// Puts a request; refuses one that this machine can never meet.
    pub fn join(
        locks: &LockDirectory,
        inventory: &Inventory,
        holder: Holder,
        wants: Vec<Want>,
    ) -> Result<Self> {
        if let Some(why) = impossible(inventory, &wants) {
            return Err(ProcessError::Slots(format!("role {}: {why}", holder.role)));
        }
        // From before the first look, so that nothing that happens after it is missed.
        let news = watch(locks);
        let (locks, looks) = (locks.clone(), LOOKS_MS.len());
        Ok(Self { locks, holder, wants, ticket: None, news, looks, news_ms: 0, next_ms: 0 })
    }

    /// Takes everything if all of it is free and nobody was here before us.
    pub fn look(&mut self, inventory: &Inventory, now_ms: u64) -> Result<Answer> {
        self.looks += 1;
        self.next_ms = LOOKS_MS.get(self.looks).map_or(now_ms + TICK_MS, |after_ms| self.news_ms + after_ms);
        let Some(guard) = self.locks.enter()? else {
            return Ok(Answer::Wait(super::lock_directory::busy(&self.locks).to_string()));
        };
        let number = self.ticket.as_ref().map_or(u64::MAX, |(number, _)| *number);
        let before = guard.alive::<Ticket>(TICKET)?.into_iter().filter(|(other, _)| *other < number);
        let first = before.map(|(_, ticket)| ticket).find(|ticket| compete(&self.wants, &ticket.wants));
        let held = guard.held()?;
        let why = match (place(inventory, &held, &self.wants, &can_bind), first) {
            (Ok(shares), None) => return self.take(&guard, shares).map(Answer::Granted),
            (Ok(_), Some(other)) => {
                format!("{}; {} waits before it", described(&self.wants), other.holder.job)
            }
            (Err(shortage), _) => shortage.to_string(),
        };
        if self.ticket.is_none() {
            let (holder, wants) = (self.holder.clone(), self.wants.clone());
            let write = |name: &str| Ticket { name: name.to_owned(), holder, since: wall_s(), wants };
            let (number, file, _) = guard.make(TICKET, write)?;
            self.ticket = Some((number, file));
        }
        Ok(Answer::Wait(why))
    }

    fn take(&mut self, guard: &LockGuard, shares: Vec<Vec<Share>>) -> Result<Grant> {
        let mut grant = Vec::new();
        for (want, places) in self.wants.iter().zip(shares) {
            let lock = |(slot, share)| {
                let slot = u32::try_from(slot).ok();
                let holder = Holder { role: want.role.clone(), slot, ..self.holder.clone() };
                guard.lock(holder, share)
            };
            grant.push(places.into_iter().enumerate().map(lock).collect::<Result<Vec<_>>>()?);
        }
        if let Some((number, _closed)) = self.ticket.take() {
            guard.remove(TICKET, number);
        }
        Ok(grant)
    }

    /// What to poll for news; negative where there is none.
    pub fn news_fd(&self) -> RawFd {
        self.news.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// When to look again; a moment that is past means now. Reads the news.
    pub fn next_look_ms(&mut self, now_ms: u64) -> u64 {
        let mut heard = false;
        let mut buffer = [0; 4096];
        while self.news.as_mut().is_some_and(|news| news.read(&mut buffer).is_ok_and(|count| count > 0)) {
            heard = true;
        }
        if heard {
            (self.looks, self.news_ms, self.next_ms) = (0, now_ms, now_ms);
        }
        self.next_ms
    }
}

/// Tells when files of the locks that could be written are closed, however their holders ended.
fn watch(locks: &LockDirectory) -> Option<File> {
    let path = std::ffi::CString::new(locks.path().as_os_str().as_bytes()).ok()?;
    // SAFETY: plain integers; the answer is checked.
    let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel just gave it to us.
    let news = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the path is a string that lives through the call.
    let watched = unsafe { libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CLOSE_WRITE) };
    (watched >= 0).then(|| File::from(news))
}

/// Everybody who waits, in their order.
pub fn waiting(guard: &LockGuard) -> Result<Vec<Ticket>> {
    Ok(guard.alive::<Ticket>(TICKET)?.into_iter().map(|(_, ticket)| ticket).collect())
}
