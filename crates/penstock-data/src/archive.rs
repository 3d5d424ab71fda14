//! The tar container: walking its headers, forwards only, from a stream or from the bytes of one row.
//!
//! Understood are ustar, GNU (long names, base-256 sizes) and PAX (path and size). Sparse files are refused, since their bytes
//! are not their contents. Everything a header says is checked before it is used.

use std::io;

use crate::DataError;

pub(crate) const BLOCK: u64 = 512;
/// Longest long name or PAX header that is read.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a member read at a time: they fit the second-level cache, so that what sums them finds them there.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes that are read forwards.
pub(crate) trait Forward {
    /// Fills as much of `into` as there is.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Steps over as many of `bytes` bytes as there are.
    fn step(&mut self, bytes: u64) -> io::Result<u64>;
}

impl Forward for &[u8] {
    fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (head, rest) = self.split_at(self.len().min(into.len()));
        into[..head.len()].copy_from_slice(head);
        *self = rest;
        Ok(head.len())
    }

    fn step(&mut self, bytes: u64) -> io::Result<u64> {
        let count = bytes.min(self.len() as u64);
        *self = &self[count as usize..];
        Ok(count)
    }
}

/// One member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// First byte of its first header, long name and PAX headers included.
    pub(crate) start: u64,
    /// First byte of its data.
    pub(crate) data: u64,
    /// Bytes of its data.
    pub(crate) bytes: u64,
    /// Its path.
    pub(crate) name: Vec<u8>,
    /// Whether it is a regular file.
    pub(crate) is_file: bool,
}

impl Entry {
    /// One past its padding.
    pub(crate) fn end(&self) -> u64 {
        self.data + self.bytes.next_multiple_of(BLOCK)
    }
}

/// Why the walk cannot go on.
#[derive(Debug)]
pub(crate) enum WalkFault {
    /// The bytes end inside the member that begins here.
    Truncated(u64),
    /// These bytes are not a tar header, or one that is not supported.
    Invalid(u64, String),
    /// Reading failed.
    Read(io::Error),
}

impl From<io::Error> for WalkFault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Walks the members of an archive.
pub(crate) struct Walk<S> {
    pub(crate) source: S,
    /// Bytes read or stepped over.
    at: u64,
    /// First byte of the member returned last.
    member_at: u64,
    /// Bytes of that member's data and padding that lie ahead still.
    ahead: u64,
    /// Whether the end-of-archive mark has been read.
    pub(crate) marked_end: bool,
}

/// What long name and PAX headers say about the member that follows them.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    bytes: Option<u64>,
}

