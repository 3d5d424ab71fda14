//! WebDataset archives: consecutive files with the same key are one sample, and a sample is one row.
//!
//! A row is the stretch from a sample's first header to the end of its last file's padding, so a row is itself a valid run
//! of tar members ([`crate::members`] decodes it). A key that comes back later would make two samples of one name:
//! its second run is a bad row. Members that belong to no sample are counted, never lost without a word. A member whose
//! extension says how to decode it is checked as it passes by, through one buffer that no member outgrows: what is longer
//! than a row may be is in a bad row already.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, BufRead, Read};

use xxhash_rust::xxh3::xxh3_64;

use super::content::Content;
use super::fields::{Conflict, FieldTable};
use super::raw::{RawStream, pass_over, read_full};
use super::record::{Findings, Recorder};
use super::{Format, Kind, ScanRequest, ScanSummary};
use crate::DataError;
use crate::archive::{Entry, Forward, Walk, WalkFault, key_and_extension};
use crate::index::Layout;

/// Longest key of a sample.
const KEY_BYTES_MAX: usize = 1_024;
/// Most keys remembered to notice one that comes back; keys past that are only compared with these.
const KEYS_MAX: usize = 1 << 22;

/// Scans a WebDataset archive.
pub fn scan_tar(input: impl Read, request: ScanRequest<'_>) -> Result<ScanSummary, DataError> {
    let recorder = RefCell::new(Recorder::new(request)?);
    let findings = walk_samples(RawStream::new(input, &recorder), &recorder)?;
    recorder.into_inner().finish(findings)
}

/// Records a row for every sample.
fn walk_samples(raw: impl BufRead, recorder: &RefCell<Recorder<'_>>) -> Result<Findings, DataError> {
    let mut walk = Walk::new(Streamed(raw));
    let mut samples = Samples::new(recorder);
    // Each turn reads at least one header.
    while let Some(entry) = walk.next().map_err(|fault| typed(fault, &recorder.borrow()))? {
        samples.member(&entry, &mut walk)?;
    }
    samples.close()?;
    if !walk.marked_end && walk.at() > 0 {
        return Err(recorder.borrow().truncated(walk.at()));
    }
    check_tail(&mut walk, recorder)?;
    Ok(samples.findings())
}

/// After the end mark there may be nothing but padding.
fn check_tail<R: BufRead>(
    walk: &mut Walk<Streamed<R>>,
    recorder: &RefCell<Recorder<'_>>,
) -> Result<(), DataError> {
    let (mut at, mut data_at) = (walk.at(), None);
    let look = |piece: &[u8]| {
        let data = piece.iter().position(|byte| *byte != 0);
        data_at = data_at.or(data.map(|data| at + data as u64));
        at += piece.len() as u64;
    };
    pass_over(&mut walk.source.0, u64::MAX, look).map_err(|error| recorder.borrow().read_failed(error))?;
    match data_at {
        None => Ok(()),
        Some(offset) => {
            let reason = "there is data after the end of the archive, as when archives are joined with `cat`";
            Err(recorder.borrow().not_this_format("tar", offset, reason))
        }
    }
}

fn typed(fault: WalkFault, recorder: &Recorder<'_>) -> DataError {
    match fault {
        WalkFault::Truncated(offset) => recorder.truncated(offset),
        WalkFault::Invalid(offset, reason) => recorder.not_this_format("tar", offset, reason),
        WalkFault::Read(error) => recorder.read_failed(error),
    }
}

/// A stream to walk forwards.
struct Streamed<R>(R);

impl<R: BufRead> Forward for Streamed<R> {
    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        read_full(&mut self.0, into)
    }

    fn step(&mut self, bytes: u64) -> io::Result<u64> {
        pass_over(&mut self.0, bytes, |_| ())
    }
}

