//! Pulses: what every worker of a job last said about its progress, and what it is told, in one file of the job's directory.
//!
//! A worker maps the file and writes its own record with one copy of memory, so that a pulse costs a microsecond and no
//! system call. Each record carries a checksum: a reader sees a whole record or none, also of a worker that was stopped
//! or killed while it wrote, and on processors that reorder writes. The agent reads and writes through the file instead
//! of mapping it, because a mapping of a file that somebody cut short would kill the agent.
//!
//! `python/penstock/process/watch/pulse_file.py` has the same layout; each side is tested against what the other wrote.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use serde::{Deserialize, Serialize};

use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::system::now_ms;

/// The file's name in the directory.
pub const FILE: &str = "pulses";
const MAGIC: &[u8; 8] = b"PENPULSE";
/// Another layout gets another number.
const FORM: u32 = 1;
/// A slot begins on a boundary of pages' fractions and cache lines; the header has the size of one.
const SLOT_BYTES: usize = 256;
const RECORD_BYTES: usize = 128;
/// How often a record that is being written is looked at again.
const TRIES: usize = 8;
const PHASE_BYTES: usize = 16;
/// The longest reason of a notice; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 96;
const LISTENS: u32 = 1;

/// What a worker last said. Times are of the clock that `system::now_ms` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseRecord {
    /// How many pulses and changes of phase this life has had.
    pub beats: u64,
    /// The process that writes: the worker, or a descendant of it.
    pub pid: u32,
    /// Which life wrote it.
    pub incarnation: u32,
    /// The step it is at.
    pub step: u64,
    /// How many steps this life has reported.
    pub steps: u64,
    /// When that step was reported.
    pub step_at_ns: u64,
    /// How long the step before it took; 0 before the second one.
    pub step_ns: u64,
    /// What a step usually takes, without the first two of a life; 0 as long as that is unknown.
    pub typical_ns: u64,
    /// The longest step of this life.
    pub longest_ns: u64,
    /// What it is doing: `start`, `step`, `compile`, `checkpoint`, `eval`, or a word of its own.
    pub phase: String,
    /// Since when.
    pub phase_since_ns: u64,
    /// Whether it looks for notices.
    pub listens: bool,
    /// The number of the last notice that it saw.
    pub notice_seen: u32,
}

/// What a worker is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// Save, and leave before the deadline.
    Stop,
    /// Save, and go on.
    Save,
}

/// Something that a worker finds out at its next pulse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Larger than that of the notice before, so that a new one is noticed. Never 0.
    pub number: u32,
    /// What to do.
    pub kind: NoticeKind,
    /// Until when; 0 for no deadline.
    pub deadline_ns: u64,
    /// Until when for a worker that is saving then; 0 for the same.
    #[serde(default)]
    pub save_by_ns: u64,
    /// Why, in a few words.
    pub reason: String,
}

impl Notice {
    /// One without a deadline. Its number is given when it is given.
    pub fn new(kind: NoticeKind, reason: &str) -> Self {
        Self { number: 0, kind, deadline_ns: 0, save_by_ns: 0, reason: reason.to_owned() }
    }
}

/// The open file.
#[derive(Debug)]
pub struct Pulses {
    file: File,
    slots: u32,
}

