//! What is written is what is read, and what was not written is never read.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::feed::BatchBuilder;

/// Any batch: rows of any documents, with or without a mask.
fn batches() -> impl Strategy<Value = Batch> {
    let rows = prop::collection::vec(prop::collection::vec(0..5_u32, 0..6), 1..9);
    (rows, 1..=8_usize, any::<bool>(), any::<(u64, u64, u8)>()).prop_map(
        |(rows, item_bytes, masked, (step, sample, token))| {
            let length = 24;
            let mut builder =
                BatchBuilder::new(step, step / 3, (rows.len(), length, item_bytes), &Arc::default());
            if masked {
                builder = builder.with_mask();
            }
            for (row, lengths) in rows.iter().enumerate() {
                let mut bytes = builder.row(row);
                bytes.tokens.fill(token.wrapping_add(row as u8));
                bytes.mask.iter_mut().for_each(|mask| mask.fill(1));
                let mut at = 0;
                let origin = |&length: &u32| {
                    let begins = at;
                    at += length;
                    let (row, start, epoch) = (row as u32, token.into(), step);
                    Origin { row, at: begins, length, source: 3, sample, start, epoch }
                };
                let origins: Vec<Origin> = lengths.iter().map(origin).collect();
                builder.close_row(row, step / 3 + row as u64, &origins, masked);
            }
            builder.finish()
        },
    )
}

fn written(batch: &Batch) -> Vec<u8> {
    let mut bytes = vec![0xAA; bytes_of(batch)];
    write(batch, &mut bytes).unwrap();
    bytes
}

fn read_bytes(bytes: Vec<u8>) -> Result<Batch, FeedError> {
    read(Arc::new(bytes))
}

/// Everything that a batch says of itself.
fn told(batch: &Batch) -> impl PartialEq + std::fmt::Debug + use<> {
    let shape = (batch.step, batch.position, batch.rows, batch.length, batch.item_bytes, batch.padding);
    let mask = batch.mask().map(<[u8]>::to_vec);
    (shape, batch.tokens().to_vec(), mask, batch.origins.clone(), batch.digest, batch.boundaries())
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(batch in batches()) {
        let bytes = written(&batch);
        prop_assert_eq!(told(&read_bytes(bytes.clone()).unwrap()), told(&batch));
        let sent = parts(&batch).slices().concat();
        prop_assert_eq!(sent.len(), bytes.len());
        prop_assert_eq!(&sent[HEADER_BYTES..], &bytes[HEADER_BYTES..]);
        prop_assert_eq!(told(&read_bytes(sent).unwrap()), told(&batch));
    }

    #[test]
    fn tokens_are_read_where_they_lie(batch in batches()) {
        let memory: Memory = Arc::new(written(&batch));
        let place = (*memory).as_ref()[HEADER_BYTES..].as_ptr();
        prop_assert_eq!(read(memory).unwrap().tokens().as_ptr(), place);
    }

    #[test]
    fn a_batch_that_is_cut_or_longer_is_refused(batch in batches(), cut in any::<prop::sample::Index>()) {
        let bytes = written(&batch);
        let less = cut.index(bytes.len());
        prop_assert!(read_bytes(bytes[..less].to_vec()).is_err());
        prop_assert!(read_bytes([&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_flipped_bit_of_what_was_sent_is_noticed(batch in batches(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = parts(&batch).slices().concat();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // Zeros between sections belong to nobody.
        prop_assert!(read_bytes(bytes).map_or(true, |received| told(&received) == told(&batch)));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(read_bytes(bytes).is_err());
    }

    /// Goal: a liar with a valid header hash does no harm. Method: any numbers in the header, and any origins; what is
    /// accepted can be looked at everywhere.
    #[test]
    fn made_up_numbers_are_refused_or_harmless(
        batch in batches(),
        changes in prop::collection::vec((16..120_usize, prop_oneof![any::<u64>(), 0..300_u64, Just(u64::MAX)]), 0..4),
        garbage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
    ) {
        let mut bytes = written(&batch);
        for (at, byte) in garbage {
            let at = at.index(bytes.len());
            if at >= HEADER_BYTES {
                bytes[at] = byte;
            }
        }
        for (at, number) in changes {
            bytes[at / 8 * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let hash = xxh3_64(&bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&hash.to_le_bytes());
        if let Ok(received) = read_bytes(bytes) {
            prop_assert_eq!(received.tokens().len(), received.rows * received.length * received.item_bytes);
            for origin in &received.origins {
                let first = origin.row as usize * received.length + origin.at as usize;
                prop_assert!(first + origin.length as usize <= received.rows * received.length);
            }
            prop_assert!(received.boundaries().is_sorted());
        }
    }
}

#[test]
fn a_batch_of_a_layout_that_nobody_knows_says_so() {
    let batch = BatchBuilder::new(0, 0, (1, 2, 2), &Arc::default()).finish();
    let mut bytes = written(&batch);
    bytes[8] = 9;
    let refused = read_bytes(bytes).err().unwrap().to_string();
    assert!(refused.contains("layout 9"), "{refused}");
}

#[test]
fn a_batch_is_not_written_where_it_does_not_fit() {
    let batch = BatchBuilder::new(0, 0, (1, 2, 2), &Arc::default()).finish();
    assert!(write(&batch, &mut vec![0; bytes_of(&batch) - 1]).is_err());
}