/// Groups members into samples.
struct Samples<'r, 'a> {
    recorder: &'r RefCell<Recorder<'a>>,
    /// The sample under way; its key, and the first thing wrong with it.
    open: Option<Sample>,
    /// Samples begun.
    ordinal: u64,
    /// Hashes of keys seen.
    keys: HashSet<u64, BuildHasherDefault<AsIs>>,
    /// Extensions seen.
    extensions: FieldTable,
    /// The data of the member under way, at its beginning; what follows is of members before.
    buffer: Vec<u8>,
    members: u64,
    skipped_members: u64,
}

struct Sample {
    key: String,
    start: u64,
    end: u64,
    fault: Option<String>,
}

impl<'r, 'a> Samples<'r, 'a> {
    fn new(recorder: &'r RefCell<Recorder<'a>>) -> Self {
        Self {
            recorder,
            open: None,
            ordinal: 0,
            keys: HashSet::default(),
            extensions: FieldTable::new(recorder.borrow().options().mixed),
            buffer: Vec::new(),
            members: 0,
            skipped_members: 0,
        }
    }

    /// Takes a member whose data lies ahead in `walk`.
    fn member<R: BufRead>(&mut self, entry: &Entry, walk: &mut Walk<Streamed<R>>) -> Result<(), DataError> {
        if !entry.is_file {
            self.skipped_members += 1;
            return Ok(());
        }
        let name = String::from_utf8_lossy(&entry.name);
        let Some((key, extension)) = key_and_extension(&name) else {
            self.skipped_members += 1;
            return Ok(());
        };
        self.members += 1;
        if self.open.as_ref().is_none_or(|open| open.key != key) {
            self.close()?;
            self.begin(key, entry.start);
        }
        let held = self.contents(entry, &extension, walk)?;
        let kind = *held.as_ref().unwrap_or(&Kind::Bytes);
        let observed = self.extensions.observe(extension.as_bytes(), kind);
        if let Some(open) = &mut self.open {
            open.end = entry.end();
            if matches!(name, std::borrow::Cow::Owned(_)) {
                open.fault.get_or_insert_with(|| "the name of a member is not UTF-8".to_owned());
            }
            if observed.is_err() {
                open.fault.get_or_insert_with(|| format!("it has two members with extension `{extension}`"));
            }
            if let Err(reason) = held {
                open.fault.get_or_insert_with(|| format!("member `{extension}` {reason}"));
            }
        }
        Ok(())
    }

    /// What a member holds, or why it does not hold what its extension says. One that is not read is bytes.
    fn contents<R: BufRead>(
        &mut self,
        entry: &Entry,
        extension: &str,
        walk: &mut Walk<Streamed<R>>,
    ) -> Result<Result<Kind, String>, DataError> {
        let row_bytes = entry.end() - self.open.as_ref().map_or(entry.start, |open| open.start);
        let fits = row_bytes <= u64::from(self.recorder.borrow().options().row_bytes_max);
        let Some(content) = Content::of(extension).filter(|_| fits) else { return Ok(Ok(Kind::Bytes)) };
        let head_bytes = content.head_bytes(entry.bytes) as usize;
        if self.buffer.len() < head_bytes {
            self.buffer.resize(head_bytes, 0);
        }
        let head = &mut self.buffer[..head_bytes];
        walk.read(head).map_err(|fault| typed(fault, &self.recorder.borrow()))?;
        Ok(content.check(head, entry.bytes))
    }

    fn begin(&mut self, key: &str, start: u64) {
        self.ordinal += 1;
        self.extensions.begin();
        let hash = xxh3_64(key.as_bytes());
        let fresh =
            if self.keys.len() < KEYS_MAX { self.keys.insert(hash) } else { !self.keys.contains(&hash) };
        let fault = if !fresh {
            Some(format!("key `{key}` was used before, by a sample that is not next to it"))
        } else if key.len() > KEY_BYTES_MAX {
            Some(format!("its key has {} bytes, at most {KEY_BYTES_MAX} may be", key.len()))
        } else {
            None
        };
        self.open = Some(Sample { key: key.to_owned(), start, end: start, fault });
    }