impl<S: Forward> Walk<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, at: 0, member_at: 0, ahead: 0, marked_end: false }
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The next member; nothing at the end mark or where the bytes end between members. Its data lies ahead: what is not
    /// [read](Self::read) is stepped over, and found missing where it is, when the member after it is asked for.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, WalkFault> {
        let ahead = std::mem::take(&mut self.ahead);
        self.step(ahead, self.member_at)?;
        let start = self.at;
        let mut extension = Extension::default();
        // Each turn reads a header, so the length of the archive bounds the loop.
        loop {
            let header_at = self.at;
            let mut block = [0; BLOCK as usize];
            let got = self.source.fill(&mut block)?;
            self.at += got as u64;
            if got == 0 && header_at == start {
                return Ok(None);
            }
            if (got as u64) < BLOCK {
                return Err(WalkFault::Truncated(start));
            }
            if block.iter().all(|byte| *byte == 0) {
                if header_at != start {
                    return Err(WalkFault::Invalid(header_at, "a long name is followed by no member".into()));
                }
                self.marked_end = true;
                return Ok(None);
            }
            let header = Header::parse(&block).map_err(|reason| WalkFault::Invalid(header_at, reason))?;
            match header.kind {
                b'L' => extension.name = Some(until_nul(&self.payload(&header, start)?).to_vec()),
                b'x' => pax(&self.payload(&header, start)?, &mut extension)
                    .map_err(|reason| WalkFault::Invalid(header_at, reason))?,
                b'K' | b'g' => drop(self.payload(&header, start)?),
                b'S' => return Err(WalkFault::Invalid(header_at, "sparse members are not supported".into())),
                _ => return self.member(header, extension, start).map(Some),
            }
        }
    }

    fn member(&mut self, header: Header, extension: Extension, start: u64) -> Result<Entry, WalkFault> {
        let name = extension.name.unwrap_or(header.name);
        let is_file = matches!(header.kind, b'0' | 0 | b'7') && !name.ends_with(b"/");
        // Only files have data; a link's size field is the size of what it points to.
        let has_data = !matches!(header.kind, b'1'..=b'6');
        let bytes = if has_data { extension.bytes.unwrap_or(header.bytes) } else { 0 };
        let entry = Entry { start, data: self.at, bytes, name, is_file };
        if bytes > i64::MAX as u64 - BLOCK - self.at.min(i64::MAX as u64 / 2) {
            return Err(WalkFault::Invalid(start, format!("a member cannot have {bytes} bytes")));
        }
        (self.member_at, self.ahead) = (start, bytes.next_multiple_of(BLOCK));
        Ok(entry)
    }

    /// Fills `into` with the next bytes of the data of the member returned last, which has as many.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<(), WalkFault> {
        debug_assert!(into.len() as u64 <= self.ahead, "only a member's own bytes are read");
        for piece in into.chunks_mut(PIECE_BYTES) {
            let got = self.source.fill(piece)?;
            self.at += got as u64;
            self.ahead = self.ahead.saturating_sub(got as u64);
            if got < piece.len() {
                return Err(WalkFault::Truncated(self.member_at));
            }
        }
        Ok(())
    }

    fn payload(&mut self, header: &Header, start: u64) -> Result<Vec<u8>, WalkFault> {
        if header.bytes > EXTENSION_BYTES_MAX {
            let reason = format!("a long name or PAX header has {} bytes", header.bytes);
            return Err(WalkFault::Invalid(start, reason));
        }
        let mut payload = vec![0; header.bytes as usize];
        let got = self.source.fill(&mut payload)? as u64;
        self.at += got;
        if got < header.bytes {
            return Err(WalkFault::Truncated(start));
        }
        self.step(header.bytes.next_multiple_of(BLOCK) - header.bytes, start)?;
        Ok(payload)
    }

    fn step(&mut self, bytes: u64, start: u64) -> Result<(), WalkFault> {
        let got = self.source.step(bytes)?;
        self.at += got;
        if got < bytes { Err(WalkFault::Truncated(start)) } else { Ok(()) }
    }
}

/// The fields of a header block that matter here.
struct Header {
    name: Vec<u8>,
    bytes: u64,
    kind: u8,
}

impl Header {
    fn parse(block: &[u8; BLOCK as usize]) -> Result<Self, String> {
        let stored = number(&block[148..156]).ok_or("a header has no valid checksum")?;
        let sum = |add: fn(u8) -> i64| {
            let field = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { add(*byte) };
            block.iter().enumerate().map(field).sum::<i64>()
        };
        // Some old writers summed signed bytes.
        if ![sum(i64::from), sum(|byte| i64::from(byte as i8))]
            .contains(&(stored.min(i64::MAX as u64) as i64))
        {
            return Err(format!("a header has checksum {}, but says {stored}", sum(i64::from)));
        }
        let bytes = number(&block[124..136]).ok_or("a header has no valid size")?;
        let (name, prefix) = (until_nul(&block[..100]), until_nul(&block[345..500]));
        // GNU headers (`ustar` and a space) use the prefix field for other things.
        let posix = &block[257..263] == b"ustar\0";
        let name = if posix && !prefix.is_empty() { [prefix, b"/", name].concat() } else { name.to_vec() };
        Ok(Self { name, bytes, kind: block[156] })
    }
}

