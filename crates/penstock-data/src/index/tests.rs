//! The index as a file: it comes back as it was written, its bytes depend on nothing else, and garbage never panics.

use std::collections::BTreeMap;

use penstock_io::BLOCK_BYTES;
use proptest::prelude::*;

use super::*;
use crate::index::{INDEX_VERSION, IndexWriter};

/// What to put into an index.
struct Contents {
    rows: u64,
    blocks: u64,
    frames: u64,
    named: bool,
}

fn document(contents: &Contents) -> IndexDocument {
    IndexDocument {
        version: INDEX_VERSION,
        format: "test".into(),
        layout: if contents.frames > 0 { Layout::Frames } else { Layout::Ranges },
        block_bytes: BLOCK_BYTES,
        bytes: contents.blocks * BLOCK_BYTES,
        rows: contents.rows,
        digest: Digest::of(b"").to_string(),
        details: BTreeMap::from([("content_bytes".to_owned(), (contents.frames * 100).into())]),
    }
}

fn written(contents: &Contents, document: &IndexDocument) -> (Vec<u8>, Digest) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let mut writer = IndexWriter::create(&path).unwrap();
    for row in 0..contents.rows {
        match contents.named {
            true => writer.named_row(row * 3, row as u32 % 7, &format!("key-{row}")).unwrap(),
            false => writer.row(row * 3, row as u32 % 7).unwrap(),
        }
        if row == 10 {
            writer.blocks(&(0..contents.blocks).collect::<Vec<_>>()).unwrap();
        }
    }
    for frame in 0..contents.frames {
        writer.frame(frame * 10, frame * 100).unwrap();
    }
    if contents.rows <= 10 {
        writer.blocks(&(0..contents.blocks).collect::<Vec<_>>()).unwrap();
    }
    let written = writer.finish(document).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((written.digest, written.bytes), (Digest::of(&bytes), bytes.len() as u64));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    (bytes, written.digest)
}

#[test]
fn what_was_written_comes_back() {
    for (rows, blocks, frames, named) in [
        (0, 0, 0, false),
        (1, 1, 1, true),
        (65_536, 5, 0, false),
        (200_000, 40, 3_000, true),
        (20, 1_500_000, 0, false),
    ] {
        let contents = Contents { rows, blocks, frames, named };
        let (bytes, digest) = written(&contents, &document(&contents));
        let index = Index::from_bytes(bytes, Some(digest)).unwrap();
        assert_eq!(index.document(), &document(&contents));
        for row in (0..rows).step_by(997).chain(rows.checked_sub(1)) {
            assert_eq!(index.row(row), Some(Span { offset: row * 3, length: row % 7 }));
            assert_eq!(index.name(row).map(str::to_owned), named.then(|| format!("key-{row}")));
        }
        assert_eq!((index.row(rows), index.row(u64::MAX), index.name(rows)), (None, None, None));
        for block in (0..blocks).step_by(1_001).chain(blocks.checked_sub(1)) {
            assert_eq!(index.sum(block), Some(block));
        }
        assert_eq!(index.sum(blocks), None);
        for at in (0..frames * 100).step_by(37) {
            let frame = index.frame_of(at).unwrap();
            assert_eq!(
                (frame.number, frame.content),
                (at / 100, Span { offset: at / 100 * 100, length: 100 })
            );
        }
        assert_eq!(index.frame_of(frames * 100), None);
    }
}

#[test]
fn the_same_contents_give_the_same_bytes() {
    let contents = Contents { rows: 70_000, blocks: 3, frames: 0, named: true };
    assert_eq!(written(&contents, &document(&contents)), written(&contents, &document(&contents)));
}

#[test]
fn arrow_reads_it() {
    let contents = Contents { rows: 70_000, blocks: 3, frames: 0, named: true };
    let (bytes, _) = written(&contents, &document(&contents));
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
    assert!(reader.custom_metadata()["penstock.index"].starts_with("{\"version\":1,\"format\":\"test\""));
    let rows: Vec<usize> = reader.map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(rows, [1, 1]);
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let contents = Contents { rows: 3, blocks: 1, frames: 0, named: false };
    let newer = IndexDocument { version: 7, ..document(&contents) };
    let (bytes, _) = written(&contents, &newer);
    let refused = Index::from_bytes(bytes, None).err();
    assert_eq!(refused, Some(DataError::IndexVersion { found: 7, known: 1 }));
}

#[test]
fn a_document_that_disagrees_with_its_columns_is_damage() {
    let contents = Contents { rows: 3, blocks: 2, frames: 0, named: false };
    let right = document(&contents);
    for wrong in [
        IndexDocument { rows: 4, ..right.clone() },
        IndexDocument { bytes: 1, ..right.clone() },
        IndexDocument { block_bytes: 4_096, ..right.clone() },
        IndexDocument { digest: "b3:12".into(), ..right.clone() },
        IndexDocument { layout: Layout::Frames, details: BTreeMap::new(), ..right },
    ] {
        let (bytes, _) = written(&contents, &wrong);
        assert!(matches!(Index::from_bytes(bytes, None), Err(DataError::IndexDamaged { .. })));
    }
}

/// Uses everything an index offers, so that a wrong position has its chance to panic.
fn exercise(bytes: Vec<u8>) {
    let Ok(index) = Index::from_bytes(bytes, None) else { return };
    for row in [0, 1, 5, 65_535, 65_536, u64::MAX] {
        let _ = (
            index.row(row),
            index.name(row),
            index.sum(row),
            index.frame(row.min(1 << 40)),
            index.frame_of(row),
        );
    }
}

#[test]
fn every_cut_of_an_index_is_damage() {
    let contents = Contents { rows: 6, blocks: 2, frames: 2, named: true };
    let (bytes, digest) = written(&contents, &document(&contents));
    for end in 0..bytes.len() {
        let cut = bytes[..end].to_vec();
        assert!(matches!(Index::from_bytes(cut.clone(), None), Err(DataError::IndexDamaged { .. })), "{end}");
        assert!(matches!(Index::from_bytes(cut, Some(digest)), Err(DataError::IndexDamaged { .. })), "{end}");
    }
}

#[test]
fn no_flipped_bit_panics_or_passes_the_digest() {
    let contents = Contents { rows: 6, blocks: 2, frames: 2, named: true };
    let (bytes, digest) = written(&contents, &document(&contents));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        exercise(flipped.clone());
        assert!(Index::from_bytes(flipped, Some(digest)).is_err());
    }
}

proptest! {
    #[test]
    fn no_garbage_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let contents = Contents { rows: 6, blocks: 2, frames: 2, named: true };
        let (mut bytes, _) = written(&contents, &document(&contents));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise(bytes);
    }
}
