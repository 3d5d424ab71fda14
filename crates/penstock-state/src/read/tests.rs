//! Layouts into layouts, damage, and reading no more than is needed.

use penstock_io::MemoryFile;
use proptest::prelude::*;

use super::*;
use crate::hash::hash_pieces;

const CHUNK: u64 = 64;

/// A tensor, cut into slabs along one dimension.
#[derive(Debug, Clone)]
struct Sample {
    shape: Vec<u64>,
    item_bytes: u64,
    bytes: Vec<u8>,
}

impl Sample {
    fn new(shape: Vec<u64>, item_bytes: u64) -> Self {
        let count = shape.iter().product::<u64>() * item_bytes;
        let bytes = (0..count).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        Self { shape, item_bytes, bytes }
    }

    /// The bytes of a box, element by element.
    fn cut(&self, extent: &Extent) -> Vec<u8> {
        let mut elements = vec![];
        for number in 0..extent.elements() {
            let (mut rest, mut at, mut stride) = (number, 0, 1);
            for d in (0..self.shape.len()).rev() {
                at += (rest % extent.shape[d] + extent.offset[d]) * stride;
                rest /= extent.shape[d];
                stride *= self.shape[d];
            }
            let first = (at * self.item_bytes) as usize;
            elements.extend_from_slice(&self.bytes[first..first + self.item_bytes as usize]);
        }
        elements
    }

    fn slabs(&self, dimension: usize, cuts: &[u64]) -> Vec<Extent> {
        let size = self.shape[dimension];
        let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (size + 1)).chain([0, size]).collect();
        ends.sort_unstable();
        let slab = |pair: &[u64]| {
            let (mut offset, mut shape) = (vec![0; self.shape.len()], self.shape.clone());
            (offset[dimension], shape[dimension]) = (pair[0], pair[1] - pair[0]);
            Extent { offset, shape }
        };
        ends.windows(2).map(slab).collect()
    }
}

/// Pieces dealt to two files, with some bytes between them.
fn saved(sample: &Sample, extents: &[Extent]) -> (Vec<Piece>, [Vec<u8>; 2]) {
    let (mut pieces, mut files) = (vec![], [vec![1; 5], vec![2; 300]]);
    for (number, extent) in extents.iter().enumerate() {
        let (bytes, file) = (sample.cut(extent), number % 2);
        let start = files[file].len() as u64;
        let hashes = hash_pieces(&[&bytes], CHUNK as usize, 1).remove(0);
        files[file].extend_from_slice(&bytes);
        files[file].extend_from_slice(&vec![3; number * 7 % 40]);
        let item_bytes = sample.item_bytes;
        pieces.push(Piece { tensor: 9, file, start, extent: extent.clone(), item_bytes, hashes });
    }
    (pieces, files)
}

fn on_disk(folder: &Path, files: &[Vec<u8>; 2]) -> Vec<Reading> {
    let open = |number: usize| {
        let path = folder.join(number.to_string());
        std::fs::write(&path, &files[number]).unwrap();
        Reading::Direct(DirectFile::open(&path, true).unwrap())
    };
    vec![open(0), open(1)]
}

fn in_memory(files: &[Vec<u8>; 2]) -> Vec<Reading> {
    files.iter().map(|bytes| Reading::Other(Arc::new(MemoryFile::new("file", bytes.clone())) as _)).collect()
}

