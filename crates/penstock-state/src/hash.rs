//! What was captured, as numbers: one hash per chunk of a piece, so that any part of it can be checked alone.

use xxhash_rust::xxh3::xxh3_128;

use super::parallel;

/// The hash of a chunk.
pub fn chunk_hash(chunk: &[u8]) -> u128 {
    xxh3_128(chunk)
}

/// The hashes of the chunks of every piece, in order.
pub fn hash_pieces(pieces: &[&[u8]], chunk_bytes: usize, threads: usize) -> Vec<Vec<u128>> {
    let chunks: Vec<(usize, &[u8])> = pieces
        .iter()
        .enumerate()
        .flat_map(|(piece, bytes)| bytes.chunks(chunk_bytes.max(1)).map(move |chunk| (piece, chunk)))
        .collect();
    let hashes: Vec<std::sync::OnceLock<u128>> = chunks.iter().map(|_| std::sync::OnceLock::new()).collect();
    let work = |_: &mut (), item: usize| {
        let _ = hashes[item].set(chunk_hash(chunks[item].1));
        Ok::<_, ()>(())
    };
    let _ = parallel::for_each(chunks.len(), threads, || Ok(()), work);
    let mut by_piece: Vec<Vec<u128>> = pieces.iter().map(|_| Vec::new()).collect();
    for ((piece, chunk), hash) in chunks.iter().zip(hashes) {
        by_piece[*piece].push(hash.into_inner().unwrap_or_else(|| chunk_hash(chunk)));
    }
    by_piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_hashed_chunk_by_chunk() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at * at) as u8).collect();
        let pieces: [&[u8]; 3] = [&bytes, &[], &bytes[..4096]];
        let hashes = hash_pieces(&pieces, 4096, 3);
        let expected: Vec<u128> = [&bytes[..4096], &bytes[4096..8192], &bytes[8192..]].map(chunk_hash).into();
        assert_eq!(hashes, [expected.clone(), vec![], expected[..1].to_vec()]);
    }
}
