//! What is certain, what is doubtful, and that neither depends on how the bytes arrive.

use proptest::prelude::*;

use super::*;
use crate::testing::Dribble;

/// A sample of columns of varying size.
fn sample(values: &[&[u8]]) -> Vec<u8> {
    let sizes = values.iter().flat_map(|value| (value.len() as u32).to_le_bytes());
    sizes.chain(values.concat()).collect()
}

/// Doubtful rows of a shard that has `junk` bytes before the first of these samples, read in pieces of these sizes.
fn doubtful(columns: &[MdsColumn], samples: &[Vec<u8>], row_bytes_max: u32, pieces: Vec<usize>) -> Vec<u64> {
    let junk = 7;
    let lengths: Vec<u32> = samples.iter().map(|sample| sample.len() as u32).collect();
    let offsets: Vec<u64> = lengths
        .iter()
        .scan(junk, |end, length| Some(std::mem::replace(end, *end + u64::from(*length))))
        .collect();
    let bytes = [vec![0xff; junk as usize], samples.concat()].concat();
    let samples = MdsSamples { offsets: &offsets, lengths: &lengths, columns, row_bytes_max };
    let mut check = MdsCheck::new(Dribble::new(&bytes, pieces), samples);
    let mut handed_on = Vec::new();
    check.read_to_end(&mut handed_on).unwrap();
    assert_eq!(handed_on, bytes);
    check.finish()
}

fn holds(encoding: &str, value: &[u8]) -> bool {
    let columns = [MdsColumn::new(encoding, None)];
    doubtful(&columns, &[sample(&[value])], u32::MAX, vec![1 << 20]).is_empty()
}

#[test]
fn values_of_each_encoding_are_certain_or_doubtful() {
    let long = "9".repeat(641);
    let certain: [(&str, &[&[u8]]); 12] = [
        ("str", &[b"", "ü".as_bytes()]),
        ("bytes", &[b"", b"\xff"]),
        ("png", &[b"\xff"]),
        ("json", &[b"1", b" {\"a\": [null, \"\\u00e9\"]} ", b"\"\""]),
        ("str_int", &[b"7", b"-12", b"+0"]),
        ("str_float", &[b"1", b"-1.5e3", b".5", b"nan"]),
        ("str_decimal", &[b"1", b"-1.50"]),
        ("jpeg_array", &[b"\x02\0\0\0\x01\0\0\0\x02\0\0\0abc"]),
        ("list[png]", &[b"????\x01\0\0\0\x03\0\0\0abc"]),
        ("ndarray", &[b"\x08\x04\x01\x07", b"\x21\x09\x01\0\x02\0abcdefgh"]),
        ("ndarray:int32", &[b"\x04\x01abcd"]),
        ("ndarray:uint8", &[b"\x0a\x01\0\0\0\x03\0\0\0abc"]),
    ];
    for (encoding, values) in certain {
        for value in values {
            assert!(holds(encoding, value), "{encoding} {value:?}");
        }
    }
    let doubtful: [(&str, &[&[u8]]); 13] = [
        ("str", &[b"\xff", "ü".as_bytes().split_at(1).0, b"\xed\xa0\x80"]),
        ("json", &[b"", b"{]", b"NaN", b"1 2", b"\"\xff\"", b"\xef\xbb\xbf1"]),
        ("str_int", &[b"", b"x", b"-", b"1_0", b" 1", long.as_bytes()]),
        ("str_float", &[b"", b"1_0", b"x", b"\xff"]),
        ("str_decimal", &[b"", b"1.2.3", b".", b"1e5", b"nan", long.as_bytes()]),
        (
            "jpeg_array",
            &[b"", b"\0\0\0\0", b"\x01\0\0\0\x63\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0\0\0\0\0x"],
        ),
        ("list[png]", &[b"", b"????", b"\x01\0\0\0\x03\0\0\0abc"]),
        ("ndarray", &[b"", b"\x93NUMPY", b"\x08", b"\x08\x04", b"\x08\x04\x02\x07", b"\x08\0\x07"]),
        ("ndarray:int32", &[b"\x04\x05abcd", b"\x04\0", b"\x07\xff\xff\xff\xff\xff\xff\xff\x7fabcd"]),
        ("ndarray:uint8", &[&[&[33 << 2][..], &[1; 34]].concat()]),
        ("ndarray:int128", &[b"\x04\x01abcd"]),
        ("ndarray::3", &[b"\x08abc", b"\x08\x04\x03abc"]),
        ("pkl", &[b""]),
    ];
    for (encoding, values) in doubtful {
        for value in values {
            assert!(!holds(encoding, value), "{encoding} {value:?}");
        }
    }
}

