//! Blocks: rows as columns, each stored as small differences, byte plane by byte plane, compressed.
//!
//! `begin` is stored as its distance from the end before, and `end` as its distance from `begin` and the sum of the
//! host's parts. Rows tile a life and parts sum to their row, so both are zeros, and still any value survives: arithmetic
//! wraps.

use crate::steps::frame::Content;
use crate::steps::{Column, Kind};

/// Of a block that a reader is asked to hold at once.
pub const ROWS_MAX: usize = 1 << 20;
const LEVEL: i32 = 3;
/// How a column is stored; `MASKED` is added where some values were not measured.
const CONSTANT: u8 = 0;
const DELTA: u8 = 1;
const OFFSET: u8 = 2;
const XOR: u8 = 3;
const MASKED: u8 = 0x40;

/// Some rows, as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The number of the first row; those after it follow without a gap.
    pub first: u64,
    /// How many.
    pub rows: usize,
    /// Columns and their values, in the order in which they were added.
    pub columns: Vec<(Column, Vec<i64>)>,
}

impl Block {
    /// The payload of a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = vec![Content::Block as u8];
        payload.extend_from_slice(&self.first.to_le_bytes());
        payload.extend_from_slice(&(self.rows as u32).to_le_bytes());
        payload.extend_from_slice(&(self.columns.len() as u16).to_le_bytes());
        let (begins, ends) = residuals(&self.columns, self.rows);
        for (column, values) in &self.columns {
            let stored = match column.name.as_str() {
                "begin" => begins.as_deref().unwrap_or(values),
                "end" => ends.as_deref().unwrap_or(values),
                _ => values,
            };
            let (form, bytes) = pack(column.kind, stored);
            payload.push(column.name.len() as u8);
            payload.extend_from_slice(column.name.as_bytes());
            payload.push(matches!(column.kind, Kind::Float) as u8);
            payload.push(form);
            payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            payload.extend_from_slice(&bytes);
        }
        payload
    }

    /// Rows of a payload; of the columns only the wanted ones, unless all are. None when it is no block of ours.
    pub fn decode(payload: &[u8], wanted: Option<&[String]>) -> Option<Block> {
        let mut rest = payload.get(1..)?;
        let first = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let rows = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize;
        let count = u16::from_le_bytes(take(&mut rest, 2)?.try_into().ok()?);
        if rows > ROWS_MAX {
            return None;
        }
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|each| each == name));
        let is_tiled = is_wanted("begin") || is_wanted("end");
        let mut columns = Vec::with_capacity(count.into());
        for _ in 0..count {
            let length = usize::from(take(&mut rest, 1)?[0]);
            let name = std::str::from_utf8(take(&mut rest, length)?).ok()?.to_owned();
            let kind = if take(&mut rest, 1)?[0] == 1 { Kind::Float } else { Kind::Integer };
            let form = take(&mut rest, 1)?[0];
            let length = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize;
            let bytes = take(&mut rest, length)?;
            // Begins and ends are stored relative to the host's parts.
            let is_needed = is_tiled && (name == "begin" || name == "end" || name.starts_with("host."));
            if is_needed || is_wanted(&name) {
                columns.push((Column { name, kind }, unpack(kind, form, bytes, rows)?));
            }
        }
        if is_tiled {
            restore(&mut columns, rows);
        }
        columns.retain(|(column, _)| is_wanted(&column.name));
        Some(Block { first, rows, columns })
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn place(columns: &[(Column, Vec<i64>)], name: &str) -> Option<usize> {
    columns.iter().position(|(column, _)| column.name == name)
}

/// The sum of the host's parts in each row.
fn host_sums(columns: &[(Column, Vec<i64>)], rows: usize) -> Vec<i64> {
    let mut sums = vec![0i64; rows];
    for (_, values) in columns.iter().filter(|(column, _)| column.name.starts_with("host.")) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(known(*value)));
    }
    sums
}

/// What was not measured adds nothing.
fn known(value: i64) -> i64 {
    if value == crate::steps::UNMEASURED { 0 } else { value }
}

fn residuals(columns: &[(Column, Vec<i64>)], rows: usize) -> (Option<Vec<i64>>, Option<Vec<i64>>) {
    let (Some(begin), Some(end)) = (place(columns, "begin"), place(columns, "end")) else {
        return (None, None);
    };
    let (begins, ends) = (&columns[begin].1, &columns[end].1);
    let sums = host_sums(columns, rows);
    let before = std::iter::once(0).chain(ends.iter().copied());
    let gaps = begins.iter().zip(before).map(|(begin, before)| begin.wrapping_sub(before)).collect();
    let rests = ends
        .iter()
        .zip(begins)
        .zip(&sums)
        .map(|((end, begin), sum)| end.wrapping_sub(*begin).wrapping_sub(*sum))
        .collect();
    (Some(gaps), Some(rests))
}

