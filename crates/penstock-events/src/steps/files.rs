//! The two files that rows go into: blocks, which only grow, and a tail, which is replaced.

use crate::EventError;
use crate::steps::frame;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) const MAGIC: &[u8; 8] = b"PENSTEPS";
pub(crate) const VERSION: u16 = 1;
const FILES_MAX: u32 = 1_000_000;

/// The two files that rows go into.
pub(crate) struct Files {
    pub(crate) number: u32,
    pub(crate) block_path: PathBuf,
    pub(crate) tail_path: PathBuf,
    blocks: File,
    /// Where the last whole frame ends.
    pub(crate) block_bytes: u64,
    /// None until the tail is written for the first time.
    tail: Option<File>,
    pub(crate) tail_bytes: u64,
}

impl Files {
    pub(crate) fn create(folder: &Path, stem: &str, header: &str, from: u32) -> Result<Files, EventError> {
        for number in from..FILES_MAX {
            let block_path = folder.join(format!("{stem}-{number}.pst"));
            let io = |reason| EventError::Io { verb: "create", path: block_path.clone(), reason };
            let mut blocks = match OpenOptions::new().write(true).create_new(true).open(&block_path) {
                Err(reason) if reason.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(io)?,
            };
            let head = head(header);
            blocks.write_all(&head).map_err(io)?;
            let tail_path = folder.join(format!("{stem}-{number}.tail"));
            let block_bytes = head.len() as u64;
            return Ok(Files {
                number,
                block_path,
                tail_path,
                blocks,
                block_bytes,
                tail: None,
                tail_bytes: 0,
            });
        }
        let reason = std::io::Error::other(format!("{stem} has {FILES_MAX} files already"));
        Err(EventError::Io { verb: "create", path: folder.join(stem), reason })
    }

    /// Appends whole frames to the blocks, or nothing.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        append(&mut self.blocks, &mut self.block_bytes, bytes)
    }

    pub(crate) fn append_tail(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.tail {
            Some(file) => append(file, &mut self.tail_bytes, bytes),
            None => Err(std::io::Error::other("there is no tail")),
        }
    }

    /// Another tail in place of the one that is there; a kill leaves one of them whole.
    pub(crate) fn replace_tail(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let beside = self.tail_path.with_extension("tail-new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
        let outcome = file.write_all(bytes).and_then(|()| std::fs::rename(&beside, &self.tail_path));
        if let Err(reason) = outcome {
            let _ = std::fs::remove_file(&beside);
            return Err(reason);
        }
        self.tail = Some(file);
        self.tail_bytes = bytes.len() as u64;
        Ok(())
    }
}

/// How a block file begins.
pub(crate) fn head(header: &str) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&[0, 0]);
    frame::push(&mut head, header.as_bytes());
    head
}

fn append(file: &mut File, good_bytes: &mut u64, bytes: &[u8]) -> std::io::Result<()> {
    let outcome = file.write_all(bytes);
    if outcome.is_ok() {
        *good_bytes += bytes.len() as u64;
    } else {
        // Best effort: if this fails too, a reader finds its way behind the torn frame.
        let _ = file.set_len(*good_bytes);
        let _ = file.seek(SeekFrom::Start(*good_bytes));
    }
    outcome
}
