//! Streams: rows are those of the slow way, and a change of length neither loses nor repeats a token.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use penstock_io::{Digest, LocalFile};
use proptest::prelude::*;

use super::super::build::{Measured, Packing, build_table};
use super::super::leg::{Keying, LegKind};
use super::super::part::RowMap;
use super::super::rest::build_rest;
use super::super::table::Table;
use super::super::tokens::tests::{documents, fixed_rows};
use super::*;
use crate::plan::{EpochPlan, Key, Permutation, Policy, Shuffle, in_block};

const LENGTH: u32 = 16;
const SEED: u64 = 5;

/// Bytes, and (sample, first token, tokens) of each document in them.
type Row = (Vec<u8>, Vec<(u64, u32, u32)>);

/// Documents of 0 to 18 tokens of two bytes; a line of one byte has none.
fn lines(count: usize) -> Vec<String> {
    let line = |n: usize| if n % 7 == 0 { ".".to_owned() } else { format!("{n:05}.").repeat(n * n % 7) };
    (0..count).map(line).collect()
}

fn keeps(row: usize) -> bool {
    row % 11 != 3
}

/// A folder in memory where the system has one: tables are synced, and a disk would take most of the tests' time.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// How the documents of a test become a source.
#[derive(Debug, Clone)]
struct Shape {
    policy: Policy,
    shuffle: Shuffle,
    /// Tokens of a row, and from which index of the source on; the first from 0.
    lengths: Vec<(u64, u32)>,
    /// Where parts begin, after the first.
    cuts: Vec<usize>,
}

impl Shape {
    fn plain(policy: Policy, shuffle: Shuffle) -> Self {
        Self { policy, shuffle, lengths: vec![(0, LENGTH)], cuts: vec![] }
    }

    fn leg(&self, path: &Path, source: Digest, length: u32) -> Leg {
        let table = Table::open(Arc::new(LocalFile::open(path).unwrap())).unwrap();
        let keying = Keying { seed: SEED, shuffle: self.shuffle };
        Leg::new(LegKind::Packed { table, policy: self.policy }, source, keying, length)
    }

    fn packing<'a>(&self, source: &'a Digest, length: u32) -> Packing<'a> {
        Packing { length, policy: self.policy, shuffle: self.shuffle, source }
    }

    fn part(&self, number: usize, first: usize, lines: &[String]) -> Part {
        let (dir, source) = (folder(), Digest::of(format!("web {number}").as_bytes()));
        let tokens = documents(lines, 2);
        let kept: Vec<u8> = (0..lines.len()).map(|row| u8::from(keeps(first + row))).collect();
        let lengths = tokens.lengths().unwrap();
        let path = dir.path().join("table");
        let measured = Measured { lengths: &lengths, kept: Some(&kept), starts: None };
        let legs = self.lengths.iter().map(|&(_, length)| {
            build_table(&path, measured, self.packing(&source, length)).unwrap();
            self.leg(&path, source, length)
        });
        Part::new(tokens, RowMap::new(vec![(0, first as u64)]).unwrap(), legs.collect())
    }

    fn stream(&self, lines: &[String]) -> SourceStream {
        let begins: Vec<usize> = [0].into_iter().chain(self.cuts.iter().copied()).collect();
        let ends = self.cuts.iter().copied().chain([lines.len()]);
        let ranges = begins.iter().copied().zip(ends).enumerate();
        let parts = ranges.map(|(number, (first, end))| self.part(number, first, &lines[first..end]));
        let parts = Parts::whole(parts.collect(), self.lengths.len()).unwrap();
        let mut phases = vec![StreamPhase::new(Phase::FIRST, None).unwrap()];
        for (number, &(index, length)) in self.lengths.iter().enumerate().skip(1) {
            let next = self.change(&parts, &phases[number - 1], number - 1, index, length);
            phases.push(next);
        }
        SourceStream::new(parts, phases, TokenKind::plain(2)).unwrap()
    }

    /// The phase that begins at `index`: what lay there until then is planned anew.
    fn change(
        &self,
        parts: &Parts,
        last: &StreamPhase,
        number: usize,
        index: u64,
        length: u32,
    ) -> StreamPhase {
        let (stop, part) = parts.locate(number, &last.phase, index).unwrap();
        let (broken, delivered) = match stop.leg {
            LegPlace::Rest => (last.rest.as_ref().unwrap(), stop.within),
            LegPlace::Part(_) => (part.leg(number), stop.within),
        };
        if stop.within == 0 && stop.leg != LegPlace::Rest {
            return StreamPhase::new(last.phase.change(index, stop, 0), None).unwrap();
        }
        let (dir, source) = (folder(), Digest::of(format!("rest {number}").as_bytes()));
        let path = dir.path().join("rest");
        let packing = self.packing(&source, length);
        let head = build_rest(&path, broken, stop.epoch, delivered, packing).unwrap();
        let phase = last.phase.change(index, stop, head.pack_count());
        StreamPhase::new(phase, Some(self.leg(&path, source, length))).unwrap()
    }
}

