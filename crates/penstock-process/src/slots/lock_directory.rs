//! The directory of this user that says which slots are taken: one locked file for each, and nothing that could be stale.
//!
//! `gate` is locked by whoever looks or changes, for less than a millisecond each time. `lock-N` and `ticket-N` say in JSON what they
//! stand for; one that nobody holds a lock on is over, and the next who locks the gate removes it. A lock belongs to
//! the open file: whoever inherits the descriptor holds it too, and the slot is free when the last of them ends.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::allocation::{Held, place};
use super::inventory::Inventory;
use super::{Need, Share, Want};
use crate::error::{ProcessError, Result};
use crate::job::state::wall_s;

/// How long to wait for the gate; its holder needs a millisecond, unless somebody stopped it.
const GATE_TRIES: u32 = 500;
const GATE_PAUSE: Duration = Duration::from_millis(1);
/// Variable with the locks that we live in, outermost first.
pub const HELD: &str = "PENSTOCK_HELD";

/// Who holds a slot, or waits for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The job.
    pub job: String,
    /// Its directory.
    pub directory: String,
    /// The role.
    pub role: String,
    /// Which of the role's slots; nothing for what the gang shares.
    pub slot: Option<u32>,
    /// The rank that uses it now; nothing for a spare.
    pub rank: Option<u32>,
    /// The process that uses it, or the agent.
    pub pid: i32,
}

/// What a lock file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotEntry {
    /// Name of the file.
    pub name: String,
    /// Who has it.
    #[serde(flatten)]
    pub holder: Holder,
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// What is held.
    pub share: Share,
}

/// The lock of a slot that we hold. It ends when we drop it and every worker that inherited it is gone.
#[derive(Debug)]
pub struct SlotLock {
    file: File,
    entry: SlotEntry,
}

impl SlotLock {
    /// What is held.
    pub fn share(&self) -> &Share {
        &self.entry.share
    }

    /// The descriptor that a worker has to inherit, and never close.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Name of its file.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Says who uses it now. For people who look: nothing depends on it.
    pub fn note(&mut self, _alone: &LockGuard, rank: Option<u32>, pid: i32) {
        (self.entry.holder.rank, self.entry.holder.pid) = (rank, pid);
        let _ = write_document(&self.file, &self.entry);
    }
}

/// The locked gate: whoever has it is alone in the directory.
pub struct LockGuard {
    /// Locked until it is dropped.
    _file: File,
    path: PathBuf,
}

/// The directory.
#[derive(Debug, Clone)]
pub struct LockDirectory {
    path: PathBuf,
    /// Locked with others as long as somebody works here: what cleans up /tmp leaves locked directories alone.
    _open: Arc<File>,
}

impl LockDirectory {
    /// That of our user on this machine, or where `PENSTOCK_SLOTS` says.
    pub fn open() -> Result<Self> {
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let stated = std::env::var_os("PENSTOCK_SLOTS").filter(|path| !path.is_empty());
        // Not in /dev/shm, which some systems empty when a user logs out, whatever still runs.
        Self::at(&stated.map_or_else(|| PathBuf::from(format!("/tmp/penstock-slots-{user}")), PathBuf::from))
    }