fn loaded(
    files: &[Reading],
    pieces: &[Piece],
    extents: &[Extent],
    item_bytes: u64,
) -> Result<Vec<Vec<u8>>, StateError> {
    let mut memory: Vec<Vec<u8>> =
        extents.iter().map(|extent| vec![255; (extent.elements() * item_bytes) as usize]).collect();
    let targets: Vec<Target> = extents
        .iter()
        .zip(&mut memory)
        // SAFETY: vectors that live until the end of this function, one per target.
        .map(|(extent, into)| unsafe { Target::new(9, extent.clone(), into.as_mut_ptr(), into.len() as u64) })
        .collect();
    read_pieces(files, pieces, &targets, CHUNK, 3)?;
    Ok(memory)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Goal: any layout loads into any layout. Method: slabs along any dimension on both sides, against element-by-element copies.
    #[test]
    fn any_layout_loads_into_any_layout(
        shape in prop::collection::vec(1..9_u64, 1..4),
        item_bytes in prop::sample::select(vec![1_u64, 2, 4, 8]),
        (from, to) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        (cuts, other_cuts) in (prop::collection::vec(0..9_u64, 0..5), prop::collection::vec(0..9_u64, 0..5)),
    ) {
        let sample = Sample::new(shape.clone(), item_bytes);
        let (pieces, files) = saved(&sample, &sample.slabs(from.index(shape.len()), &cuts));
        let wanted = sample.slabs(to.index(shape.len()), &other_cuts);
        let expected: Vec<Vec<u8>> = wanted.iter().map(|extent| sample.cut(extent)).collect();
        prop_assert_eq!(&loaded(&in_memory(&files), &pieces, &wanted, item_bytes).unwrap(), &expected);
        let folder = tempfile::tempdir().unwrap();
        prop_assert_eq!(&loaded(&on_disk(folder.path(), &files), &pieces, &wanted, item_bytes).unwrap(), &expected);
    }
}

#[test]
fn every_flipped_bit_of_a_piece_is_noticed_and_named() {
    let sample = Sample::new(vec![8, 5], 4);
    let whole = Extent { offset: vec![0, 0], shape: vec![8, 5] };
    let (pieces, files) = saved(&sample, &sample.slabs(0, &[3]));
    for piece in &pieces {
        let bytes = (piece.extent.elements() * piece.item_bytes) as usize;
        for at in (piece.start as usize..piece.start as usize + bytes).step_by(3) {
            let mut bad = files.clone();
            bad[piece.file][at] ^= 16;
            let outcome = loaded(&in_memory(&bad), &pieces, std::slice::from_ref(&whole), 4);
            let chunk = piece.start + (at as u64 - piece.start) / CHUNK * CHUNK;
            assert!(matches!(outcome, Err(StateError::Damaged { offset, .. }) if offset == chunk), "{at}");
        }
    }
}

#[test]
fn only_what_is_needed_is_read() {
    let sample = Sample::new(vec![100_000, 8], 4);
    let (pieces, files) = saved(&sample, &sample.slabs(0, &[50_000]));
    let mut into = vec![0_u8; 320];
    let extent = Extent { offset: vec![60_000, 0], shape: vec![10, 8] };
    // SAFETY: a vector that outlives the reading.
    let target = unsafe { Target::new(9, extent.clone(), into.as_mut_ptr(), into.len() as u64) };
    let read = read_pieces(&in_memory(&files), &pieces, &[target], CHUNK, 2).unwrap();
    assert!((320..=448).contains(&read), "{read}");
    assert_eq!(into, sample.cut(&extent));
}

#[test]
fn cut_files_and_wrong_sizes_are_refused() {
    let sample = Sample::new(vec![8, 5], 4);
    let whole = Extent { offset: vec![0, 0], shape: vec![8, 5] };
    let (pieces, mut files) = saved(&sample, std::slice::from_ref(&whole));
    let mut wrong = pieces.clone();
    wrong[0].hashes.pop();
    assert!(matches!(
        loaded(&in_memory(&files), &wrong, std::slice::from_ref(&whole), 4),
        Err(StateError::Shape { .. })
    ));
    assert!(matches!(
        loaded(&in_memory(&files), &pieces, std::slice::from_ref(&whole), 2),
        Err(StateError::Shape { .. })
    ));
    files[0].truncate(20);
    assert!(matches!(loaded(&in_memory(&files), &pieces, &[whole], 4), Err(StateError::Short { .. })));
}