    /// Records the sample under way, good or bad.
    fn close(&mut self) -> Result<(), DataError> {
        let Some(Sample { key, start, end, fault }) = self.open.take() else { return Ok(()) };
        let mut recorder = self.recorder.borrow_mut();
        let length =
            u32::try_from(end - start).ok().filter(|length| *length <= recorder.options().row_bytes_max);
        match (fault, length) {
            (Some(reason), _) => recorder.bad(self.ordinal, start, reason),
            (None, None) => recorder.too_large(self.ordinal, start),
            (None, Some(length)) => match self.extensions.commit(self.ordinal) {
                Ok(()) => recorder.named_row(start, length, &key),
                Err(Conflict { name, kind, before, since }) => {
                    let reason =
                        format!("member `{name}` is {kind}, but was {before} before, from sample {since} on");
                    recorder.bad(self.ordinal, start, reason)
                }
            },
        }
    }

    fn findings(&self) -> Findings {
        let details = BTreeMap::from([
            ("keys_compared".to_owned(), (self.keys.len() as u64).into()),
            ("members".to_owned(), self.members.into()),
            ("skipped_members".to_owned(), self.skipped_members.into()),
        ]);
        Findings {
            format: Format::Tar.name().to_owned(),
            layout: Layout::Ranges,
            rows: None,
            schema: self.extensions.schema(),
            details,
        }
    }
}

