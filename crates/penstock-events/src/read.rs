//! Reads an event file back, up to where a kill tore it.

use crate::EventError;
use crate::record::{Record, RecordView};
use crate::spool::{FRAME_BYTES_MAX, MAGIC, VERSION, check};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

const HEADER_BYTES_MAX: usize = 1 << 20;

/// An open recording; gives its records frame by frame.
pub struct EventFile {
    path: PathBuf,
    reader: BufReader<File>,
    /// The JSON document of the header, as written.
    header: String,
    bytes: u64,
    /// Where the last whole frame ended.
    good_bytes: u64,
    ended: bool,
}

impl EventFile {
    /// Opens a recording and checks its header.
    pub fn open(path: &Path) -> Result<EventFile, EventError> {
        let io = |verb| move |reason| EventError::Io { verb, path: path.to_path_buf(), reason };
        let file = File::open(path).map_err(io("open"))?;
        let bytes = file.metadata().map_err(io("open"))?.len();
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let not_events =
            |reason: &str| EventError::NotEvents { path: path.to_path_buf(), reason: reason.into() };

        let mut head = [0; 20];
        if read_up_to(&mut reader, &mut head).map_err(io("read"))? < head.len() || &head[..8] != MAGIC {
            return Err(not_events("it does not begin with PENEVENT"));
        }
        let found = u16::from_le_bytes([head[8], head[9]]);
        if found > VERSION {
            return Err(EventError::Version { path: path.to_path_buf(), found, known: VERSION });
        }
        let length = word(&head[12..16]) as usize;
        if length > HEADER_BYTES_MAX {
            return Err(not_events("its header is longer than a header can be"));
        }
        let mut header = vec![0; length];
        let whole = read_up_to(&mut reader, &mut header).map_err(io("read"))? == length;
        if !whole || check(&header) != word(&head[16..20]) {
            return Err(not_events("its header is damaged"));
        }
        let header = String::from_utf8(header).map_err(|_| not_events("its header is not text"))?;
        Ok(EventFile {
            path: path.to_path_buf(),
            reader,
            header,
            bytes,
            good_bytes: (20 + length) as u64,
            ended: false,
        })
    }

    /// Who recorded, as JSON.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Bytes after the last whole frame. Only known once [`next_frame`](Self::next_frame) has returned `None`.
    pub fn torn_bytes(&self) -> u64 {
        if self.ended { self.bytes.saturating_sub(self.good_bytes) } else { 0 }
    }

    /// The records of the next whole frame, or `None` at the end or at a tear.
    pub fn next_frame(&mut self) -> Result<Option<Vec<Record>>, EventError> {
        if self.ended {
            return Ok(None);
        }
        let mut payload = Vec::new();
        let is_whole = self.next_payload(&mut payload)?;
        let records = if is_whole { decode_all(&payload, Record::decode) } else { None };
        self.accept(payload.len(), records.is_some());
        Ok(records)
    }

    /// The same with records that stay in the frame; whether there was one.
    pub(crate) fn with_frame(
        &mut self,
        payload: &mut Vec<u8>,
        mut see: impl FnMut(RecordView<'_>),
    ) -> Result<bool, EventError> {
        if self.ended {
            return Ok(false);
        }
        let is_whole = self.next_payload(payload)?;
        // A frame counts as a whole, so all of it is checked before any of it is seen.
        let views = if is_whole { decode_all(payload, RecordView::decode) } else { None };
        self.accept(payload.len(), views.is_some());
        let is_frame = views.is_some();
        views.into_iter().flatten().for_each(&mut see);
        Ok(is_frame)
    }

    fn accept(&mut self, length: usize, is_frame: bool) {
        self.ended = !is_frame;
        if is_frame {
            self.good_bytes += (8 + length) as u64;
        }
    }

    /// The bytes of the next frame; false at the end or at a tear.
    fn next_payload(&mut self, payload: &mut Vec<u8>) -> Result<bool, EventError> {
        let io = |reason| EventError::Io { verb: "read", path: self.path.clone(), reason };
        let mut head = [0; 8];
        if read_up_to(&mut self.reader, &mut head).map_err(io)? < head.len() {
            return Ok(false);
        }
        let length = word(&head[..4]) as usize;
        if length > FRAME_BYTES_MAX {
            return Ok(false);
        }
        payload.resize(length, 0);
        let is_whole = read_up_to(&mut self.reader, payload).map_err(io)? == length;
        Ok(is_whole && check(payload) == word(&head[4..]))
    }
}

fn decode_all<'a, T>(mut payload: &'a [u8], decode: impl Fn(&'a [u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = payload.split_first_chunk::<2>() {
        let (record, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        records.push(decode(record)?);
        payload = rest;
    }
    payload.is_empty().then_some(records)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// Fills `into` as far as the file goes.
fn read_up_to(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
            Err(reason) => return Err(reason),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fact, Recorder, Value};
    use std::time::Duration;

    fn recording(events: i64) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.pev");
        let recorder = Recorder::start(&path, "here", &["train.py".into()], u64::MAX).unwrap();
        for step in 0..events {
            let mut encoder = recorder.point("step");
            encoder.int("step", step);
            recorder.push(&encoder);
            if step % 100 == 0 {
                assert!(recorder.flush(Duration::from_secs(30)));
            }
        }
        drop(recorder);
        (folder, path)
    }

