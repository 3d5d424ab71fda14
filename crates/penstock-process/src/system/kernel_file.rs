//! Files that the kernel makes as they are read, such as those of /proc: their size is said to be 0.
//!
//! The standard library asks for the size, and then reads in small steps that grow: nine calls for a line of numbers. An agent looks
//! at several such files of every quiet rank each second, so here it is four: open, read, read the end, close.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most of these files are smaller, and larger ones only take more calls.
const USUAL_BYTES: usize = 4096;
/// No file that we read is longer.
const BYTES_MAX: u64 = 64 << 20;

/// All that is in it.
pub(super) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(USUAL_BYTES);
    // Only a whole `File` would be asked for its size.
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// All that is in it, if that is text.
pub(super) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_whatever_its_size_is_said_to_be() {
        assert!(read_text("/proc/self/status").unwrap().contains("TracerPid:"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let content: Vec<u8> = (0..3 * USUAL_BYTES + 7).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        assert!(read(&path).unwrap() == content);
        assert!(read(folder.path().join("none")).is_err());
    }
}
