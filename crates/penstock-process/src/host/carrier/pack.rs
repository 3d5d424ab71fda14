//! A shipment as a file: `u64` length of the manifest (big-endian), the manifest as JSON, then the contents of all files, one after the
//! other. The name of a shipment is the digest of its manifest, which has the digest of every file.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::Deserialize;

/// A shipment is at most this large; contents of files count.
pub(super) const CONTENT_BYTES_MAX: u64 = 256 << 20;
/// And so is its manifest.
pub(super) const MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// What comes before a manifest.
pub(super) const LENGTH_BYTES: u64 = 8;
const PIECE_BYTES: usize = 1 << 20;

/// A file, a link or a directory.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Entry {
    /// Below the directory, with slashes.
    pub(super) path: String,
    #[serde(default)]
    pub(super) mode: u32,
    /// Of a file.
    #[serde(default)]
    pub(super) size: u64,
    /// SHA-256, in hex.
    #[serde(default)]
    pub(super) digest: String,
    /// Of a link: where it leads.
    #[serde(default)]
    pub(super) link: Option<String>,
    #[serde(default)]
    pub(super) is_directory: bool,
}

/// As it is written.
#[derive(Deserialize)]
struct Written {
    place: String,
    entries: Vec<Entry>,
}

/// What is in a shipment.
#[derive(Debug, Clone, Default)]
pub(super) struct Manifest {
    /// Below the directory: where ranks run.
    pub(super) place: String,
    /// Where contents begin.
    pub(super) begin: u64,
    /// The end of the last one.
    pub(super) end: u64,
    /// Entries, and where the content of each begins.
    pub(super) entries: Vec<(Entry, u64)>,
}

fn damaged(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl Manifest {
    /// Reads one from the beginning of a shipment.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact_at(&mut length, 0)?;
        let length = u64::from_be_bytes(length);
        if length > MANIFEST_BYTES_MAX {
            return Err(damaged(format!("its manifest has {length} bytes")));
        }
        let mut text = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut text, LENGTH_BYTES)?;
        let Written { place, entries: listed } =
            serde_json::from_slice(&text).map_err(|problem| damaged(problem.to_string()))?;
        if !is_plain(Path::new(&place)) {
            return Err(damaged(format!("ranks would run in {place:?}")));
        }
        let begin = LENGTH_BYTES + length;
        let mut end = begin;
        let mut entries = Vec::with_capacity(listed.len());
        for entry in listed {
            check_path(&entry)?;
            let size = entry.size;
            entries.push((entry, end));
            end = end.saturating_add(size);
        }
        if end - begin > CONTENT_BYTES_MAX {
            return Err(damaged(format!("its files have {} bytes", end - begin)));
        }
        Ok(Self { place, begin, end, entries })
    }

    /// Files that have a content.
    pub(super) fn files(&self) -> impl Iterator<Item = &(Entry, u64)> {
        self.entries.iter().filter(|(entry, _)| entry.size > 0)
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// No path and no link leads out.
fn check_path(entry: &Entry) -> io::Result<()> {
    let path = Path::new(&entry.path);
    if entry.path.is_empty() || !is_plain(path) {
        return Err(damaged(format!("{:?} is no path in it", entry.path)));
    }
    let Some(link) = &entry.link else { return Ok(()) };
    let mut depth = path.components().count() - 1;
    for part in Path::new(link).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return Err(damaged(format!("the link {:?} leads out of it", entry.path))),
        }
    }
    Ok(())
}

/// Copies what other shipments have of the same files; the ranges that are missing then, joined where they touch.
pub(super) fn fill(file: &File, manifest: &Manifest, others: &[PathBuf]) -> io::Result<Vec<(u64, u64)>> {
    let mut known: HashMap<String, (usize, u64)> = HashMap::new();
    let mut opened = Vec::new();
    for path in others {
        let Ok(other) = File::open(path) else { continue };
        // One that is damaged is of no use, and no harm.
        let Ok(of_other) = Manifest::read(&other) else { continue };
        for (entry, begin) in of_other.files() {
            known.entry(entry.digest.clone()).or_insert((opened.len(), *begin));
        }
        opened.push(other);
    }
    let mut missing: Vec<(u64, u64)> = Vec::new();
    for (entry, begin) in manifest.files() {
        let copied = known.get(&entry.digest).is_some_and(|(number, from)| {
            copy(&opened[*number], *from, file, *begin, entry.size).is_ok_and(|digest| digest == entry.digest)
        });
        let end = begin + entry.size;
        match missing.last_mut().filter(|(_, last)| last == begin && !copied) {
            Some(last) => last.1 = end,
            None if !copied => missing.push((*begin, end)),
            None => {}
        }
    }
    Ok(missing)
}

/// Copies a piece of one file into another; its digest.
fn copy(from: &File, at: u64, to: &File, place: u64, size: u64) -> io::Result<String> {
    let (mut context, mut buffer, mut done) = (Context::new(&SHA256), vec![0; PIECE_BYTES], 0);
    while done < size {
        let count = PIECE_BYTES.min(usize::try_from(size - done).unwrap_or(PIECE_BYTES));
        from.read_exact_at(&mut buffer[..count], at + done)?;
        context.update(&buffer[..count]);
        to.write_all_at(&buffer[..count], place + done)?;
        done += count as u64;
    }
    Ok(hex(context.finish().as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the files of a shipment below a directory that is not there yet. Every digest is checked on the way.
pub(super) fn unpack(file: &File, manifest: &Manifest, to: &Path) -> io::Result<()> {
    make_directory(to)?;
    let mut directories = Vec::new();
    for (entry, begin) in &manifest.entries {
        let path = to.join(&entry.path);
        if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
            make_directory(parent)?;
        }
        if entry.is_directory {
            make_directory(&path)?;
            directories.push((path, entry.mode));
        } else if let Some(link) = &entry.link {
            symlink(link, &path)?;
        } else {
            write_file(file, entry, *begin, &path)?;
        }
    }
    // Last, because one that may not be written to takes no files.
    for (path, mode) in directories.into_iter().rev() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777 | 0o700))?;
    }
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn write_file(file: &File, entry: &Entry, begin: u64, path: &Path) -> io::Result<()> {
    // A path through a link of the shipment itself would lead elsewhere; nothing is written through links.
    let flags = libc::O_NOFOLLOW;
    let mut target = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)?;
    let mut source = file;
    source.seek(SeekFrom::Start(begin))?;
    let mut source = source.take(entry.size);
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; PIECE_BYTES]);
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        context.update(&buffer[..count]);
        target.write_all(&buffer[..count])?;
    }
    let found = hex(context.finish().as_ref());
    if found != entry.digest {
        return Err(damaged(format!("{} has digest {found}, not {}", entry.path, entry.digest)));
    }
    target.set_permissions(fs::Permissions::from_mode(entry.mode & 0o777))
}
