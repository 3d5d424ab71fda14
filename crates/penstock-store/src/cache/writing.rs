//! Making a file that is there whole or not at all, and leaves nothing when its writer is killed.
//!
//! The file has no name until it is complete (`O_TMPFILE`, then a link); where a file system cannot do that, it has a temporary name, which
//! eviction and `clear` sweep up once it is old.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ground::make_folder;
use super::names::TEMPORARY;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A file that was written.
pub(crate) struct Written {
    /// Open for reading.
    pub(crate) file: File,
    /// False if somebody else has made the same file meanwhile.
    pub(crate) is_new: bool,
}

/// Writes `parts`, one after another, as the file `path`, unless it exists. Missing folders are made, once.
pub(crate) fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<Written> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let nameless = match open_nameless(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(folder)?;
            open_nameless(folder)
        }
        opened => opened,
    };
    match nameless {
        Ok(mut file) => {
            write_parts(&mut file, parts)?;
            match link(&file, path) {
                Ok(()) => Ok(Written { file, is_new: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Ok(Written { file, is_new: false })
                }
                // No /proc, or links are forbidden: names will do.
                Err(error) if error.kind() != io::ErrorKind::NotFound => write_named(folder, path, parts),
                Err(error) => Err(error),
            }
        }
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) =>
        {
            write_named(folder, path, parts)
        }
        Err(error) => Err(error),
    }
}

fn open_nameless(folder: &Path) -> io::Result<File> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a path that ends with zero.
    match unsafe { libc::open(folder.as_ptr(), flags, 0o644) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: a descriptor that nobody else has.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
    }
}

fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both paths end with zero.
    let answer = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn write_named(folder: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<Written> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
    let mut file =
        File::options().read(true).write(true).create(true).truncate(true).mode(0o644).open(&temporary)?;
    let done = write_parts(&mut file, parts).and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = done {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(Written { file, is_new: true })
}

fn write_parts(file: &mut File, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    // Each turn writes at least one byte or returns.
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_and_alone_both_ways() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        assert!(write_new(&path, &[b"one", b"", b"two"]).unwrap().is_new);
        assert!(!write_new(&path, &[b"other"]).unwrap().is_new);
        assert_eq!(std::fs::read(&path).unwrap(), b"onetwo");
        let named = dir.path().join("a/b/named");
        write_named(named.parent().unwrap(), &named, &[b"three"]).unwrap();
        assert_eq!(std::fs::read(&named).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(named.parent().unwrap()).unwrap().count(), 2);
    }
}