    fn steps(path: &Path) -> (Vec<i64>, u64, bool) {
        let mut file = EventFile::open(path).unwrap();
        let mut seen = Vec::new();
        let mut closed = false;
        while let Some(records) = file.next_frame().unwrap() {
            for record in records {
                closed |= record.fact == Fact::Closed;
                if let (Fact::Point, Some((_, Value::Int(step)))) = (record.fact, record.fields.first()) {
                    seen.push(*step);
                }
            }
        }
        (seen, file.torn_bytes(), closed)
    }

    #[test]
    fn what_was_recorded_is_read_in_order() {
        let (_folder, path) = recording(1000);
        assert_eq!(steps(&path), ((0..1000).collect(), 0, true));
    }

    #[test]
    fn a_file_cut_anywhere_is_readable_up_to_the_cut() {
        let (folder, path) = recording(300);
        let whole = std::fs::read(&path).unwrap();
        let header = 20 + EventFile::open(&path).unwrap().header().len();
        let torn = folder.path().join("torn.pev");
        for length in (header..whole.len()).step_by(37) {
            std::fs::write(&torn, &whole[..length]).unwrap();
            let (seen, torn_bytes, closed) = steps(&torn);
            assert_eq!(seen, (0..seen.len() as i64).collect::<Vec<_>>());
            assert!(torn_bytes <= length as u64 && !closed);
        }
    }

    #[test]
    fn a_flipped_bit_ends_the_reading_before_it() {
        let (folder, path) = recording(300);
        let whole = std::fs::read(&path).unwrap();
        let header = 20 + EventFile::open(&path).unwrap().header().len();
        let damaged = folder.path().join("damaged.pev");
        for at in (header..whole.len()).step_by(101) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&damaged, &bytes).unwrap();
            let (seen, torn_bytes, _) = steps(&damaged);
            assert_eq!(seen, (0..seen.len() as i64).collect::<Vec<_>>());
            assert!(torn_bytes > 0, "the flip at byte {at} went unnoticed");
        }
    }

    #[test]
    fn a_recording_rotates_and_counts_what_it_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.pev");
        let recorder = Recorder::start(&path, "here", &[], 2000).unwrap();
        for step in 0..500 {
            let mut encoder = recorder.point("step");
            encoder.int("step", step);
            recorder.push(&encoder);
            recorder.flush(Duration::from_secs(30));
        }
        let statistics = recorder.statistics();
        drop(recorder);

        assert_eq!(statistics.written + statistics.lost, 500);
        assert!(statistics.lost > 0);
        assert!(statistics.error.is_none());
        let files = [path.with_extension("earlier.pev"), path];
        let kept: usize = files.iter().map(|file| steps(file).0.len()).sum();
        assert_eq!(kept as u64, statistics.written);
    }

    #[test]
    fn something_else_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "just some notes, longer than a header").unwrap();
        assert!(matches!(EventFile::open(&path), Err(EventError::NotEvents { .. })));
    }
}
