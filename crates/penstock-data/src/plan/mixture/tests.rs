//! Mixtures: every item once and in order through every change, the same however it is reached, ends where it should.

use proptest::prelude::*;

use super::*;

fn key(seed: u64) -> Key {
    Key::mixture(seed)
}

fn change(from: u64, weights: &[f64]) -> Change {
    Change::fixed(from, weights.to_vec())
}

fn endless(weights: &[f64]) -> Mixture {
    Mixture::new(key(17), &[change(0, weights)], &vec![None; weights.len()], Exhaustion::Stop).unwrap()
}

/// All places of `range`, read on through kept tables.
fn walk(mixture: &Mixture, range: Range<u64>) -> Vec<Place> {
    let mut places = vec![];
    let mut next = range.start;
    while next < range.end {
        let Some(table) = mixture.period_at(next) else { break };
        let end = table.positions().end.min(range.end);
        places.extend((next..end).map(|position| table.locate(position).unwrap()));
        next = end;
    }
    places
}

/// Every source's items are used in order from 0, none twice and none left out; the counts at the end are returned.
fn assert_in_order(places: &[Place], sources: usize) -> Vec<u64> {
    let mut next = vec![0; sources];
    for place in places {
        let next = &mut next[usize::from(place.source)];
        assert_eq!(place.index, *next);
        *next += 1;
    }
    next
}

fn any_weights() -> impl Strategy<Value = Vec<f64>> {
    let weight = prop_oneof![1 => Just(0.0), 1 => Just(1e-6), 4 => 0.0..1.0_f64];
    prop::collection::vec(weight, 3)
        .prop_filter("some weight", |weights| weights.iter().any(|&weight| weight > 0.0))
}

fn advance(next: &mut u64, gap: u64) -> u64 {
    *next += gap;
    *next - gap
}