fn packed(lines: &[String], policy: Policy, shuffle: Shuffle) -> SourceStream {
    Shape::plain(policy, shuffle).stream(lines)
}

/// A row as the stream fills it, and its epoch.
fn found(stream: &SourceStream, index: u64) -> (Row, u64) {
    let located = stream.find(index).unwrap();
    let (mut into, mut origins) = (vec![0; located.length as usize * 2], vec![]);
    let mut row = RowBytes { tokens: &mut into, mask: None };
    let used = stream.read(&located, &mut row, &mut origins).unwrap();
    assert_eq!(used, origins.iter().map(|origin| origin.length as usize).sum::<usize>());
    let parts = origins.iter().map(|origin| (origin.sample, origin.start, origin.length)).collect();
    assert!(origins.iter().all(|origin| origin.epoch == located.epoch));
    ((into, parts), located.epoch)
}

fn filled(stream: &SourceStream, index: u64) -> Row {
    found(stream, index).0
}

/// One epoch, the slow way: all documents of each block end to end, cut, and put where the epoch's order says.
fn naive(stream: &SourceStream, lines: &[String], shuffle: Shuffle, epoch: u64) -> Vec<Row> {
    let part = &stream.parts.known()[0];
    let table = part.leg(0).table().unwrap();
    let key = Key::epoch(SEED, &Digest::of(b"web 0"), epoch);
    let mut packs: Vec<Vec<Row>> = vec![];
    for block in 0..table.head().samples.len() as u64 {
        let rows = table.block(block).unwrap().rows;
        let order = in_block(&key, shuffle, block, rows.len() as u64);
        let mut tokens: Vec<(u64, u32, [u8; 2])> = vec![];
        for row in order.iter().map(|place| rows[place as usize]) {
            let bytes = lines[row as usize].as_bytes().chunks_exact(2).enumerate();
            tokens.extend(bytes.map(|(at, token)| (row, at as u32, [token[0], token[1]])));
        }
        packs.push(tokens.chunks(LENGTH as usize).map(naive_row).collect());
    }
    let counts: Vec<u32> = packs.iter().map(|packs| packs.len() as u32).collect();
    let plan = EpochPlan::new(counts, &key, shuffle).unwrap();
    let places = (0..plan.packs()).map(|index| plan.locate(index).unwrap());
    places.map(|(block, pack)| packs[block as usize][pack as usize].clone()).collect()
}

fn naive_row(tokens: &[(u64, u32, [u8; 2])]) -> Row {
    let mut bytes: Vec<u8> = tokens.iter().flat_map(|(_, _, token)| *token).collect();
    bytes.resize(LENGTH as usize * 2, 0);
    let mut parts: Vec<(u64, u32, u32)> = vec![];
    for &(row, at, _) in tokens {
        match parts.last_mut() {
            Some((last, _, count)) if *last == row => *count += 1,
            _ => parts.push((row, at, 1)),
        }
    }
    (bytes, parts)
}

/// Of every document that is kept, every token came exactly once among these rows, and the bytes are those of the document.
fn assert_whole_epoch(rows: &[Row], lines: &[String]) {
    let mut seen: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
    for (bytes, parts) in rows {
        let mut at = 0;
        for &(sample, start, length) in parts {
            let (from, count) = (start as usize * 2, length as usize * 2);
            assert_eq!(bytes[at..at + count], lines[sample as usize].as_bytes()[from..from + count]);
            at += count;
            seen.entry(sample).or_default().push((start, length));
        }
    }
    for (row, line) in lines.iter().enumerate() {
        let mut spans = seen.remove(&(row as u64)).unwrap_or_default();
        spans.sort_unstable();
        let end = spans.iter().fold(0, |end, &(start, length)| {
            assert_eq!(start, end, "row {row}");
            start + length
        });
        assert_eq!(end as usize, if keeps(row) { line.len() / 2 } else { 0 }, "row {row}");
    }
}

