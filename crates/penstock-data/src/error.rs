//! What can go wrong with a dataset's bytes. Every variant carries its values as fields; texts say them to people.

use std::ops::RangeInclusive;

use penstock_io::{IoError, delivered};

/// A failure to scan, index or read a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// A block of a shard is not what was registered.
    #[error("shard `{shard}` is corrupt at byte {offset}: expected xxh3 {expected:016x}, found {found:016x}")]
    Corrupt {
        /// The shard's name.
        shard: String,
        /// First byte of the damaged block.
        offset: u64,
        /// The registered sum of the block.
        expected: u64,
        /// The sum of the block now.
        found: u64,
    },
    /// Bytes of a shard changed while it was read, and steps got bytes of it before that showed.
    #[error("{problem}; {}", delivered(.steps))]
    Delivered {
        /// What is wrong with them.
        problem: Box<DataError>,
        /// Steps that read the shard since it was last seen unchanged.
        steps: RangeInclusive<u64>,
    },
    /// A shard is not as long as when it was registered.
    #[error("shard `{shard}` has {found} bytes, but was registered with {expected}")]
    SizeChanged {
        /// The shard's name.
        shard: String,
        /// Registered length in bytes.
        expected: u64,
        /// Length in bytes now.
        found: u64,
    },
    /// A file ends inside something that goes on.
    #[error("shard `{shard}` is truncated: it ends inside what begins at byte {offset}")]
    Truncated {
        /// The shard's name.
        shard: String,
        /// First byte of the frame, member or record that is cut off.
        offset: u64,
    },
    /// One row breaks the format's contract, and bad rows are not to be skipped.
    #[error("row at line {line} (byte {offset}) of `{shard}` is bad: {reason}")]
    BadRow {
        /// The shard's name.
        shard: String,
        /// Line of the row counted from 1, or its ordinal counted from 1 where a format has no lines.
        line: u64,
        /// First byte of the row; in a compressed file, of the decompressed stream.
        offset: u64,
        /// Which rule it breaks, with values.
        reason: String,
    },
    /// More bad rows than may be skipped.
    #[error("more than {limit} bad rows in `{shard}`; the last one is line {line} (byte {offset}): {reason}")]
    TooManyBad {
        /// The shard's name.
        shard: String,
        /// How many might have been skipped.
        limit: u64,
        /// Line or ordinal, counted from 1, of the row that was one too many.
        line: u64,
        /// First byte of that row.
        offset: u64,
        /// Which rule that row breaks.
        reason: String,
    },
    /// One row is longer than the scan accepts.
    #[error("row at line {line} (byte {offset}) of `{shard}` is longer than {limit} bytes")]
    RowTooLarge {
        /// The shard's name.
        shard: String,
        /// Line or ordinal, counted from 1.
        line: u64,
        /// First byte of the row.
        offset: u64,
        /// Most bytes a row may have.
        limit: u64,
    },
    /// A shard without a single row.
    #[error("shard `{shard}` has no rows")]
    EmptyShard {
        /// The shard's name.
        shard: String,
    },
    /// The bytes are not of the format they were scanned as.
    #[error("`{shard}` is not {format}: at byte {offset}, {reason}")]
    NotThisFormat {
        /// The shard's name.
        shard: String,
        /// The format it was scanned as.
        format: String,
        /// Where it stopped looking like that format.
        offset: u64,
        /// What was found there.
        reason: String,
    },
    /// A compressed stream cannot be decoded.
    #[error("`{shard}` cannot be decompressed at byte {offset}: {reason}")]
    BadStream {
        /// The shard's name.
        shard: String,
        /// Where decoding stopped, or the first byte of the frame it stopped in.
        offset: u64,
        /// The decoder's words.
        reason: String,
    },
    /// A frame is too large to be decompressed for the sake of one row.
    #[error("frame at byte {offset} of `{shard}` holds {bytes} bytes; at most {limit} can be read at random")]
    FrameTooLarge {
        /// The shard's name.
        shard: String,
        /// First byte of the frame.
        offset: u64,
        /// Its decompressed size.
        bytes: u64,
        /// Most bytes a frame may hold to be read.
        limit: u64,
    },
    /// An index file is not what it should be.
    #[error("index is damaged: {reason}")]
    IndexDamaged {
        /// What is wrong, with values.
        reason: String,
    },
    /// An index was written by a newer Penstock.
    #[error("index has format version {found}, but versions up to {known} are known here")]
    IndexVersion {
        /// The version in the file.
        found: u64,
        /// The newest version that can be read.
        known: u64,
    },
    /// An index file cannot be written.
    #[error("index `{path}` cannot be written: {reason}")]
    IndexWrite {
        /// Where it was to be.
        path: String,
        /// The operating system's words.
        reason: String,
    },
    /// A row that the shard does not have.
    #[error("row {row} was asked for, but `{shard}` has {rows}")]
    OutOfRange {
        /// The shard's name.
        shard: String,
        /// The row asked for, counted from 0.
        row: u64,
        /// How many rows there are.
        rows: u64,
    },
    /// The index of this shard says nothing about where rows are.
    #[error("`{shard}` has an index without row ranges, so its rows are found by the reader of its format")]
    NoRanges {
        /// The shard's name.
        shard: String,
    },
    /// More bytes asked for at once than can be held.
    #[error("{bytes} bytes of `{shard}` cannot be held in memory at once")]
    TooMuch {
        /// The shard's name.
        shard: String,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// The caller's progress function asked to stop.
    #[error("scan of `{shard}` was stopped at byte {offset}")]
    Cancelled {
        /// The shard's name.
        shard: String,
        /// Bytes read until then.
        offset: u64,
    },
    /// Bytes could not be read at all.
    #[error(transparent)]
    Io(IoError),
}