/// Keys are hashed already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members;
    use crate::scan::{OnBad, ScanOptions};
    use crate::testing::try_scan;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_entry_type(if name.ends_with('/') {
                tar::EntryType::Directory
            } else {
                tar::EntryType::Regular
            });
            builder.append_data(&mut header, name, *contents).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn contents(row: &[u8]) -> Vec<(String, Vec<u8>)> {
        let members = members("shard", row).unwrap();
        members.into_iter().map(|m| (m.extension, row[m.start..m.end].to_vec())).collect()
    }

    #[test]
    fn consecutive_files_with_one_key_are_a_row() {
        let long = format!("{}/x.jpg", "d".repeat(180));
        let files: &[(&str, &[u8])] = &[
            ("a/", b""),
            ("a/0.jpg", &[7; 70_000]),
            ("a/0.TXT", b"zero"),
            ("README", b"?"),
            ("a/1.txt", b""),
            (&long, b"long"),
        ];
        let scanned = try_scan(Format::Tar, &archive(files), &ScanOptions::default()).unwrap();
        let rows = scanned.rows();
        assert_eq!(contents(&rows[0]), [("jpg".into(), vec![7; 70_000]), ("txt".into(), b"zero".to_vec())]);
        assert_eq!(contents(&rows[1]), [("txt".into(), vec![])]);
        assert_eq!(contents(&rows[2]), [("jpg".into(), b"long".to_vec())]);
        assert_eq!(scanned.open().name(2), Some(&long[..long.len() - 4]));
        assert_eq!(scanned.summary.details["skipped_members"], 2);
        let schema: Vec<_> = scanned.summary.schema.iter().map(|f| (f.name.as_str(), f.optional)).collect();
        assert_eq!(schema, [("jpg", true), ("txt", true)]);
    }

    #[test]
    fn pax_names_are_understood() {
        let mut builder = tar::Builder::new(Vec::new());
        let long = format!("{}/\u{e9}.jpg", "p".repeat(120));
        builder.append_pax_extensions([("path", long.as_bytes())]).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(3);
        builder.append_data(&mut header, "short", b"abc".as_slice()).unwrap();
        let scanned = try_scan(Format::Tar, &builder.into_inner().unwrap(), &ScanOptions::default()).unwrap();
        assert_eq!(scanned.open().name(0), long.strip_suffix(".jpg"));
        assert_eq!(contents(&scanned.rows()[0]), [("jpg".into(), b"abc".to_vec())]);
    }

    #[test]
    fn a_key_that_comes_back_and_twice_the_same_extension_are_bad() {
        let file = archive(&[("a.x", b"1"), ("b.x", b"2"), ("b.x", b"3"), ("a.y", b"4"), ("c.x", b"5")]);
        let error = try_scan(Format::Tar, &file, &ScanOptions::default()).unwrap_err();
        assert!(
            matches!(&error, DataError::BadRow { line: 2, offset: 1024, reason, .. } if reason.contains("`x`"))
        );
        let skip = ScanOptions { on_bad: OnBad::Skip { limit: 9 }, ..Default::default() };
        let scanned = try_scan(Format::Tar, &file, &skip).unwrap();
        assert_eq!((scanned.open().name(0), scanned.open().name(1)), (Some("a"), Some("c")));
        assert!(scanned.summary.bad[1].reason.contains("key `a` was used before"));
    }

    #[test]
    fn members_are_checked_as_they_pass() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (25000,), }";
        let npy = [b"\x93NUMPY\x01\0\x3d\0", header.as_bytes(), &[1; 100_000]].concat();
        let text = "\u{e9}".repeat(400_000);
        let file = archive(&[
            ("0.json", b"1"),
            ("0.npy", &npy),
            ("1.json", b"{"),
            ("2.json", b"[]"),
            ("3.cls", b"x"),
            ("3.new", b"y"),
            ("4.json", b"2.5"),
            ("4.txt", text.as_bytes()),
            ("5.txt", &text.as_bytes()[1..]),
            ("6.json", b"null"),
            ("6.npy", &npy[..npy.len() - 1]),
            ("7.json", b"null"),
        ]);
        let skip = ScanOptions { on_bad: OnBad::Skip { limit: 9 }, ..Default::default() };
        let scanned = try_scan(Format::Tar, &file, &skip).unwrap();
        let bad: Vec<_> = scanned.summary.bad.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
        assert_eq!(
            bad,
            [
                (2, "member `json` is not valid JSON: at byte 1, expected a key in double quotes"),
                (3, "member `json` is list, but was int before, from sample 1 on"),
                (4, "member `cls` is not a whole number: b'x'"),
                (6, "member `txt` is not UTF-8 at byte 0"),
                (
                    7,
                    "member `npy` is not a valid npy array: 100000 bytes must follow its header, but 99999 do"
                ),
            ]
        );
        let schema: Vec<_> =
            scanned.summary.schema.iter().map(|f| (f.name.as_str(), f.kind, f.optional)).collect();
        assert_eq!(
            schema,
            [("json", Kind::Float, true), ("npy", Kind::Array, true), ("txt", Kind::String, true)]
        );
        let names: Vec<_> = (0..3).map(|row| scanned.open().name(row).map(str::to_owned)).collect();
        assert_eq!(names, [Some("0".into()), Some("4".into()), Some("7".into())]);
    }

    /// Goal: memory is bounded by the longest row allowed. Method: a member that says it is longer is not read.
    #[test]
    fn a_member_longer_than_a_row_is_not_looked_at() {
        let file = archive(&[("a.txt", &[0xff; 5_000]), ("b.txt", b"good")]);
        let options =
            ScanOptions { row_bytes_max: 4_096, on_bad: OnBad::Skip { limit: 1 }, ..Default::default() };
        let scanned = try_scan(Format::Tar, &file, &options).unwrap();
        assert_eq!(scanned.summary.bad[0].reason, "it is longer than 4096 bytes");
        assert_eq!(scanned.summary.schema[0].kind, Kind::String);
    }

    #[test]
    fn every_cut_is_found() {
        let file = archive(&[("a.txt", b"1"), ("b.x", &[2; 600])]);
        let whole = 1024 + 512 + 1024;
        for end in (1..=whole).step_by(7).chain([512, 1024, 1536, 2560]) {
            let error = try_scan(Format::Tar, &file[..end], &ScanOptions::default()).unwrap_err();
            assert!(matches!(error, DataError::Truncated { .. }), "{end}: {error}");
        }
        let mut joined = archive(&[("a.x", b"1")]);
        joined.extend(archive(&[("b.x", b"1")]));
        let error = try_scan(Format::Tar, &joined, &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::NotThisFormat { offset: 2048, .. }), "{error}");
        let error = try_scan(Format::Tar, &[b'x'; 2000], &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::NotThisFormat { offset: 0, .. }));
    }
}