/// Goal: caches and random access change nothing. Method: three epochs of three blocks, in a scattered order, against the
/// slow way.
#[test]
fn rows_are_those_of_the_slow_way() {
    let lines = lines(14_000);
    for shuffle in [Shuffle::Full, Shuffle::Local, Shuffle::None] {
        let stream = packed(&lines, Policy::Concat, shuffle);
        assert_eq!(stream.parts.known()[0].leg(0).table().unwrap().head().samples.len(), 3);
        let expected: Vec<_> = (0..3).flat_map(|epoch| naive(&stream, &lines, shuffle, epoch)).collect();
        assert_eq!(expected.len() as u64, stream.rows_until(3));
        let scattered = Permutation::new(&Key::of("scattered", &[]), expected.len() as u64);
        for index in scattered.iter() {
            assert_eq!(filled(&stream, index), expected[index as usize], "{shuffle:?} {index}");
        }
    }
}

#[test]
fn every_token_that_is_kept_comes_once_an_epoch_whatever_the_policy() {
    let lines = lines(5_000);
    for policy in [Policy::Concat, Policy::Fit] {
        let stream = packed(&lines, policy, Shuffle::Full);
        for epoch in 0..2 {
            let range = stream.rows_until(epoch)..stream.rows_until(epoch + 1);
            assert_whole_epoch(&range.map(|index| filled(&stream, index)).collect::<Vec<_>>(), &lines);
        }
    }
}