fn any_changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((1..150_000_u64, any_weights()), 1..5).prop_map(|gaps| {
        let mut next = 0;
        gaps.into_iter().map(|(gap, weights)| Change::fixed(advance(&mut next, gap), weights)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goal: 0 lost, 0 repeated through weight changes mid-period. Method: walk 300,000 positions of any schedule.
    #[test]
    fn no_change_of_weights_loses_or_repeats_an_item(changes in any_changes(), seed in any::<u64>(), cuts in prop::collection::vec(0..300_000_u64, 4)) {
        let mixture = Mixture::new(key(seed), &changes, &[None; 3], Exhaustion::Stop).unwrap();
        let places = walk(&mixture, 0..300_000);
        prop_assert_eq!(places.len(), 300_000);
        assert_in_order(&places, 3);
        for cut in cuts {
            // Random access equals reading on, and counts are what was used.
            prop_assert_eq!(mixture.locate(cut), Some(places[cut as usize]));
            prop_assert_eq!(mixture.counts_before(cut).unwrap(), assert_in_order(&places[..cut as usize], 3));
        }
        for (at, next) in changes.iter().enumerate() {
            // An edit of what comes later moves nothing.
            let shorter = Mixture::new(key(seed), &changes[..=at], &[None; 3], Exhaustion::Stop).unwrap();
            let end = changes.get(at + 1).map_or(300_000, |later| later.from.min(300_000));
            prop_assert_eq!(&walk(&shorter, 0..end)[..], &places[..end as usize]);
            prop_assert!(mixture.segments()[at].start() == next.from);
        }
    }

    /// Goal: sources that run out are used up exactly. Method: small limits, both policies, a change on the way.
    #[test]
    fn limits_are_reached_exactly(
        limits in prop::collection::vec(prop_oneof![0..4_u64, 0..2_000_u64, 60_000..140_000_u64], 3),
        changes in any_changes(),
        policy in prop::sample::select(vec![Exhaustion::Stop, Exhaustion::Drop]),
    ) {
        let limited: Vec<Option<u64>> = limits.iter().map(|&limit| Some(limit)).collect();
        let mixture = Mixture::new(key(5), &changes, &limited, policy).unwrap();
        let end = mixture.end().unwrap();
        let places = walk(&mixture, 0..u64::MAX);
        prop_assert_eq!(places.len() as u64, end);
        let counts = assert_in_order(&places, 3);
        prop_assert_eq!(mixture.counts_before(end), Some(counts.clone()));
        prop_assert_eq!((mixture.locate(end), mixture.counts_before(end + 1)), (None, None));
        prop_assert!(counts.iter().zip(&limits).all(|(count, limit)| count <= limit));
        let last = changes.iter().rev().find(|change| change.from <= end).unwrap();
        let mut spent = (0..3).filter(|&source| last.weights[source] > 0.0).map(|source| counts[source] == limits[source]);
        match policy {
            Exhaustion::Stop => prop_assert!(spent.any(|spent| spent)),
            Exhaustion::Drop => prop_assert!(spent.all(|spent| spent)),
        }
        if policy == Exhaustion::Stop && end > 0 && changes.iter().all(|change| change.from != end) {
            let last = places.last().unwrap();
            prop_assert_eq!(last.index + 1, limits[usize::from(last.source)], "it ends with somebody's last item");
        }
    }
}

#[test]
fn a_period_holds_each_source_by_its_weight() {
    let mixture = endless(&[0.7, 0.3]);
    for period in [0, 1, 77, 1_000_000] {
        let count = |position| mixture.counts_before(position).unwrap();
        let (before, after) = (count(period * PERIOD), count((period + 1) * PERIOD));
        let rounded = |end: u64| (end * PERIOD * 7 + 5) / 10;
        assert_eq!(after[0] - before[0], rounded(period + 1) - rounded(period));
        assert_eq!(after[0] + after[1], (period + 1) * PERIOD);
    }
}

#[test]
fn a_weight_of_a_millionth_has_its_places() {
    let mixture = endless(&[1.0, 1e-6]);
    let counts = |position| mixture.counts_before(position).unwrap()[1];
    assert_eq!((counts(10_000_000), counts(1_000_000_000)), (10, 1_000));
    assert!((1..500).all(|n| counts((n + 2) * 1_000_000) > counts(n * 1_000_000)));
}

#[test]
fn sources_are_spread_over_a_period() {
    let mixture = endless(&[0.5, 0.25, 0.25]);
    // Runs of 1,024 positions: a stride of lanes that divides the period does not tie a lane to a source.
    for (first, stride) in [(0, 1), (1_024, 1), (0, 64), (63, 64)] {
        let seen = (0..1_024)
            .map(|n| mixture.locate(first + n * stride).unwrap().source)
            .filter(|source| *source == 0);
        let seen = seen.count();
        assert!((432..=592).contains(&seen), "{seen} of 1024, where 512 are expected");
        if stride == 1 && first == 0 {
            assert_ne!(walk(&mixture, 0..64), walk(&mixture, PERIOD..PERIOD + 64));
        }
    }
}

#[test]
fn a_source_of_three_samples_ends_or_leaves_mid_period() {
    let weights = [change(0, &[0.9, 0.1])];
    let stop = Mixture::new(key(1), &weights, &[None, Some(3)], Exhaustion::Stop).unwrap();
    let end = stop.end().unwrap();
    assert!(end < 300, "{end}");
    assert_eq!(stop.counts_before(end).unwrap()[1], 3);
    assert_eq!(stop.locate(end - 1), Some(Place { source: 1, index: 2 }));

    let drop = Mixture::new(key(1), &weights, &[None, Some(3)], Exhaustion::Drop).unwrap();
    assert_eq!((drop.end(), drop.segments().len()), (None, 2));
    assert_eq!((drop.segments()[1].start(), drop.segments()[1].base()), (end, &[end - 3, 3][..]));
    assert_eq!(drop.locate(1_000_000), Some(Place { source: 0, index: 1_000_000 - 3 }));
    assert_eq!(walk(&drop, 0..end), walk(&stop, 0..end));
}

#[test]
fn a_source_added_later_begins_at_its_first_item() {
    let changes = [change(0, &[1.0, 0.0]), change(100, &[0.5, 0.5])];
    let mixture = Mixture::new(key(1), &changes, &[None; 2], Exhaustion::Stop).unwrap();
    assert_eq!(mixture.counts_before(100), Some(vec![100, 0]));
    assert_in_order(&walk(&mixture, 0..1_000), 2);
    // A spent source that has no weight any more does not stop the stream.
    let changes = [change(0, &[1.0, 0.0]), change(100, &[0.0, 1.0])];
    let mixture = Mixture::new(key(1), &changes, &[Some(100), Some(7)], Exhaustion::Stop).unwrap();
    assert_eq!((mixture.end(), mixture.counts_before(107)), (Some(107), Some(vec![100, 7])));
}

#[test]
fn far_positions_are_as_near_as_others() {
    let mixture = endless(&[0.6, 0.4]);
    let far = POSITIONS_MAX - 1;
    let counts = mixture.counts_before(far).unwrap();
    assert_eq!(counts.iter().sum::<u64>(), far);
    let place = mixture.locate(far).unwrap();
    assert_eq!(place.index, counts[usize::from(place.source)]);
    assert_eq!((mixture.locate(POSITIONS_MAX), mixture.counts_before(u64::MAX)), (None, None));
    let late =
        Mixture::new(key(1), &[change(0, &[1.0, 1.0])], &[None, Some(1 << 60)], Exhaustion::Stop).unwrap();
    assert!(late.end().unwrap().abs_diff(1 << 61) < 2 * PERIOD);
    let never = Mixture::new(key(1), &[change(0, &[1.0])], &[Some(u64::MAX)], Exhaustion::Stop).unwrap();
    assert_eq!(never.end(), None);
}

#[test]
fn what_cannot_be_mixed_is_refused() {
    let refused = |changes: &[Change], limits: &[Option<u64>]| {
        Mixture::new(key(0), changes, limits, Exhaustion::Stop).unwrap_err().to_string()
    };
    assert_eq!(refused(&[], &[]), "the weights schedule must begin at 0, and begins nowhere");
    assert_eq!(
        refused(&[change(4, &[1.0])], &[None]),
        "the weights schedule must begin at 0, and begins at 4"
    );
    let twice = [change(0, &[1.0]), change(9, &[1.0]), change(9, &[2.0])];
    assert_eq!(refused(&twice, &[None]), "the weights schedule must rise, but 9 follows 9");
    let missing = refused(&[change(0, &[1.0])], &[None, None]);
    assert_eq!(missing, "1 weights are given from position 0 on, for 2 sources");
    assert_eq!(refused(&[change(0, &[0.0])], &[None]), "no source has a positive weight from position 0 on");
    let nan = refused(&[change(0, &[1.0]), change(5, &[f64::NAN])], &[None]);
    assert_eq!(nan, "source 0 has weight NaN from position 5 on; weights are finite and not negative");
}

#[test]
fn golden_mixture() {
    let changes = [change(0, &[0.5, 0.3, 0.2]), change(100_000, &[0.2, 0.0, 0.8])];
    let mixture = Mixture::new(key(17), &changes, &[Some(60_000), None, None], Exhaustion::Drop).unwrap();
    let starts: Vec<u64> = mixture.segments().iter().map(|segment| segment.start()).collect();
    let places = [0, 1, 65_535, 65_536, 99_999, 100_000, 1_000_000_000]
        .map(|position| mixture.locate(position).unwrap());
    assert_eq!(starts, [0, 100_000, 150_330]);
    let actual = places.map(|place| (place.source, place.index));
    let expected = [(0, 0), (1, 0), (0, 32_767), (2, 13_107), (2, 19_991), (2, 19_992), (2, 999_909_921)];
    assert_eq!(actual, expected);
    let all = walk(&mixture, 0..200_000);
    let bytes: Vec<u8> =
        all.iter().flat_map(|place| (place.index << 16 | u64::from(place.source)).to_le_bytes()).collect();
    assert_eq!(
        penstock_io::Digest::of(&bytes).to_string(),
        "b3:b3ee19a03d043a0d8886b250afff20e4ddb46054d026fb1287eec42f3aa44812"
    );
}