    /// A certain one; made when it is not there. One that others may write to is refused.
    pub fn at(path: &Path) -> Result<Self> {
        let failed = |verb, source| ProcessError::File { verb, path: path.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(problem) if problem.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("make", problem));
            }
            _ => {}
        }
        let about = fs::symlink_metadata(path).map_err(|source| failed("open", source))?;
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
            let problem = format!("it is not a directory that only user {user} can write to");
            return Err(failed("hold slots in", io::Error::other(problem)));
        }
        let open = File::open(path).map_err(|source| failed("open", source))?;
        // SAFETY: the descriptor is open while it is borrowed. A refusal means that somebody cleans up right now.
        unsafe { libc::flock(open.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
        Ok(Self { path: path.to_owned(), _open: Arc::new(open) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the gate; nothing when somebody else keeps it locked for too long.
    pub fn enter(&self) -> Result<Option<LockGuard>> {
        let path = self.path.join("gate");
        let failed = |source| ProcessError::File { verb: "lock", path: path.clone(), source };
        // Made for writing, once; opened for reading, because closing a file that could be written wakes all who wait.
        if !path.exists() {
            File::options().append(true).create(true).mode(0o600).open(&path).map_err(failed)?;
        }
        let file = File::open(&path).map_err(failed)?;
        for _ in 0..GATE_TRIES {
            if try_lock(&file) {
                return Ok(Some(LockGuard { _file: file, path: self.path.clone() }));
            }
            std::thread::sleep(GATE_PAUSE);
        }
        Ok(None)
    }
}

impl LockGuard {
    /// Everything that somebody holds.
    pub fn entries(&self) -> Result<Vec<SlotEntry>> {
        Ok(self.alive::<SlotEntry>("lock-")?.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Documents of a kind that somebody holds, by number; the others are removed.
    pub fn alive<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(u64, T)>> {
        let mut found = Vec::new();
        for number in self.numbers(kind)? {
            let path = self.file(kind, number);
            let Ok(file) = File::open(&path) else { continue };
            if try_lock(&file) {
                let _ = fs::remove_file(&path);
                continue;
            }
            // Another version may have written it; it holds what it holds, but we cannot tell what.
            let text = fs::read(&path).unwrap_or_default();
            let document = serde_json::from_slice(&text);
            found.push((number, document.map_err(|source| ProcessError::Format { path, source })?));
        }
        Ok(found)
    }

    /// Makes a document of a kind, and holds it. The number is higher than that of any other.
    pub fn make<T: Serialize>(&self, kind: &str, document: impl FnOnce(&str) -> T) -> Result<(u64, File, T)> {
        let number = self.numbers(kind)?.last().map_or(1, |last| last + 1);
        let path = self.file(kind, number);
        let failed = |source| ProcessError::File { verb: "write", path: path.clone(), source };
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        if !try_lock(&file) {
            return Err(failed(io::Error::last_os_error()));
        }
        let name = format!("{kind}{number}");
        let document = document(&name);
        write_document(&file, &document).map_err(failed)?;
        Ok((number, file, document))
    }

    /// Gives a share to somebody, who holds it.
    pub fn lock(&self, holder: Holder, share: Share) -> Result<SlotLock> {
        let write = |name: &str| SlotEntry { name: name.to_owned(), holder, since: wall_s(), share };
        let (_, file, entry) = self.make("lock-", write)?;
        Ok(SlotLock { file, entry })
    }

    /// What is not free for us. Of the locks that we live in only the ports are: whoever holds them may listen there.
    pub fn held(&self) -> Result<Vec<Held>> {
        let around = std::env::var(HELD).unwrap_or_default();
        let around: BTreeSet<&str> = around.split(',').collect();
        let held = self.entries()?.into_iter().map(|entry| {
            let share = match around.contains(entry.name.as_str()) {
                true => Share { ports: entry.share.ports, ..Share::default() },
                false => entry.share,
            };
            Held { job: entry.holder.job, share }
        });
        Ok(held.collect())
    }

    /// Removes a document of a kind.
    pub fn remove(&self, kind: &str, number: u64) {
        let _ = fs::remove_file(self.file(kind, number));
    }

    fn numbers(&self, kind: &str) -> Result<Vec<u64>> {
        let failed = |source| ProcessError::File { verb: "read", path: self.path.clone(), source };
        let names = fs::read_dir(&self.path).map_err(failed)?.flatten().map(|entry| entry.file_name());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.to_str()?.strip_prefix(kind)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn file(&self, kind: &str, number: u64) -> PathBuf {
        self.path.join(format!("{kind}{number}"))
    }
}

/// A port that nobody else gets, for a gang to meet at: a certain one, or any that nobody listens on.
pub fn hold_port(
    locks: &LockDirectory,
    ports: &Inventory,
    certain: Option<u16>,
    holder: Holder,
) -> Result<SlotLock> {
    let guard = locks.enter()?.ok_or_else(|| busy(locks))?;
    let held = guard.held()?;
    let mut share = Share::default();
    if let Some(port) = certain {
        if let Some(other) =
            held.iter().find(|other| other.job != holder.job && other.share.ports.contains(&port))
        {
            return Err(ProcessError::Slots(format!("port {port}; it is held by {}", other.job)));
        }
        share.ports.push(port);
    } else {
        let need = Need { ports: 1, ..Need::default() };
        let wants = [Want { role: holder.role.clone(), places: 1, need }];
        let placed = place(ports, &held, &wants, &can_bind);
        let placed = placed.map_err(|shortage| ProcessError::Slots(shortage.to_string()))?;
        share.ports = placed.into_iter().flatten().flat_map(|share| share.ports).collect();
    }
    guard.lock(holder, share)
}

/// Somebody stays inside.
pub fn busy(locks: &LockDirectory) -> ProcessError {
    ProcessError::Slots(format!("somebody keeps {} locked", locks.path().join("gate").display()))
}

/// Whether a port is free at this moment, on all addresses.
pub fn can_bind(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

/// Locks an open file, if nobody holds another opening of it locked.
pub fn try_lock(file: &File) -> bool {
    // SAFETY: the descriptor is open while it is borrowed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

/// Writes a document over the one that was there before.
fn write_document<T: Serialize>(file: &File, document: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec(document)?;
    // Numbers in it may get shorter; blanks at the end are no part of the document.
    text.resize(text.len().next_multiple_of(256), b' ');
    let before = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    text.resize(text.len().max(before), b' ');
    file.write_all_at(&text, 0)
}
