//! Whatever goes into a block comes out of it.

use super::*;
use crate::steps::UNMEASURED;
use proptest::prelude::*;

fn column(name: &str, kind: Kind, values: Vec<i64>) -> (Column, Vec<i64>) {
    (Column { name: name.to_owned(), kind }, values)
}

/// Small noise, anything, gaps, or always the same.
fn values(rows: usize) -> impl Strategy<Value = Vec<i64>> {
    let one = prop_oneof![4 => 0i64..100_000, 1 => any::<i64>(), 1 => Just(UNMEASURED)];
    prop_oneof![3 => prop::collection::vec(one, rows), 1 => any::<i64>().prop_map(move |value| vec![value; rows])]
}

proptest! {
    #[test]
    fn every_block_is_read_as_it_was_written(
        first in any::<u64>(),
        columns in (1usize..200).prop_flat_map(|rows| prop::collection::vec(values(rows), 6)),
    ) {
        let rows = columns[0].len();
        let names = ["step", "begin", "end", "host.data", "host.user", "scalar.loss"];
        let kinds = [Kind::Integer, Kind::Integer, Kind::Integer, Kind::Integer, Kind::Integer, Kind::Float];
        let columns = names.iter().zip(kinds).zip(columns).map(|((name, kind), values)| column(name, kind, values));
        let block = Block { first, rows, columns: columns.collect() };
        let payload = block.encode();
        prop_assert_eq!(Block::decode(&payload, None), Some(block.clone()));

        let few = Block::decode(&payload, Some(&["end".to_owned()])).expect("it is a block");
        prop_assert_eq!(&few.columns, &block.columns[2..3]);
    }

    #[test]
    fn bytes_that_are_no_block_are_none(mut payload in prop::collection::vec(any::<u8>(), 0..300)) {
        payload.insert(0, Content::Block as u8);
        let _ = Block::decode(&payload, None);
    }
}

#[test]
fn rows_that_tile_and_parts_that_sum_take_almost_nothing() {
    let lengths: Vec<i64> = (0..4096).map(|row| 60_000_000 + row * 7919 % 90_001).collect();
    let ends: Vec<i64> = lengths
        .iter()
        .scan(10i64.pow(15), |at, length| {
            *at += length;
            Some(*at)
        })
        .collect();
    let begins = ends.iter().zip(&lengths).map(|(end, length)| end - length).collect();
    let columns = vec![
        column("begin", Kind::Integer, begins),
        column("end", Kind::Integer, ends),
        column("host.user", Kind::Integer, lengths),
    ];
    let block = Block { first: 0, rows: 4096, columns };
    let bytes = block.encode().len();
    assert!(bytes < 3 * 4096, "{bytes} bytes: only one of three columns has anything to say");
    assert_eq!(Block::decode(&block.encode(), None), Some(block));
}
