//! Where things lie in the cache, and what stands behind the bytes of a piece.
//!
//! ```text
//! pieces/<2 hex>/<digest>-<number>   the bytes | sum of each block u64 | bytes u64 | check u64 | "PENPIECE"
//! objects/<2 hex>/<digest>           a whole object, named by its content
//! locks, ledger                      see `ground` and `ledger`
//! ```
//! The two digits of a piece come from its digest *and* number, so that the pieces of one huge object spread over all folders. The
//! trailer makes a piece its own witness: `verify` needs nothing else.

use std::path::{Path, PathBuf};

use penstock_io::{BLOCK_BYTES, Digest, block_count, block_sum};

const MAGIC: &[u8; 8] = b"PENPIECE";
const TAIL_BYTES: usize = 24;
/// How many folders pieces and objects are spread over, each.
pub(crate) const FOLDERS: u64 = 256;
/// What files that are being written are called where they need a name.
pub(crate) const TEMPORARY: &str = ".tmp-";
/// Longest piece that is believed.
const PIECE_BYTES_MAX: u64 = 1 << 30;

fn hex(key: &Digest) -> String {
    key.to_string().trim_start_matches("b3:").to_owned()
}

/// A number that stands for a piece: where its lock is, and which folder it lies in.
pub(crate) fn piece_hash(key: &Digest, piece: u64) -> u64 {
    let mut name = [0; 40];
    name[..32].copy_from_slice(key.as_bytes());
    name[32..].copy_from_slice(&piece.to_le_bytes());
    block_sum(&name)
}

/// The file of a piece, below the root.
pub(crate) fn piece_path(root: &Path, key: &Digest, piece: u64) -> PathBuf {
    let folder = format!("{:02x}", piece_hash(key, piece) % FOLDERS);
    root.join("pieces").join(folder).join(format!("{}-{piece}", hex(key)))
}

/// The file of an object, below the root.
pub(crate) fn object_path(root: &Path, key: &Digest) -> PathBuf {
    let name = hex(key);
    root.join("objects").join(&name[..2]).join(name)
}

/// The object whose file this is.
pub(crate) fn object_of(path: &Path) -> Option<Digest> {
    format!("b3:{}", path.file_name()?.to_str()?).parse().ok()
}

/// The piece whose file this is.
pub(crate) fn piece_of(path: &Path) -> Option<(Digest, u64)> {
    let (digest, piece) = path.file_name()?.to_str()?.split_once('-')?;
    Some((format!("b3:{digest}").parse().ok()?, piece.parse().ok()?))
}

/// What is written behind the bytes of a piece.
pub(crate) fn trailer(key: &Digest, piece: u64, bytes: u64, sums: &[u64]) -> Vec<u8> {
    let mut trailer: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    trailer.extend_from_slice(&bytes.to_le_bytes());
    let check = block_sum(&trailer) ^ piece_hash(key, piece);
    trailer.extend_from_slice(&check.to_le_bytes());
    trailer.extend_from_slice(MAGIC);
    trailer
}

/// Length of the file of a piece of so many bytes.
pub(crate) fn file_bytes(bytes: u64) -> u64 {
    bytes + block_count(bytes) * 8 + TAIL_BYTES as u64
}

/// Whether the content of a file is the piece it is called after, judged by its own trailer.
pub(crate) fn is_whole(key: &Digest, piece: u64, content: &[u8]) -> bool {
    let Some((rest, tail)) = content.split_last_chunk::<TAIL_BYTES>() else { return false };
    let bytes = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|at| tail[at]));
    if bytes > PIECE_BYTES_MAX || file_bytes(bytes) != content.len() as u64 {
        return false;
    }
    let (data, _) = rest.split_at(bytes as usize);
    let sums: Vec<u64> = data.chunks(BLOCK_BYTES as usize).map(block_sum).collect();
    content[bytes as usize..] == trailer(key, piece, bytes, &sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_vouches_for_itself_and_for_no_other() {
        let key = Digest::of(b"object");
        let data = vec![7; 100_000];
        let sums: Vec<u64> = data.chunks(BLOCK_BYTES as usize).map(block_sum).collect();
        let mut content = data.clone();
        content.extend(trailer(&key, 3, 100_000, &sums));
        assert_eq!(content.len() as u64, file_bytes(100_000));
        assert!(is_whole(&key, 3, &content));
        assert!(!is_whole(&key, 4, &content) && !is_whole(&Digest::of(b"other"), 3, &content));
        for at in [0, 65_536, 99_999, 100_000, 100_010, 100_020, content.len() - 1] {
            content[at] ^= 1;
            assert!(!is_whole(&key, 3, &content), "{at}");
            content[at] ^= 1;
        }
        assert!(!is_whole(&key, 3, &content[1..]) && !is_whole(&key, 3, b""));
    }

    #[test]
    fn names_come_back_and_pieces_of_an_object_spread() {
        let (root, key) = (Path::new("/c"), Digest::of(b"object"));
        assert_eq!(piece_of(&piece_path(root, &key, 12)), Some((key, 12)));
        assert_eq!(object_of(&object_path(root, &key)), Some(key));
        assert_eq!(object_of(Path::new("/c/objects/ab/.tmp-1")), None);
        let folders: std::collections::HashSet<_> =
            (0..2_000).map(|piece| piece_path(root, &key, piece).parent().map(Path::to_path_buf)).collect();
        assert!(folders.len() > 250);
    }
}