impl Pulses {
    /// A fresh file for that many workers. An older file is replaced, not changed, because it may still be mapped.
    pub fn create(directory: &JobDirectory, workers: u32) -> Result<Self> {
        let (path, beside) = (directory.file(FILE), directory.file("pulses.new"));
        let failed = |source| ProcessError::File { verb: "create", path: path.clone(), source };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .map_err(failed)?;
        // Written, not only made longer: a hole in a mapped file would kill a worker when the disk is full.
        let mut bytes = vec![0; SLOT_BYTES * (workers as usize + 1)];
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes, 8, FORM);
        put_u32(&mut bytes, 12, workers);
        file.write_all_at(&bytes, 0).map_err(failed)?;
        std::fs::rename(&beside, &path).map_err(failed)?;
        Ok(Self { file, slots: workers })
    }

    /// The file of a directory, to look at; nothing when there is none of this form.
    pub fn open(directory: &JobDirectory) -> Option<Self> {
        let file = File::options().read(true).write(true).open(directory.file(FILE)).ok()?;
        let mut header = [0; 16];
        file.read_exact_at(&mut header, 0).ok()?;
        let sound = header[..8] == *MAGIC && get_u32(&header, 8) == FORM;
        sound.then(|| Self { file, slots: get_u32(&header, 12) })
    }

    /// How many workers have a slot.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Forgets a slot's pulse and notice: a new life begins there.
    pub fn clear(&self, slot: u32) {
        let Some(at) = self.place(slot) else { return };
        // A pulse that is lost by a full disk is a pulse that is not seen; supervision goes on.
        let _ = self.file.write_all_at(&[0; SLOT_BYTES], at);
    }

    /// What the worker of a slot last said; nothing when it said nothing yet or what is there is not whole.
    pub fn read(&self, slot: u32) -> Option<PulseRecord> {
        let at = self.place(slot)?;
        for _ in 0..TRIES {
            let mut record = [0; RECORD_BYTES];
            self.file.read_exact_at(&mut record, at).ok()?;
            if is_whole(&record) {
                return Some(pulse(&record));
            }
            if record.iter().all(|byte| *byte == 0) {
                return None;
            }
        }
        None
    }

    /// Tells the worker of a slot.
    pub fn notify(&self, slot: u32, notice: &Notice) {
        let Some(at) = self.place(slot) else { return };
        let _ = self.file.write_all_at(&notice_record(notice), at + RECORD_BYTES as u64);
    }

    /// Tells every worker.
    pub fn notify_all(&self, notice: &Notice) {
        (0..self.slots).for_each(|slot| self.notify(slot, notice));
    }

    fn place(&self, slot: u32) -> Option<u64> {
        (slot < self.slots).then(|| (u64::from(slot) + 1) * SLOT_BYTES as u64)
    }
}