fn restore(columns: &mut [(Column, Vec<i64>)], rows: usize) {
    let (Some(begin), Some(end)) = (place(columns, "begin"), place(columns, "end")) else { return };
    let sums = host_sums(columns, rows);
    let mut before = 0i64;
    for (row, sum) in sums.into_iter().enumerate() {
        let began = columns[begin].1[row].wrapping_add(before);
        before = columns[end].1[row].wrapping_add(began).wrapping_add(sum);
        columns[begin].1[row] = began;
        columns[end].1[row] = before;
    }
}

/// The form and the bytes of a column: the smallest of those that suit it.
fn pack(kind: Kind, values: &[i64]) -> (u8, Vec<u8>) {
    let first = values.first().copied().unwrap_or(0);
    if values.iter().all(|value| *value == first) {
        return (CONSTANT, first.to_le_bytes().to_vec());
    }
    let absent = kind.unmeasured();
    if values.contains(&absent) {
        let mut mask = vec![0u8; values.len().div_ceil(8)];
        let mut filled = Vec::with_capacity(values.len());
        let mut last = values.iter().copied().find(|value| *value != absent).unwrap_or(0);
        for (row, value) in values.iter().enumerate() {
            if *value == absent {
                mask[row / 8] |= 1 << (row % 8);
            } else {
                last = *value;
            }
            filled.push(last);
        }
        let mask = compress(&mask);
        let (form, inner) = pack(kind, &filled);
        let mut bytes = (mask.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&mask);
        bytes.extend_from_slice(&inner);
        return (form | MASKED, bytes);
    }
    let forms: &[u8] = if kind == Kind::Float { &[XOR] } else { &[DELTA, OFFSET] };
    forms
        .iter()
        .map(|form| (*form, stored(*form, values)))
        .min_by_key(|(_, bytes)| bytes.len())
        .expect("there is a form for every kind")
}

fn stored(form: u8, values: &[i64]) -> Vec<u8> {
    let least = values.iter().copied().min().unwrap_or(0);
    let mut last = 0i64;
    let differences: Vec<u64> = values
        .iter()
        .map(|value| {
            let difference = match form {
                DELTA => zigzag(value.wrapping_sub(last)),
                OFFSET => value.wrapping_sub(least) as u64,
                _ => (value ^ last) as u64,
            };
            last = *value;
            difference
        })
        .collect();
    let mut bytes = if form == OFFSET { least.to_le_bytes().to_vec() } else { Vec::new() };
    bytes.extend_from_slice(&compress(&planes(&differences)));
    bytes
}

fn unpack(kind: Kind, form: u8, bytes: &[u8], rows: usize) -> Option<Vec<i64>> {
    if form & MASKED != 0 {
        let mut rest = bytes;
        let length = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize;
        let mask = decompress(take(&mut rest, length)?, rows.div_ceil(8))?;
        let mut values = unpack(kind, form & !MASKED, rest, rows)?;
        for (row, value) in values.iter_mut().enumerate() {
            if mask[row / 8] & (1 << (row % 8)) != 0 {
                *value = kind.unmeasured();
            }
        }
        return Some(values);
    }
    let mut rest = bytes;
    if form == CONSTANT {
        return Some(vec![i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?); rows]);
    }
    let least = if form == OFFSET { i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?) } else { 0 };
    let planes = decompress(rest, rows * 8)?;
    let mut last = 0i64;
    let value_of = |row: usize| {
        let difference =
            (0..8).fold(0u64, |sum, plane| sum | u64::from(planes[plane * rows + row]) << (8 * plane));
        last = match form {
            DELTA => last.wrapping_add(unzigzag(difference)),
            OFFSET => least.wrapping_add(difference as i64),
            XOR => last ^ difference as i64,
            _ => return None,
        };
        Some(last)
    };
    (0..rows).map(value_of).collect()
}

/// All lowest bytes, then all second ones: noise and zeros apart.
fn planes(values: &[u64]) -> Vec<u8> {
    (0..8).flat_map(|plane| values.iter().map(move |value| (value >> (8 * plane)) as u8)).collect()
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, LEVEL).expect("compressing memory into memory cannot fail")
}

fn decompress(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(bytes, length).ok().filter(|plain| plain.len() == length)
}

#[cfg(test)]
mod tests;
