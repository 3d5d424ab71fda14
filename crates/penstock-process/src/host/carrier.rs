//! The files of a shipment on this host: what is missing, what comes, the copy, and what is sent to hosts below.
//!
//! A thread does everything that may take time, so the loop of the coordinator never waits for a disk. Bytes travel as bulk. What came is
//! written where it belongs in a file of the final size, and the digest of every file is checked when the copy is made.

mod pack;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use self::pack::{LENGTH_BYTES, MANIFEST_BYTES_MAX, Manifest};
use crate::error::{ProcessError, Result};
use crate::host::Event;
use crate::host::shipping::Ranges;
use crate::host::tasks::wake;
use crate::job::JobDirectory;
use crate::network::{self, Network};
use crate::system;

/// In the directory of a host: the shipment, as it comes, and the copy.
const WHOLE: &str = "shipment";
const PART: &str = "shipment.part";
const COPY: &str = "work";
const COPY_PART: &str = "work.part";
/// A link to where ranks run in the copy.
const PLACE: &str = "place";
/// What begins a bulk frame of a shipment.
const SHIPMENT: u8 = 1;
const HEAD_BYTES: usize = 9;
/// One frame, and what is asked for at once.
const FRAME_BYTES: u64 = 256 << 10;
const ASK_BYTES: u64 = 8 << 20;
/// So much waits for one host that is sent to.
const ROOM_BYTES: usize = 512 << 10;
/// Shipments of earlier jobs that are looked into for files that are the same.
const OTHERS_MAX: usize = 4;
/// How often a copy is made again whose bytes are not those that were packed.
const TRIES_MAX: u32 = 3;

/// Bytes of a shipment, and where they belong.
pub(super) fn piece(body: &[u8]) -> Option<(u64, &[u8])> {
    let (head, bytes) = body.split_at_checked(HEAD_BYTES)?;
    let at = u64::from_be_bytes(head.get(1..)?.try_into().ok()?);
    (head[0] == SHIPMENT).then_some((at, bytes))
}

/// The files, and the thread that works on them.
pub(super) struct Carrier {
    whole: PathBuf,
    pieces: Option<Sender<(u64, Vec<u8>)>>,
    events: Receiver<Event>,
    woken: File,
    /// The thread's way to wake the loop. Ours as well: without it the end of the thread would wake the loop for ever.
    _waker: Arc<File>,
    /// What is sent to whom.
    sends: BTreeMap<network::LinkId, VecDeque<(u64, u64)>>,
    opened: Option<File>,
}

impl Carrier {
    /// Begins to work, if the job brings a directory along.
    pub(super) fn new(directory: &JobDirectory, ships: bool) -> Result<Self> {
        let (woken, waker) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        let (pieces, come) = channel();
        let (sender, events) = channel();
        let waker = Arc::new(File::from(waker));
        if ships {
            let waker = Arc::clone(&waker);
            let tell = move |event| {
                let _ = sender.send(event);
                wake(&waker);
            };
            let work = Work { folder: directory.path().to_owned(), come, tell: Box::new(tell) };
            std::thread::Builder::new()
                .name("penstock-carrier".to_owned())
                .spawn(move || work.run())
                .map_err(|source| ProcessError::System { call: "thread", source })?;
        }
        Ok(Self {
            whole: directory.file(WHOLE),
            pieces: ships.then_some(pieces),
            events,
            woken: woken.into(),
            _waker: waker,
            sends: BTreeMap::new(),
            opened: None,
        })
    }

    /// What to poll.
    pub(super) fn number(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// What the thread says.
    pub(super) fn take(&mut self) -> Vec<Event> {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        self.events.try_iter().collect()
    }

    /// Bytes have come that were asked for.
    pub(super) fn receive(&mut self, at: u64, bytes: &[u8]) {
        if let Some(pieces) = &self.pieces {
            // A thread that has all it needs takes no more.
            let _ = pieces.send((at, bytes.to_vec()));
        }
    }

    /// A host wants these bytes, and nothing else of what it wanted before.
    pub(super) fn send(&mut self, to: network::LinkId, mut ranges: Ranges) {
        if self.opened.is_none() {
            self.opened = File::open(&self.whole).ok();
        }
        let mut length = [0; LENGTH_BYTES as usize];
        if ranges.is_empty()
            && self.opened.as_ref().is_some_and(|file| file.read_exact_at(&mut length, 0).is_ok())
        {
            ranges.push((0, LENGTH_BYTES + u64::from_be_bytes(length).min(MANIFEST_BYTES_MAX)));
        }
        self.sends.insert(to, ranges.into());
    }

    /// Sends on, as far as there is room.
    pub(super) fn turn(&mut self, network: &mut Network) {
        let Some(file) = &self.opened else { return };
        self.sends.retain(|link, ranges| {
            while let Some((at, end)) = ranges.front_mut() {
                if at >= end {
                    ranges.pop_front();
                    continue;
                }
                if network.bulk_bytes(*link) >= ROOM_BYTES {
                    return true;
                }
                let count = (*end - *at).min(FRAME_BYTES);
                let mut body = vec![SHIPMENT; HEAD_BYTES + count as usize];
                body[1..HEAD_BYTES].copy_from_slice(&at.to_be_bytes());
                let read = file.read_exact_at(&mut body[HEAD_BYTES..], *at).is_ok();
                if !read || !network.send_bulk(*link, &body) {
                    return false;
                }
                *at += count;
            }
            false
        });
    }
}

/// What the thread has.
struct Work {
    folder: PathBuf,
    come: Receiver<(u64, Vec<u8>)>,
    tell: Box<dyn Fn(Event) + Send>,
}

impl Work {
    fn run(&self) {
        match self.carry() {
            Ok(()) => (self.tell)(Event::Shipment { wants: None, has_all: true, is_ready: true }),
            Err(problem) => {
                let why = format!(
                    "the directory of --ship cannot be copied to {}: {problem}",
                    self.folder.display()
                );
                (self.tell)(Event::ShipmentFailed(why));
            }
        }
    }

