//! What every scan does whatever the format: sum the bytes that pass, write the index, report, and judge bad rows.
//!
//! Bytes come through a [`RawStream`](super::raw::RawStream), which sits under any decoder; rows come from the format's
//! walker, which sits above it. Both speak to one [`Recorder`], shared by reference within the thread of the scan.

use std::collections::BTreeMap;
use std::io;

use penstock_io::{BLOCK_BYTES, Digest, IoError};

use super::{
    BadRow, Field, OnBad, PROGRESS_BYTES, Progress, ProgressFn, ScanOptions, ScanRequest, ScanSummary,
};
use crate::DataError;
use crate::index::{INDEX_VERSION, IndexDocument, IndexWriter, Layout};

/// Bytes of a reason that are kept; a reason may quote the data.
const REASON_BYTES_MAX: usize = 400;

/// The record of a scan under way.
pub(crate) struct Recorder<'a> {
    /// What errors call the shard.
    shard: &'a str,
    /// The caller's choices.
    options: &'a ScanOptions,
    /// Told how far the scan has come.
    progress: Option<&'a mut ProgressFn<'a>>,
    /// Raw bytes at which `progress` is told next.
    progress_at: u64,
    /// Raw bytes that have come.
    bytes: u64,
    /// Identity of the shard, once its end has come.
    digest: Option<Digest>,
    /// The index under way.
    writer: IndexWriter,
    /// Rows left out so far; at most as many as the policy allows.
    bad: Vec<BadRow>,
}

/// What a format's walker knows at the end.
pub(crate) struct Findings {
    pub(crate) format: String,
    pub(crate) layout: Layout,
    /// Number of rows where the index has no ranges to count.
    pub(crate) rows: Option<u64>,
    pub(crate) schema: Vec<Field>,
    pub(crate) details: BTreeMap<String, serde_json::Value>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(request: ScanRequest<'a>) -> Result<Self, DataError> {
        Ok(Self {
            shard: request.shard,
            options: request.options,
            progress: request.progress,
            progress_at: PROGRESS_BYTES,
            bytes: 0,
            digest: None,
            writer: IndexWriter::create(request.index_path)?,
            bad: Vec::new(),
        })
    }

    pub(crate) fn shard(&self) -> &'a str {
        self.shard
    }

    pub(crate) fn options(&self) -> &'a ScanOptions {
        self.options
    }

    /// Raw bytes that have come so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn rows(&self) -> u64 {
        self.writer.rows()
    }

    /// Takes the sums of the next `bytes` raw bytes.
    pub(crate) fn pass(&mut self, bytes: usize, sums: &[u64]) -> Result<(), DataError> {
        self.writer.blocks(sums)?;
        self.bytes += bytes as u64;
        if self.bytes() < self.progress_at {
            return Ok(());
        }
        self.progress_at = self.bytes() + PROGRESS_BYTES;
        let now = Progress { bytes: self.bytes(), rows: self.rows() };
        if self.progress.as_mut().is_some_and(|progress| progress(now).is_break()) {
            return Err(DataError::Cancelled { shard: self.shard.to_owned(), offset: self.bytes() });
        }
        Ok(())
    }

    /// Takes what is known when the raw bytes have ended: the sum of a short last block, and the identity of all.
    pub(crate) fn ended(&mut self, last: Option<u64>, digest: Digest) -> Result<(), DataError> {
        self.digest = Some(digest);
        self.writer.blocks(last.as_slice())
    }

    pub(crate) fn row(&mut self, offset: u64, length: u32) -> Result<(), DataError> {
        self.writer.row(offset, length)
    }

    pub(crate) fn named_row(&mut self, offset: u64, length: u32, name: &str) -> Result<(), DataError> {
        self.writer.named_row(offset, length, name)
    }

    pub(crate) fn frame(&mut self, offset: u64, start: u64) -> Result<(), DataError> {
        self.writer.frame(offset, start)
    }

    /// Leaves a row out, if the policy allows.
    pub(crate) fn bad(&mut self, line: u64, offset: u64, reason: String) -> Result<(), DataError> {
        let (shard, reason) = (self.shard.to_owned(), cut(reason));
        match self.options.on_bad {
            OnBad::Fail => Err(DataError::BadRow { shard, line, offset, reason }),
            OnBad::Skip { limit } if self.bad.len() as u64 >= limit => {
                Err(DataError::TooManyBad { shard, limit, line, offset, reason })
            }
            OnBad::Skip { .. } => {
                self.bad.push(BadRow { line, offset, reason });
                Ok(())
            }
        }
    }

    /// Leaves out a row that is too long, if the policy allows.
    pub(crate) fn too_large(&mut self, line: u64, offset: u64) -> Result<(), DataError> {
        let limit = u64::from(self.options.row_bytes_max);
        match self.options.on_bad {
            OnBad::Fail => Err(DataError::RowTooLarge { shard: self.shard.to_owned(), line, offset, limit }),
            OnBad::Skip { .. } => self.bad(line, offset, format!("it is longer than {limit} bytes")),
        }
    }

    pub(crate) fn truncated(&self, offset: u64) -> DataError {
        DataError::Truncated { shard: self.shard.to_owned(), offset }
    }

    pub(crate) fn not_this_format(&self, format: &str, offset: u64, reason: impl Into<String>) -> DataError {
        let (shard, format) = (self.shard.to_owned(), format.to_owned());
        DataError::NotThisFormat { shard, format, offset, reason: cut(reason.into()) }
    }

    /// The typed form of what a read under a decoder returned: our own error, or the operating system's.
    pub(crate) fn read_failed(&self, error: io::Error) -> DataError {
        read_failed(self.shard, self.bytes(), error)
    }

    /// Writes the document and gives the index its name.
    pub(crate) fn finish(self, findings: Findings) -> Result<ScanSummary, DataError> {
        let (bytes, rows) = (self.bytes(), findings.rows.unwrap_or(self.rows()));
        if rows == 0 && !self.options.allow_empty {
            return Err(DataError::EmptyShard { shard: self.shard.to_owned() });
        }
        // A walker that stopped early would leave bytes unsummed, and so unreadable: that is our mistake, not the file's.
        let Some(digest) = self.digest else { return Err(self.truncated(bytes)) };
        let document = IndexDocument {
            version: INDEX_VERSION,
            format: findings.format,
            layout: findings.layout,
            block_bytes: BLOCK_BYTES,
            bytes,
            rows,
            digest: digest.to_string(),
            details: findings.details,
        };
        let written = self.writer.finish(&document)?;
        if let Some(progress) = self.progress {
            // The work is done, so a wish to stop comes too late to matter.
            let _ = progress(Progress { bytes, rows });
        }
        Ok(ScanSummary {
            rows,
            bytes,
            digest,
            index_digest: written.digest,
            index_bytes: written.bytes,
            schema: findings.schema,
            bad: self.bad,
            details: document.details,
        })
    }
}

fn cut(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

/// The typed form of a read error: our own, if it carries one, or the operating system's.
pub(crate) fn read_failed(shard: &str, offset: u64, error: io::Error) -> DataError {
    let ours =
        error.downcast::<DataError>().or_else(|other| other.downcast::<IoError>().map(DataError::from));
    ours.unwrap_or_else(|system| IoError::from_system(shard, Some(offset), &system).into())
}