/// A moment so many milliseconds from now, as notices have it.
pub fn deadline_ns(in_ms: u64) -> u64 {
    now_ms().saturating_add(in_ms).saturating_mul(1_000_000)
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The last four bytes are the checksum of the others.
fn is_whole(record: &[u8; RECORD_BYTES]) -> bool {
    let end = RECORD_BYTES - 4;
    get_u32(record, end) == crc32fast::hash(&record[..end])
}

fn pulse(record: &[u8; RECORD_BYTES]) -> PulseRecord {
    let phase = &record[80..80 + PHASE_BYTES];
    let end = phase.iter().position(|byte| *byte == 0).unwrap_or(PHASE_BYTES);
    PulseRecord {
        beats: get_u64(record, 0),
        step: get_u64(record, 8),
        steps: get_u64(record, 16),
        step_at_ns: get_u64(record, 24),
        step_ns: get_u64(record, 32),
        typical_ns: get_u64(record, 40),
        longest_ns: get_u64(record, 48),
        phase_since_ns: get_u64(record, 56),
        pid: get_u32(record, 64),
        incarnation: get_u32(record, 68),
        listens: get_u32(record, 72) & LISTENS != 0,
        notice_seen: get_u32(record, 76),
        phase: String::from_utf8_lossy(&phase[..end]).into_owned(),
    }
}

fn notice_record(notice: &Notice) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    put_u64(&mut record, 0, notice.deadline_ns);
    put_u32(&mut record, 8, notice.number);
    put_u32(&mut record, 12, if notice.kind == NoticeKind::Stop { 1 } else { 2 });
    // Cut between characters, so that what is left can be read.
    let mut len = notice.reason.len().min(REASON_BYTES_MAX);
    while !notice.reason.is_char_boundary(len) {
        len -= 1;
    }
    record[16..16 + len].copy_from_slice(&notice.reason.as_bytes()[..len]);
    // After the longest reason: readers of an earlier form skip it.
    put_u64(&mut record, 16 + REASON_BYTES_MAX, notice.save_by_ns);
    let end = RECORD_BYTES - 4;
    let check = crc32fast::hash(&record[..end]);
    put_u32(&mut record, end, check);
    record
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn directory() -> (tempfile::TempDir, JobDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let directory = JobDirectory::open(folder.path()).unwrap();
        (folder, directory)
    }

    /// As a worker writes it.
    fn record(pulse: &PulseRecord) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let times = [
            pulse.beats,
            pulse.step,
            pulse.steps,
            pulse.step_at_ns,
            pulse.step_ns,
            pulse.typical_ns,
            pulse.longest_ns,
            pulse.phase_since_ns,
        ];
        times.iter().enumerate().for_each(|(n, value)| put_u64(&mut bytes, n * 8, *value));
        put_u32(&mut bytes, 64, pulse.pid);
        put_u32(&mut bytes, 68, pulse.incarnation);
        put_u32(&mut bytes, 72, u32::from(pulse.listens));
        put_u32(&mut bytes, 76, pulse.notice_seen);
        bytes[80..80 + pulse.phase.len()].copy_from_slice(pulse.phase.as_bytes());
        let check = crc32fast::hash(&bytes[..RECORD_BYTES - 4]);
        put_u32(&mut bytes, RECORD_BYTES - 4, check);
        bytes
    }

    fn any_pulse() -> impl Strategy<Value = PulseRecord> {
        (any::<[u64; 8]>(), any::<[u32; 3]>(), any::<bool>(), "[a-z]{0,16}").prop_map(
            |(times, numbers, listens, phase)| PulseRecord {
                beats: times[0],
                step: times[1],
                steps: times[2],
                step_at_ns: times[3],
                step_ns: times[4],
                typical_ns: times[5],
                longest_ns: times[6],
                phase_since_ns: times[7],
                pid: numbers[0],
                incarnation: numbers[1],
                notice_seen: numbers[2],
                phase,
                listens,
            },
        )
    }

    #[test]
    fn a_fresh_and_a_cleared_slot_say_nothing_and_slots_do_not_touch() {
        let (_folder, directory) = directory();
        let pulses = Pulses::create(&directory, 3).unwrap();
        assert_eq!((0..4).filter_map(|slot| pulses.read(slot)).count(), 0);
        let said = PulseRecord {
            beats: 1,
            pid: 7,
            incarnation: 2,
            step: 9,
            steps: 3,
            step_at_ns: 5,
            step_ns: 4,
            typical_ns: 4,
            longest_ns: 6,
            phase: "checkpoint".to_owned(),
            phase_since_ns: 5,
            listens: true,
            notice_seen: 1,
        };
        pulses.file.write_all_at(&record(&said), 2 * SLOT_BYTES as u64).unwrap();
        assert_eq!(Pulses::open(&directory).unwrap().read(1), Some(said));
        assert_eq!((pulses.read(0), pulses.read(2)), (None, None));
        pulses.clear(1);
        assert_eq!(pulses.read(1), None);
        let kept = Pulses::create(&directory, 5).unwrap();
        assert_eq!((pulses.slots(), kept.slots(), Pulses::open(&directory).unwrap().slots()), (3, 5, 5));
    }

    #[test]
    fn a_reason_that_is_too_long_is_cut_between_characters() {
        let reason = "é".repeat(60);
        let notice = Notice { number: 1, ..Notice::new(NoticeKind::Stop, &reason) };
        let bytes = notice_record(&notice);
        assert_eq!(std::str::from_utf8(&bytes[16..16 + REASON_BYTES_MAX]).unwrap(), "é".repeat(48));
        assert!(is_whole(&bytes));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(said in any_pulse()) {
            prop_assert_eq!(pulse(&record(&said)), said);
        }

        #[test]
        fn a_torn_record_is_not_seen(old in any_pulse(), new in any_pulse(), upto in 1..RECORD_BYTES - 4) {
            prop_assume!(old.beats != new.beats);
            let (old, new) = (record(&old), record(&new));
            let mut torn = old;
            torn[..upto].copy_from_slice(&new[..upto]);
            prop_assert!(!is_whole(&torn) || torn == old || torn == new);
        }

        #[test]
        fn no_file_makes_a_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..900), ours in any::<bool>(), slot in 0..9u32) {
            let (_folder, directory) = directory();
            let mut bytes = bytes;
            if ours && bytes.len() >= 12 {
                bytes[..8].copy_from_slice(MAGIC);
                put_u32(&mut bytes, 8, FORM);
            }
            std::fs::write(directory.file(FILE), &bytes).unwrap();
            let opened = Pulses::open(&directory);
            prop_assert_eq!(opened.is_some(), bytes.len() >= 16 && bytes[..8] == *MAGIC && get_u32(&bytes, 8) == FORM);
            prop_assert!(opened.is_none_or(|pulses| pulses.read(slot).is_none()));
        }
    }
}