    /// Has the shipment and its copy there, whatever is there already.
    fn carry(&self) -> io::Result<()> {
        let [whole, copy, part, place] = [WHOLE, COPY, COPY_PART, PLACE].map(|name| self.folder.join(name));
        if copy.is_dir() && whole.is_file() && place.is_dir() {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            let fetched = !whole.is_file();
            let path = if fetched { self.fetch()? } else { whole.clone() };
            remove(&part)?;
            let file = File::open(&path)?;
            let manifest = Manifest::read(&file)?;
            match pack::unpack(&file, &manifest, &part) {
                Ok(()) => {
                    for old in [&copy, &place] {
                        remove(old)?;
                    }
                    symlink(Path::new(COPY).join(&manifest.place), &place)?;
                    fs::rename(&part, &copy)?;
                    if !place.is_dir() {
                        return Err(io::Error::other(format!("it has no directory {:?}", manifest.place)));
                    }
                    return fs::rename(&path, &whole);
                }
                // What was packed here is what it is; what came may come better.
                Err(problem)
                    if problem.kind() == io::ErrorKind::InvalidData && fetched && tries < TRIES_MAX =>
                {
                    tries += 1;
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// Fetches what no other shipment of this host has; where it is.
    fn fetch(&self) -> io::Result<PathBuf> {
        let path = self.folder.join(PART);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(&self.fetch_head()?, 0)?;
        let manifest = Manifest::read(&file)?;
        file.set_len(manifest.end)?;
        let missing = pack::fill(&file, &manifest, &others(&self.folder))?;
        for batch in batches(&missing) {
            let mut left = batch.clone();
            self.want(batch);
            while !left.is_empty() {
                let (at, bytes) = self.next()?;
                left = without(&left, (at, at + bytes.len() as u64));
                if at >= manifest.begin && at + bytes.len() as u64 <= manifest.end {
                    file.write_all_at(&bytes, at)?;
                }
            }
        }
        Ok(path)
    }

    fn fetch_head(&self) -> io::Result<Vec<u8>> {
        let mut head: Vec<u8> = Vec::new();
        self.want(Ranges::new());
        loop {
            let (at, bytes) = self.next()?;
            if at == head.len() as u64 {
                head.extend(bytes);
            }
            let Some(length) = head.first_chunk::<8>().map(|length| u64::from_be_bytes(*length)) else {
                continue;
            };
            if length > MANIFEST_BYTES_MAX {
                return Err(io::Error::other(format!("its manifest has {length} bytes")));
            }
            if head.len() as u64 >= LENGTH_BYTES + length {
                head.truncate((LENGTH_BYTES + length) as usize);
                return Ok(head);
            }
        }
    }

    fn want(&self, ranges: Ranges) {
        (self.tell)(Event::Shipment { wants: Some(ranges), has_all: false, is_ready: false });
    }

    /// What comes next. The thread ends with the process, and a host that gets nothing is named by the leader.
    fn next(&self) -> io::Result<(u64, Vec<u8>)> {
        self.come.recv().map_err(io::Error::other)
    }
}

/// Removes what an earlier try has left.
fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_symlink() { fs::remove_file(path) } else { fs::remove_dir_all(path) };
    removed.or_else(|problem| if problem.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(problem) })
}

/// Shipments of other jobs on this host, the newest first.
fn others(folder: &Path) -> Vec<PathBuf> {
    let jobs = folder.parent().and_then(|jobs| fs::read_dir(jobs).ok());
    let shipments = jobs.into_iter().flatten().flatten().map(|job| job.path().join(WHOLE));
    let dated = shipments.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)));
    let mut dated: Vec<_> = dated.collect();
    dated.sort_unstable();
    dated.into_iter().rev().take(OTHERS_MAX).map(|(_, path)| path).collect()
}

/// Ranges in parts that are asked for at once.
fn batches(ranges: &[(u64, u64)]) -> Vec<Ranges> {
    let mut batches: Vec<Ranges> = Vec::new();
    let mut room = 0;
    for (mut at, end) in ranges.iter().copied() {
        while at < end {
            if room == 0 {
                batches.push(Ranges::new());
                room = ASK_BYTES;
            }
            let count = room.min(end - at);
            batches.last_mut().into_iter().for_each(|batch| batch.push((at, at + count)));
            (at, room) = (at + count, room - count);
        }
    }
    batches
}

/// Ranges without another.
fn without(ranges: &[(u64, u64)], (from, to): (u64, u64)) -> Ranges {
    let parts = ranges.iter().flat_map(|(at, end)| [(*at, (*end).min(from)), ((*at).max(to), *end)]);
    parts.filter(|(at, end)| at < end).collect()
}

#[cfg(test)]
mod tests;
