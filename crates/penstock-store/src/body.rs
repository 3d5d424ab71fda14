//! What is written into a store: bytes of which copies are asked for, part by part, while the upload runs.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::{Bytes, BytesMut};

/// Where the bytes of an upload come from. Asked by the uploading thread only; a part that is sent again is asked for again.
pub trait Body {
    /// Length of all.
    fn len(&self) -> u64;

    /// A copy of some of them.
    fn copy(&self, range: Range<u64>) -> Result<Bytes, String>;

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pieces of memory, one after another.
pub struct Slices<'a>(pub Vec<&'a [u8]>);

impl Body for Slices<'_> {
    fn len(&self) -> u64 {
        self.0.iter().map(|slice| slice.len() as u64).sum()
    }

    fn copy(&self, range: Range<u64>) -> Result<Bytes, String> {
        let mut copied = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut begin = 0;
        for slice in &self.0 {
            let end = begin + slice.len() as u64;
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                copied.extend_from_slice(&slice[(from - begin) as usize..(to - begin) as usize]);
            }
            begin = end;
        }
        Ok(copied.freeze())
    }
}

/// A file of this machine, as long as it was when it was opened.
pub struct FileBody {
    file: File,
    bytes: u64,
}

impl FileBody {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

impl Body for FileBody {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn copy(&self, range: Range<u64>) -> Result<Bytes, String> {
        let mut copied = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut copied, range.start).map_err(|error| {
            format!("the file to be sent cannot be read at byte {}: {error}", range.start)
        })?;
        Ok(copied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: any range of any cutting gives the same bytes. Method: all ranges of ten bytes, from memory and from a file.
    #[test]
    fn every_range_is_copied_as_it_is() {
        let whole: Vec<u8> = (0..10).collect();
        let slices = Slices(vec![&whole[..3], &[], &whole[3..4], &whole[4..]]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), &whole).unwrap();
        let file = FileBody::open(&folder.path().join("f")).unwrap();
        assert_eq!((slices.len(), file.len()), (10, 10));
        for start in 0..=10 {
            for end in start..=10 {
                let expected = Ok(Bytes::copy_from_slice(&whole[start..end]));
                assert_eq!(slices.copy(start as u64..end as u64), expected);
                assert_eq!(file.copy(start as u64..end as u64), expected);
            }
        }
        assert!(file.copy(5..11).unwrap_err().contains("byte 5"));
    }
}
