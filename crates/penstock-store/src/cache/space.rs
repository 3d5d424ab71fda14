//! How much room a disk has, and which share of it a cache may take.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How much a cache may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// A share of the disk, from 0 to 1.
    OfDisk(f64),
}

impl Share {
    /// From words like `50G`, `800MiB`, `123456` or `10%`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let share: f64 = percent.trim().parse().ok()?;
            return (share > 0.0 && share <= 100.0).then_some(Self::OfDisk(share / 100.0));
        }
        let letters = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = text[letters.len()..].to_ascii_lowercase();
        let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
        let factor = match unit {
            "" => 1_u64,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return None,
        };
        let number: f64 = letters.trim().parse().ok()?;
        let bytes = number * factor as f64;
        (1.0..9e18).contains(&bytes).then_some(Self::Bytes(bytes as u64))
    }

    /// In bytes, on the disk of a directory.
    pub fn bytes(self, root: &Path) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::OfDisk(share) => (disk_of(root).map_or(0.0, |(total, _)| total as f64) * share) as u64,
        }
    }
}

/// Bytes of the disk that holds a directory, and how many of them are free; of the nearest directory above that exists.
pub fn disk_of(root: &Path) -> Option<(u64, u64)> {
    let exists = root.ancestors().find(|folder| folder.is_dir())?;
    let path = CString::new(exists.as_os_str().as_bytes()).ok()?;
    let mut status = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a path that ends with zero, and memory for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in, as the call says.
    let status = unsafe { status.assume_init() };
    Some((status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize))
}

pub(crate) fn free_bytes(root: &Path) -> Option<u64> {
    disk_of(root).map(|(_, free)| free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in
            [("50G", 50 << 30), ("1.5M", 3 << 19), ("800 KiB", 800 << 10), ("12", 12), ("2tb", 2 << 40)]
        {
            assert_eq!(Share::parse(text), Some(Share::Bytes(bytes)), "{text}");
        }
        assert_eq!(Share::parse("10%"), Some(Share::OfDisk(0.1)));
        for text in ["", "G", "10x", "-1G", "0", "0%", "101%", "nan", "1e30"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        let (total, free) = disk_of(Path::new("/nowhere/at/all")).unwrap();
        assert!(free <= total && Share::OfDisk(0.5).bytes(Path::new("/")) <= total);
    }
}
