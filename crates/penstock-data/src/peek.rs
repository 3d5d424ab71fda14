//! A look at the beginning of a compressed file, to learn what is inside before it is scanned.

use std::io::Read;

/// The first decompressed bytes of a zstd stream, as far as the given beginning of the file reaches; empty if it is none.
pub fn zstd_head(head: &[u8], bytes_max: usize) -> Vec<u8> {
    let mut content = vec![0; bytes_max];
    let mut filled = 0;
    let Ok(mut decoder) = zstd::stream::read::Decoder::new(head) else { return Vec::new() };
    // A cut-off stream ends in an error after the bytes that could be decoded; those are what is wanted.
    while filled < bytes_max {
        match decoder.read(&mut content[filled..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => filled += count,
        }
    }
    content.truncate(filled);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_stream_still_shows_its_beginning() {
        let text: Vec<u8> = (0..400_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let packed = zstd::encode_all(&text[..], 3).unwrap();
        let head = zstd_head(&packed[..packed.len() / 2], 1000);
        assert_eq!(head, &text[..1000]);
        assert_eq!(zstd_head(b"not zstd at all", 1000), b"");
    }
}