impl From<IoError> for DataError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Corrupt { name: shard, offset, expected, found } => {
                Self::Corrupt { shard, offset, expected, found }
            }
            IoError::SizeChanged { name: shard, expected, found } => {
                Self::SizeChanged { shard, expected, found }
            }
            IoError::Short { name: shard, offset, .. } => Self::Truncated { shard, offset },
            IoError::Delivered { problem, steps } => {
                Self::Delivered { problem: Box::new(Self::from(*problem)), steps }
            }
            other => Self::Io(other),
        }
    }
}

impl DataError {
    /// The same error with another name for the shard, for callers that read through a local copy.
    pub fn for_shard(mut self, name: &str) -> Self {
        match &mut self {
            Self::Corrupt { shard, .. }
            | Self::SizeChanged { shard, .. }
            | Self::Truncated { shard, .. }
            | Self::BadRow { shard, .. }
            | Self::TooManyBad { shard, .. }
            | Self::RowTooLarge { shard, .. }
            | Self::EmptyShard { shard }
            | Self::NotThisFormat { shard, .. }
            | Self::BadStream { shard, .. }
            | Self::FrameTooLarge { shard, .. }
            | Self::OutOfRange { shard, .. }
            | Self::NoRanges { shard }
            | Self::TooMuch { shard, .. }
            | Self::Cancelled { shard, .. } => *shard = name.to_owned(),
            Self::Delivered { problem, .. } => **problem = (**problem).clone().for_shard(name),
            Self::IndexDamaged { .. } | Self::IndexVersion { .. } | Self::IndexWrite { .. } | Self::Io(_) => {
            }
        }
        self
    }

    /// The same as the step says it that found out: steps after it were made ahead and have not been delivered.
    pub fn before_step(self, step: u64) -> Self {
        match self {
            Self::Delivered { problem, steps } if *steps.start() >= step => *problem,
            Self::Delivered { problem, steps } => {
                let last = (*steps.end()).min(step - 1);
                Self::Delivered { problem, steps: *steps.start()..=last }
            }
            other => other,
        }
    }

    pub(crate) fn index_damaged(reason: impl Into<String>) -> Self {
        Self::IndexDamaged { reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_layer_found_keeps_its_values() {
        let found = IoError::Corrupt { name: "a".into(), offset: 65_536, expected: 1, found: 2 };
        let error = DataError::from(found);
        assert_eq!(error, DataError::Corrupt { shard: "a".into(), offset: 65_536, expected: 1, found: 2 });
        assert!(
            error.for_shard("s3://b/a").to_string().starts_with("shard `s3://b/a` is corrupt at byte 65536")
        );
        let found = IoError::Corrupt { name: "a".into(), offset: 0, expected: 1, found: 2 };
        let later = DataError::from(IoError::Delivered { problem: Box::new(found), steps: 3..=9 });
        assert!(
            later
                .clone()
                .before_step(6)
                .to_string()
                .ends_with("steps 3 to 5 read it since it was last seen unchanged")
        );
        assert!(matches!(later.before_step(3), DataError::Corrupt { .. }));
        let gone = DataError::from(IoError::NotFound { name: "a".into() });
        assert_eq!(gone.to_string(), "`a` does not exist");
    }
}