/// A number field: octal digits among spaces and NULs, or base 256 after a set high bit.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let first = u64::from(field[0] & 0x7f);
        return field[1..]
            .iter()
            .try_fold(first, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Takes path and size from PAX records, each `<length> <key>=<value>\n`.
fn pax(mut records: &[u8], extension: &mut Extension) -> Result<(), String> {
    let malformed = || "a PAX header is malformed".to_owned();
    while !records.is_empty() && records[0] != 0 {
        let space = records.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let length = std::str::from_utf8(&records[..space]).ok().and_then(|text| text.parse::<usize>().ok());
        let length = length.filter(|length| *length > space + 1).ok_or_else(malformed)?;
        let record =
            records.get(space + 1..length).and_then(|r| r.strip_suffix(b"\n")).ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        if key == b"path" {
            extension.name = Some(value.to_vec());
        } else if key == b"size" {
            let bytes = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            extension.bytes = Some(bytes.ok_or_else(malformed)?);
        } else if key.starts_with(b"GNU.sparse.") {
            return Err("sparse members are not supported".to_owned());
        }
        records = &records[length..];
    }
    Ok(())
}

/// A member's path as WebDataset sees it: the key of its sample, and its extension in lower case.
///
/// The key ends at the first dot of the last path component. Nothing for what WebDataset passes over: names without a dot,
/// hidden files, `__name__` files and what macOS adds.
pub(crate) fn key_and_extension(name: &str) -> Option<(&str, String)> {
    let name = name.strip_prefix("./").unwrap_or(name);
    let base_at = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base_at + name[base_at..].find('.')?;
    let special = name.starts_with("__MACOSX/") || (name.starts_with("__") && name.ends_with("__"));
    if dot == base_at || special {
        return None;
    }
    Some((&name[..dot], name[dot + 1..].to_ascii_lowercase()))
}

/// One file of a sample, inside the bytes of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What follows the key in its name, in lower case: `jpg`, `cls.txt`, …
    pub extension: String,
    /// Where its contents begin in the row.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

/// The files of a sample, in archive order, given the bytes of a row of tar shard `shard`.
pub fn members(shard: &str, row: &[u8]) -> Result<Vec<Member>, DataError> {
    let invalid = |offset, reason| DataError::NotThisFormat {
        shard: shard.to_owned(),
        format: "tar".to_owned(),
        offset,
        reason,
    };
    let mut walk = Walk::new(row);
    let mut parts = Vec::new();
    // Each turn steps over at least one block.
    while let Some(entry) = walk.next().map_err(|fault| match fault {
        WalkFault::Truncated(offset) => DataError::Truncated { shard: shard.to_owned(), offset },
        WalkFault::Invalid(offset, reason) => invalid(offset, reason),
        WalkFault::Read(error) => invalid(0, error.to_string()),
    })? {
        let name = std::str::from_utf8(&entry.name).ok().filter(|_| entry.is_file);
        if let Some((_, extension)) = name.and_then(key_and_extension) {
            let start = entry.data as usize;
            parts.push(Member { extension, start, end: start + entry.bytes as usize });
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_as_webdataset_cuts_them() {
        let cut = |name: &'static str| key_and_extension(name);
        assert_eq!(cut("a/b.c/d.JPG"), Some(("a/b.c/d", "jpg".into())));
        assert_eq!(cut("./000.seg.png"), Some(("000", "seg.png".into())));
        for skipped in ["README", "a/.hidden.txt", "__MACOSX/a.jpg", "__index__", "a.b/c"] {
            assert_eq!(cut(skipped), None, "{skipped}");
        }
    }

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   17 \0\0"), Some(0o17));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some(0x2_0000_0001));
        assert_eq!(number(b"9\0"), None);
        assert_eq!(number(&[0xff; 12]), None);
    }

    #[test]
    fn pax_records_are_read_and_garbage_is_refused() {
        let mut extension = Extension::default();
        pax(b"16 path=a/b.jpg\n9 size=7\n", &mut extension).unwrap();
        assert_eq!((extension.name.as_deref(), extension.bytes), (Some(b"a/b.jpg".as_slice()), Some(7)));
        for garbage in [b"99 path=x\n".as_slice(), b"x", b"0 a=b\n", b"6 a=b ", b"5 abc\n"] {
            assert!(pax(garbage, &mut Extension::default()).is_err());
        }
    }
}
