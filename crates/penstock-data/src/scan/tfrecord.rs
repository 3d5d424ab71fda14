//! TFRecord: length, sum of the length, data, sum of the data; a row is the data.
//!
//! Both sums are TensorFlow's masked crc32c and both are checked. A wrong sum of a length ends the scan, because nothing
//! after it can be found; a wrong sum of data makes one bad row.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use super::raw::{RawStream, pass_over, read_full};
use super::record::{Findings, Recorder};
use super::{Field, Format, Kind, ScanRequest, ScanSummary};
use crate::DataError;
use crate::index::Layout;

/// Length (8 bytes) and its sum (4 bytes).
const HEAD_BYTES: u64 = 12;
/// The sum of the data.
const TAIL_BYTES: u64 = 4;

/// Scans a TFRecord file.
pub fn scan_tfrecord(input: impl Read, request: ScanRequest<'_>) -> Result<ScanSummary, DataError> {
    let recorder = RefCell::new(Recorder::new(request)?);
    walk_records(RawStream::new(input, &recorder), &recorder)?;
    recorder.into_inner().finish(Findings {
        format: Format::Tfrecord.name().to_owned(),
        layout: Layout::Ranges,
        rows: None,
        schema: vec![Field { name: "record".into(), kind: Kind::Bytes, optional: false }],
        details: BTreeMap::new(),
    })
}

/// Records a row for every record.
fn walk_records(mut raw: impl BufRead, recorder: &RefCell<Recorder<'_>>) -> Result<(), DataError> {
    let (mut at, mut ordinal) = (0_u64, 1_u64);
    // Each turn reads at least a head, or ends.
    while let Some(length) = read_head(&mut raw, at, recorder)? {
        let data_at = at + HEAD_BYTES;
        let sums = read_data(&mut raw, length)
            .map_err(|error| recorder.borrow().read_failed(error))?
            .ok_or_else(|| recorder.borrow().truncated(at))?;
        let mut recorder = recorder.borrow_mut();
        match u32::try_from(length).ok().filter(|length| *length <= recorder.options().row_bytes_max) {
            None => recorder.too_large(ordinal, data_at)?,
            Some(_) if sums.stored != sums.found => {
                let reason =
                    format!("its data has masked crc32c {:08x}, expected {:08x}", sums.found, sums.stored);
                recorder.bad(ordinal, data_at, reason)?;
            }
            Some(length) => recorder.row(data_at, length)?,
        }
        at = data_at + length + TAIL_BYTES;
        ordinal += 1;
    }
    Ok(())
}

/// The length of the record at `at`, or nothing at the end of the file.
fn read_head(
    raw: &mut impl Read,
    at: u64,
    recorder: &RefCell<Recorder<'_>>,
) -> Result<Option<u64>, DataError> {
    let mut head = [0; HEAD_BYTES as usize];
    let got = read_full(raw, &mut head).map_err(|error| recorder.borrow().read_failed(error))?;
    let recorder = recorder.borrow();
    if got == 0 {
        return Ok(None);
    }
    if got < head.len() {
        return Err(recorder.truncated(at));
    }
    let (length, sum) = head.split_at(8);
    let (computed, stored) = (masked(crc32c::crc32c(length)), le_u32(sum));
    if computed != stored {
        let reason =
            format!("the length of a record has masked crc32c {computed:08x}, expected {stored:08x}");
        return Err(recorder.not_this_format("tfrecord", at, reason));
    }
    let length = length.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    // A length that cannot be added to an offset is no length: the file would have to be larger than a disk can be.
    if length > u64::MAX >> 2 {
        return Err(recorder.truncated(at));
    }
    Ok(Some(length))
}

/// The masked sums of a record's data: as stored after it, and as found.
struct Sums {
    stored: u32,
    found: u32,
}

/// Sums `length` bytes of data and reads the sum behind them. Nothing when the file ends before.
fn read_data(raw: &mut impl BufRead, length: u64) -> std::io::Result<Option<Sums>> {
    let mut sum = 0;
    if pass_over(raw, length, |piece| sum = crc32c::crc32c_append(sum, piece))? < length {
        return Ok(None);
    }
    let mut tail = [0; TAIL_BYTES as usize];
    if read_full(raw, &mut tail)? < tail.len() {
        return Ok(None);
    }
    Ok(Some(Sums { stored: le_u32(&tail), found: masked(sum) }))
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// TensorFlow's mask, which keeps a sum of data that holds sums from being trivial.
fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{OnBad, ScanOptions};
    use crate::testing::try_scan;

    fn record(data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u64).to_le_bytes();
        let sum = |bytes: &[u8]| masked(crc32c::crc32c(bytes)).to_le_bytes();
        [&length, sum(&length).as_slice(), data, &sum(data)].concat()
    }

    fn file() -> Vec<u8> {
        [record(b"one"), record(b""), record(&[7; 300_000])].concat()
    }

    #[test]
    fn a_row_is_the_data_of_a_record() {
        let scanned = try_scan(Format::Tfrecord, &file(), &ScanOptions::default()).unwrap();
        assert_eq!(scanned.rows(), [b"one".to_vec(), vec![], vec![7; 300_000]]);
        // TensorFlow writes this head for a record of three bytes.
        assert_eq!(record(b"abc")[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            masked(crc32c::crc32c(b"123456789")),
            0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8)
        );
    }

    #[test]
    fn every_cut_is_found_with_the_record_it_cuts() {
        let file = [record(b"one"), record(b"two")].concat();
        let starts = [0, 19];
        for end in 1..file.len() {
            if starts.contains(&end) {
                continue;
            }
            let error = try_scan(Format::Tfrecord, &file[..end], &ScanOptions::default()).unwrap_err();
            let offset = if end < 19 { 0 } else { 19 };
            assert_eq!(error, DataError::Truncated { shard: "shard".into(), offset }, "{end}");
        }
    }

    #[test]
    fn a_wrong_sum_is_a_bad_row_and_a_wrong_length_ends_the_scan() {
        let mut damaged = file();
        damaged[13] ^= 1;
        let error = try_scan(Format::Tfrecord, &damaged, &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::BadRow { line: 1, offset: 12, .. }));
        let skip = ScanOptions { on_bad: OnBad::Skip { limit: 1 }, ..Default::default() };
        assert_eq!(try_scan(Format::Tfrecord, &damaged, &skip).unwrap().summary.rows, 2);
        damaged[19] ^= 1;
        let error = try_scan(Format::Tfrecord, &damaged, &skip).unwrap_err();
        assert!(matches!(error, DataError::NotThisFormat { offset: 19, .. }));
    }
}
