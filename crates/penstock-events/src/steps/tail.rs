//! Rows that are in no block yet: in memory as the thread has them, and in the tail file as a kill leaves them.

use crate::steps::block::Block;
use crate::steps::frame::{self, Content};
use crate::steps::{Column, Kind};
use std::collections::VecDeque;

/// A step that has begun: its number, and when.
pub(crate) type Begun = (i64, i64);

/// Rows in order, without a gap.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    pub(crate) columns: Vec<Column>,
    /// The number of the first row.
    pub(crate) first: u64,
    /// Values by column; a row from before a column was added is shorter.
    rows: VecDeque<Vec<i64>>,
    /// The step that has begun and has no row yet.
    pub(crate) begun: Option<Begun>,
}

impl Tail {
    pub(crate) fn new(columns: Vec<Column>) -> Tail {
        Tail { columns, ..Tail::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a row with this number can follow.
    pub(crate) fn follows(&self, number: u64) -> bool {
        self.rows.is_empty() || number == self.first + self.rows.len() as u64
    }

    pub(crate) fn push(&mut self, number: u64, values: Vec<i64>) {
        if self.rows.is_empty() {
            self.first = number;
        }
        debug_assert!(self.follows(number));
        self.rows.push_back(values);
        self.begun = None;
    }

    /// Whether the row is still here.
    pub(crate) fn patch(&mut self, number: u64, column: usize, value: i64) -> bool {
        let Some(at) = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok()) else {
            return false;
        };
        let (Some(row), true) = (self.rows.get_mut(at), column < self.columns.len()) else { return false };
        for missing in row.len()..=column {
            row.push(self.columns[missing].kind.unmeasured());
        }
        row[column] = value;
        true
    }

    /// The oldest rows as a block; they stay until they are dropped.
    pub(crate) fn block(&self, count: usize) -> Block {
        let rows = count.min(self.rows.len());
        let value = |row: &Vec<i64>, at: usize, kind: Kind| row.get(at).copied().unwrap_or(kind.unmeasured());
        let columns = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let values = self.rows.iter().take(rows).map(|row| value(row, at, column.kind)).collect();
                (column.clone(), values)
            })
            .collect();
        Block { first: self.first, rows, columns }
    }

    pub(crate) fn forget(&mut self, count: usize) {
        let count = count.min(self.rows.len());
        self.rows.drain(..count);
        self.first += count as u64;
    }

    /// The whole tail as frames.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Twice: no row could be read without them.
        frame::push(&mut bytes, &columns_payload(&self.columns));
        frame::push(&mut bytes, &columns_payload(&self.columns));
        for (at, row) in self.rows.iter().enumerate() {
            frame::push(&mut bytes, &row_payload(self.first + at as u64, row));
        }
        if let Some((step, at)) = self.begun {
            frame::push(&mut bytes, &frame::integers(Content::Begin, &[step, at]));
        }
        bytes
    }

    /// Takes what a frame of a tail file says; whether it makes sense.
    pub(crate) fn take(&mut self, payload: &[u8]) -> bool {
        match Content::of(payload[0]) {
            Some(Content::Columns) => match columns_of(payload) {
                Some(columns) => self.columns = columns,
                None => return false,
            },
            Some(Content::Begin) => match frame::integers_of(payload)[..] {
                [step, at] => self.begun = (step >= 0).then_some((step, at)),
                _ => return false,
            },
            Some(Content::Row) => {
                let mut values = frame::integers_of(payload);
                if values.is_empty() || values.len() > 1 + self.columns.len() {
                    return false;
                }
                let number = values.remove(0) as u64;
                // A row that a flip took leaves a gap, which nothing fills.
                let last = self.first + self.rows.len() as u64;
                if !self.rows.is_empty() && (number < last || number - last > GAP_MAX) {
                    return false;
                }
                while !self.follows(number) {
                    self.rows.push_back(Vec::new());
                }
                self.push(number, values);
            }
            Some(Content::Patch) => match frame::integers_of(payload)[..] {
                [number, column, value] => {
                    self.patch(number as u64, usize::try_from(column).unwrap_or(usize::MAX), value);
                }
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    /// Numbers of rows that are only gaps.
    pub(crate) fn gaps(&self) -> Vec<usize> {
        self.rows.iter().enumerate().filter(|(_, row)| row.is_empty()).map(|(at, _)| at).collect()
    }
}

/// Rows that a damaged tail may miss in a row; more is no tail of ours.
const GAP_MAX: u64 = 1 << 16;

pub(crate) fn row_payload(number: u64, values: &[i64]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(9 + 8 * values.len());
    payload.push(Content::Row as u8);
    payload.extend_from_slice(&number.to_le_bytes());
    values.iter().for_each(|value| payload.extend_from_slice(&value.to_le_bytes()));
    payload
}

pub(crate) fn columns_payload(columns: &[Column]) -> Vec<u8> {
    let mut payload = vec![Content::Columns as u8];
    for column in columns {
        payload.push(matches!(column.kind, Kind::Float) as u8);
        payload.push(column.name.len() as u8);
        payload.extend_from_slice(column.name.as_bytes());
    }
    payload
}

fn columns_of(payload: &[u8]) -> Option<Vec<Column>> {
    let mut rest = &payload[1..];
    let mut columns = Vec::new();
    while let Some((&[kind, length], after)) = rest.split_first_chunk::<2>() {
        let (name, after) = after.split_at_checked(length.into())?;
        let kind = if kind == 1 { Kind::Float } else { Kind::Integer };
        columns.push(Column { name: std::str::from_utf8(name).ok()?.to_owned(), kind });
        rest = after;
    }
    rest.is_empty().then_some(columns)
}