#[test]
fn fixed_columns_are_certain_when_their_sizes_are_those_of_their_encodings() {
    let certain = |encoding: &str, bytes: u32| {
        let columns = [MdsColumn::new(encoding, Some(bytes))];
        doubtful(&columns, &[vec![0xff; bytes as usize]], u32::MAX, vec![3]).is_empty()
    };
    for (encoding, bytes) in [("int", 8), ("uint8", 1), ("float64", 8), ("ndarray:int16:2,3", 12)] {
        assert!(certain(encoding, bytes), "{encoding}");
    }
    for (encoding, bytes) in [
        ("int", 4),
        ("float64", 4),
        ("ndarray:int16:2,3", 6),
        ("ndarray:int16:0", 0),
        ("ndarray:int16:-1,-6", 12),
        ("ndarray:int16", 2),
        ("str", 4),
    ] {
        assert!(!certain(encoding, bytes), "{encoding}");
    }
}

#[test]
fn sizes_are_held_against_the_sample_even_where_nothing_else_is() {
    let columns = [MdsColumn::new("int", Some(8)), MdsColumn::new("bytes", None)];
    let whole = [&4_u32.to_le_bytes()[..], &[0; 8], b"abcd"].concat();
    let longer = [whole.as_slice(), b"e"].concat();
    let huge = [&u32::MAX.to_le_bytes()[..], &[0; 12]].concat();
    let samples =
        [whole.clone(), longer, whole.clone(), whole[..15].to_vec(), vec![], vec![4, 0], huge, whole];
    for piece in [1, 2, 5, 1 << 20] {
        assert_eq!(doubtful(&columns, &samples, u32::MAX, vec![piece]), [1, 3, 4, 5, 6], "{piece}");
    }
}

#[test]
fn samples_that_are_too_large_have_no_number() {
    let columns = [MdsColumn::new("str", None)];
    let (good, bad, large) = (sample(&[b"ok"]), sample(&[b"\xff"]), sample(&[b"\xff\xff\xff"]));
    let samples = [large.clone(), good, large.clone(), bad.clone(), large, bad];
    assert_eq!(doubtful(&columns, &samples, 6, vec![4]), [1, 2]);
}

#[test]
fn samples_that_overlap_or_never_come_are_doubtful() {
    let columns = [MdsColumn::new("str", None)];
    let bytes = [sample(&[b"one"]), sample(&[b"two"])].concat();
    for piece in [1, 3, 64] {
        let run = |offsets: &[u64], lengths: &[u32]| {
            let samples = MdsSamples { offsets, lengths, columns: &columns, row_bytes_max: u32::MAX };
            let mut check = MdsCheck::new(Dribble::new(&bytes, vec![piece]), samples);
            io::copy(&mut check, &mut io::sink()).unwrap();
            check.finish()
        };
        assert!(run(&[0, 7], &[7, 7]).is_empty());
        assert_eq!(run(&[7, 14], &[7, 7]), [1]);
        assert_eq!(run(&[0, u64::MAX], &[7, 7]), [1]);
        assert!(!run(&[7, 0], &[7, 7]).contains(&0));
    }
}

#[test]
fn memory_of_a_large_sample_is_given_back() {
    let text = vec![b'x'; 4 << 20];
    let samples = [sample(&[&text]), sample(&[b"small"])].concat();
    let lengths = [4 + text.len() as u32, 9];
    let columns = [MdsColumn::new("str", None)];
    let places = MdsSamples {
        offsets: &[0, u64::from(lengths[0])],
        lengths: &lengths,
        columns: &columns,
        row_bytes_max: u32::MAX,
    };
    let mut check = MdsCheck::new(Dribble::new(&samples, vec![65_536]), places);
    let mut held = 0;
    let mut piece = vec![0; 65_536];
    while check.read(&mut piece).unwrap() > 0 {
        held = held.max(check.carried.capacity());
    }
    assert!(held <= 4 + text.len() && check.carried.capacity() <= CARRIED_BYTES_KEPT);
    assert!(check.finish().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Goal: how bytes arrive changes nothing. Method: samples good and bad, in pieces of any sizes and in one piece.
    #[test]
    fn pieces_of_any_size_leave_the_same_rows_doubtful(
        texts in prop::collection::vec(("[a-zü]{0,40}", any::<bool>(), any::<bool>()), 0..30),
        pieces in prop::collection::vec(1usize..50, 1..6),
    ) {
        let columns = [MdsColumn::new("str", None), MdsColumn::new("int", Some(8)), MdsColumn::new("json", None)];
        let samples: Vec<Vec<u8>> = texts
            .iter()
            .map(|(text, utf8, json)| {
                let text = [text.as_bytes(), if *utf8 { b"" } else { b"\xff" }].concat();
                let json: &[u8] = if *json { b"[1, {}]" } else { b"[1, {]" };
                let sizes = [text.len() as u32, json.len() as u32].map(u32::to_le_bytes).concat();
                [&sizes, &text[..], &[0xff; 8], json].concat()
            })
            .collect();
        let expected: Vec<u64> =
            (0..).zip(&texts).filter(|(_, (_, utf8, json))| !(*utf8 && *json)).map(|(row, _)| row).collect();
        prop_assert_eq!(&doubtful(&columns, &samples, u32::MAX, vec![usize::MAX]), &expected);
        prop_assert_eq!(&doubtful(&columns, &samples, u32::MAX, pieces), &expected);
    }
}