fn any_shape() -> impl Strategy<Value = (Vec<String>, Shape)> {
    let policy = prop::sample::select(vec![Policy::Concat, Policy::Fit]);
    let shuffle = prop::sample::select(vec![Shuffle::Full, Shuffle::Local, Shuffle::None]);
    let documents = prop::collection::vec(prop_oneof![0..12_usize, 0..90_usize], 12..120);
    let changes = prop::collection::vec((0..40_u64, 1..40_u32), 0..5);
    (documents, policy, shuffle, changes, 1..40_u32, prop::collection::vec(4..30_usize, 0..4)).prop_map(
        |(documents, policy, shuffle, changes, first, widths)| {
            let text = |(n, count): (usize, &usize)| {
                if *count == 0 { ".".to_owned() } else { format!("{n:02}").repeat(*count) }
            };
            let mut lines: Vec<String> = documents.iter().enumerate().map(text).collect();
            // Something to read in every part.
            lines.iter_mut().step_by(4).for_each(|line| line.push_str("0000"));
            let mut index = 0;
            let later = changes.into_iter().map(|(gap, length)| {
                index += gap;
                (index, length)
            });
            let lengths = [(0, first)].into_iter().chain(later).collect();
            let mut end = 0;
            let cuts = widths.into_iter().map(|width| {
                end += width;
                end
            });
            let cuts = cuts.filter(|cut| cut + 6 < documents.len()).collect();
            (lines, Shape { policy, shuffle, lengths, cuts })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Goal: nothing is lost or repeated across changes of length. Method: any documents in any parts, any lengths from any
    /// index on; every epoch has every token once, rows have the length of their index, and any index may be found first.
    #[test]
    fn a_change_of_length_neither_loses_nor_repeats_a_token((lines, shape) in any_shape()) {
        let stream = shape.stream(&lines);
        let last = shape.lengths[shape.lengths.len() - 1].0;
        let epochs = stream.find(last).unwrap().epoch + 2;
        let mut rows = (0..stream.rows_until(epochs)).map(|index| found(&stream, index)).peekable();
        for epoch in 0..epochs {
            let of_epoch = std::iter::from_fn(|| rows.next_if(|(_, of)| *of == epoch).map(|(row, _)| row));
            assert_whole_epoch(&of_epoch.collect::<Vec<Row>>(), &lines);
        }
        prop_assert!(rows.next().is_none());
        let passed: Vec<f64> = (0..=stream.rows_until(epochs)).map(|index| stream.epochs_before(index).unwrap()).collect();
        prop_assert!(passed[0] == 0.0 && passed[passed.len() - 1] == epochs as f64);
        for index in 0..stream.rows_until(epochs) {
            prop_assert_eq!(passed[index as usize].floor() as u64, stream.find(index).unwrap().epoch);
            let due = shape.lengths.iter().rev().find(|(from, _)| *from <= index).unwrap().1;
            prop_assert_eq!(stream.find(index).unwrap().length, due);
        }
        let fresh = shape.stream(&lines);
        let middle = stream.rows_until(epochs) / 2;
        prop_assert_eq!(found(&fresh, middle), found(&stream, middle));
    }
}

/// Goal: a rest is exact where it spans many blocks and windows too. Method: 14,000 documents, changes in the middle of epochs.
#[test]
fn a_change_of_length_is_exact_over_many_blocks() {
    let lines = lines(14_000);
    for (policy, shuffle) in [(Policy::Concat, Shuffle::Full), (Policy::Fit, Shuffle::Local)] {
        let lengths = vec![(0, LENGTH), (1_000, 40), (1_500, 9)];
        let stream = Shape { lengths, ..Shape::plain(policy, shuffle) }.stream(&lines);
        let rest = stream.phases[1].rest.as_ref().unwrap();
        assert!(rest.table().unwrap().head().samples.len() > 1);
        let mut rows = (0..stream.rows_until(2)).map(|index| found(&stream, index)).peekable();
        for epoch in 0..2 {
            let of_epoch = std::iter::from_fn(|| rows.next_if(|(_, of)| *of == epoch).map(|(row, _)| row));
            assert_whole_epoch(&of_epoch.collect::<Vec<Row>>(), &lines);
        }
    }
}

#[test]
fn a_source_whose_length_never_changes_is_the_beginning_of_one_whose_does() {
    let lines = lines(3_000);
    let plain = Shape::plain(Policy::Concat, Shuffle::Full);
    let changed = Shape { lengths: vec![(0, LENGTH), (100, 24)], ..plain.clone() };
    let (plain, changed) = (plain.stream(&lines), changed.stream(&lines));
    (0..100).for_each(|index| assert_eq!(filled(&plain, index), filled(&changed, index)));
    assert_ne!(filled(&plain, 100).0.len(), filled(&changed, 100).0.len());
}

/// Goal: parts that come later change nothing before them. Method: read as far as parts go, and one row further, as they come.
#[test]
fn a_source_can_be_read_as_far_as_its_parts_go() {
    let lines = lines(600);
    let shape = Shape { cuts: vec![200, 400], ..Shape::plain(Policy::Concat, Shuffle::Full) };
    let whole = shape.stream(&lines);
    let phase = StreamPhase::new(Phase::FIRST, None).unwrap();
    let stream = SourceStream::new(Parts::growing(3, 1), vec![phase], TokenKind::plain(2)).unwrap();
    let mut first = 0;
    for part in 0..3 {
        let missing = stream.find(first).err();
        assert!(matches!(missing, Some(FeedError::Plan { .. })), "{missing:?}");
        assert_eq!(stream.reach(None), Reach::Growing { rows: first, ends: false });
        stream.parts.add(shape.part(part, part * 200, &lines[part * 200..][..200])).unwrap();
        let known = stream.parts.ends(0)[part];
        (first..known).for_each(|index| assert_eq!(filled(&stream, index), filled(&whole, index)));
        first = known;
    }
    assert_eq!(filled(&stream, 2 * first + 7), filled(&whole, 2 * first + 7));
    assert_eq!(stream.reach(Some(2)), Reach::Whole(Some(2 * first)));
}

/// Goal: a mask follows its tokens, wherever they go. Method: a mask whose bytes are the first bytes of its tokens.
#[test]
fn a_mask_goes_with_its_tokens() {
    let lines = lines(300);
    let half = |line: &String| -> String { line.bytes().step_by(2).map(char::from).collect() };
    let halves: Vec<String> = lines.iter().map(half).collect();
    let shape = Shape::plain(Policy::Concat, Shuffle::Full);
    let part = shape.part(0, 0, &lines).with_mask(documents(&halves, 1)).unwrap();
    let phase = StreamPhase::new(Phase::FIRST, None).unwrap();
    let tokens = TokenKind { masked: true, ..TokenKind::plain(2) };
    let masked = SourceStream::new(Parts::whole(vec![part], 1).unwrap(), vec![phase], tokens).unwrap();
    let plain = shape.stream(&lines);
    for index in 0..masked.rows_until(1) {
        let mut seen = [&masked, &plain].map(|stream| {
            let (mut bytes, mut mask) = (vec![0; 2 * LENGTH as usize], vec![7; LENGTH as usize]);
            let mut row = RowBytes { tokens: &mut bytes, mask: Some(&mut mask) };
            let used = stream.read(&stream.find(index).unwrap(), &mut row, &mut vec![]).unwrap();
            assert!(mask.split_off(used).iter().all(|byte| *byte == 7));
            (bytes, mask)
        });
        assert!(seen[0].0.chunks_exact(2).zip(&seen[0].1).all(|(token, mask)| token[0] == *mask));
        assert!(std::mem::take(&mut seen[1].1).iter().all(|byte| *byte == 1), "without a mask all count");
        assert_eq!(seen[0].0, seen[1].0);
    }
    let another = shape.part(0, 0, &lines).with_mask(documents(&halves[1..], 1));
    assert!(matches!(another.err(), Some(FeedError::Plan { .. })));
}

#[test]
fn parts_of_another_source_are_refused() {
    let (lines, shape) = (lines(100), Shape::plain(Policy::Concat, Shuffle::Full));
    let parts = Parts::whole(vec![shape.part(0, 0, &lines)], 1).unwrap();
    assert!(matches!(parts.add(shape.part(1, 0, &lines)), Err(FeedError::Plan { .. })));
    assert!(matches!(Parts::whole(vec![shape.part(0, 0, &lines)], 2), Err(FeedError::Plan { .. })));
    assert!(matches!(RowMap::new(vec![(1, 5)]), Err(FeedError::Plan { .. })));
    let map = RowMap::new(vec![(0, 7), (3, 100), (4, 2)]).unwrap();
    assert_eq!([0, 2, 3, 4, 9].map(|row| map.of(row)), [7, 9, 100, 2, 7]);
    assert_eq!(RowMap::default().of(9), 9);
    let rest = Phase { rest: 3, part: 1, ..Phase::FIRST };
    assert!(matches!(StreamPhase::new(rest, None), Err(FeedError::Plan { .. })));
}

/// Goal: the number says what it claims. Method: lengths that fit in one way only, and lengths that fit with everything.
#[test]
fn recurrence_tells_packs_that_come_again_from_packs_that_do_not() {
    let line = |n: usize| "ab".repeat(if n % 2 == 0 { 5 } else { 11 });
    let same: Vec<String> = (0..4_000).map(|_| "ab".repeat(8)).collect();
    let of = |lines: &[String], policy| packed(lines, policy, Shuffle::Full).recurrence(4).unwrap();
    assert!(of(&same, Policy::Fit) < 0.01 && of(&same, Policy::Concat) < 0.01);
    // A row of 16 holds one of 5 and one of 11, of which there are as many: any two may meet.
    let pairs: Vec<String> = (0..4_000).map(line).collect();
    assert!(of(&pairs, Policy::Fit) < 0.01);
    // Every length is there twice at most, and has one partner that fills the row.
    let few: Vec<String> = (1..16).map(|length| "ab".repeat(length)).collect();
    assert!(of(&few, Policy::Fit) > 0.7, "{}", of(&few, Policy::Fit));
    assert_eq!(of(&few, Policy::Single), 0.0);
}

#[test]
fn threads_that_share_a_stream_get_the_same_rows() {
    let lines = lines(9_000);
    let stream = packed(&lines, Policy::Fit, Shuffle::Full);
    let alone: Vec<_> = (0..stream.rows_until(1)).map(|index| filled(&stream, index)).collect();
    let shared = packed(&lines, Policy::Fit, Shuffle::Full);
    std::thread::scope(|scope| {
        for first in 0..4_u64 {
            let (shared, alone) = (&shared, &alone);
            scope.spawn(move || {
                for index in (first..shared.rows_until(1)).step_by(4) {
                    assert_eq!(filled(shared, index), alone[index as usize]);
                }
            });
        }
    });
}

#[test]
fn fixed_rows_are_rows() {
    let lines: Vec<String> = (0..50).map(|n| format!("{n:031}")).collect();
    for shuffle in [Shuffle::Full, Shuffle::Local, Shuffle::None] {
        let keying = Keying { seed: SEED, shuffle };
        let leg = Leg::new(LegKind::Rows(50), Digest::of(b"rows"), keying, LENGTH);
        let part = Part::new(fixed_rows(&lines, 2), RowMap::default(), vec![leg]);
        let phase = StreamPhase::new(Phase::FIRST, None).unwrap();
        let stream =
            SourceStream::new(Parts::whole(vec![part], 1).unwrap(), vec![phase], TokenKind::plain(2))
                .unwrap();
        let mut seen: Vec<u64> = vec![];
        for index in 50..100 {
            let (bytes, parts) = filled(&stream, index);
            assert_eq!(bytes, format!("{}\n", lines[parts[0].0 as usize]).as_bytes());
            assert_eq!(parts[1..], []);
            seen.push(parts[0].0);
        }
        assert_eq!(seen.is_sorted(), shuffle == Shuffle::None);
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<u64>>());
    }
}
