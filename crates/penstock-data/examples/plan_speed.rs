//! What planning costs: per index, per block, per period, and to open anywhere in a source of a thousand million samples.
//!
//! `cargo run --release -p penstock-data --example plan_speed` prints one line per measurement: the best of several rounds,
//! and beside it a plain read of the same table or a shuffle of the same size where there is one, as a ratio.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use penstock_data::plan::{
    BLOCK_ROWS_MIN, Blocks, Change, EpochPlan, Exhaustion, Key, Mixture, PERIOD, Packs, Part, Permutation,
    Policy, RowOrder, Shuffle, Span, in_block, pack_count,
};
use penstock_io::Digest;

const ROUNDS: usize = 7;
const SAMPLES: u64 = 1_000_000_000;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut out = std::io::stdout().lock();
    permutations(&mut out)?;
    epochs(&mut out)?;
    packing(&mut out)?;
    periods(&mut out)
}

/// The shortest of several rounds, in nanoseconds.
fn best_ns<T>(mut work: impl FnMut() -> T) -> f64 {
    let round = |_| {
        let begun = Instant::now();
        black_box(work());
        begun.elapsed().as_nanos() as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn permutations(out: &mut impl Write) -> Outcome {
    const INDEXES: u64 = 1_000_000;
    for len in [10_000_000_000, 100_000, 65_536] {
        let order = Permutation::new(&Key::of("speed", &[]), len);
        let count = INDEXES.min(len);
        let ahead = best_ns(|| (0..count).filter_map(|index| order.at(index)).fold(0, u64::wrapping_add));
        // Each index depends on the one before, so that no two are worked out at the same time.
        let chained = best_ns(|| (0..count).fold(0, |at, _| order.at(at).unwrap_or(0)));
        let back = best_ns(|| (0..count).filter_map(|item| order.inverse(item)).fold(0, u64::wrapping_add));
        writeln!(
            out,
            "order of {len:>11}: {:.1} ns an index, {:.1} ns when each waits for the last, {:.1} ns back",
            ahead / count as f64,
            chained / count as f64,
            back / count as f64,
        )?;
    }
    let key_ns = best_ns(|| (0..1_000).for_each(|n| _ = black_box(Key::of("speed", &[Part::Number(n)]))));
    let table_ns = best_ns(|| Permutation::new(&Key::of("speed", &[]), 65_536));
    writeln!(out, "key: {:.0} ns   table of 65,536: {:.0} us", key_ns / 1e3, table_ns / 1e3)?;
    Ok(())
}

fn epochs(out: &mut impl Write) -> Outcome {
    let web = Digest::of(b"web");
    let blocks = Blocks::new(SAMPLES, SAMPLES * 2_500, 2_048, Shuffle::Full, &web)?;
    // As long as packing would make them: 4,096 samples of 2,500 tokens each in packs of 2,048.
    let packs: Vec<u32> = (0..blocks.block_count()).map(|block| 4_990 + (block % 21) as u32).collect();
    assert_eq!(blocks.block_count(), SAMPLES / BLOCK_ROWS_MIN);
    let key = Key::epoch(17, &web, 0);
    let sum_ns = best_ns(|| packs.iter().map(|&count| u64::from(count)).sum::<u64>());
    let open_ns = best_ns(|| EpochPlan::new(&packs[..], &key, Shuffle::Full));
    let total = EpochPlan::new(&packs[..], &key, Shuffle::Full)?.packs();
    writeln!(
        out,
        "epoch of {SAMPLES} samples, {} blocks, {total} packs: opened in {:.2} ms ({:.0}x a sum of the table)",
        packs.len(),
        open_ns / 1e6,
        open_ns / sum_ns,
    )?;
    let plan = EpochPlan::new(&packs[..], &key, Shuffle::Full)?;
    let last = total - 1;
    for index in [1_000, SAMPLES, last] {
        let locate_ns = best_ns(|| plan.locate(index));
        let both_ns =
            best_ns(|| EpochPlan::new(&packs[..], &key, Shuffle::Full).map(|plan| plan.locate(index)));
        writeln!(
            out,
            "  locate {index}: {:.1} us; open and locate: {:.2} ms",
            locate_ns / 1e3,
            both_ns / 1e6
        )?;
    }
    let rows = RowOrder::new(10 * SAMPLES, &key, Shuffle::Full)?;
    for index in [1_000, SAMPLES] {
        let open_ns =
            best_ns(|| RowOrder::new(10 * SAMPLES, &key, Shuffle::Full).map(|rows| rows.locate(index)));
        writeln!(out, "  {} fixed rows: open and locate {index}: {:.2} us", rows.rows(), open_ns / 1e3)?;
    }
    let window = plan.window_at(last).ok_or("no window")?;
    let range = window.range();
    let read_ns = best_ns(|| range.clone().filter_map(|index| window.locate(index)).map(|pack| pack.0).max());
    writeln!(out, "  kept window: {:.1} ns a pack", read_ns / (range.end - range.start) as f64)?;
    Ok(())
}

fn packing(out: &mut impl Write) -> Outcome {
    let web = Digest::of(b"web");
    let epoch = Key::epoch(17, &web, 0);
    for (rows, mean, pack_tokens) in [(4_096, 500, 2_048), (65_536, 500, 2_048), (65_536, 500, 131_072)] {
        // Skewed as documents are: the cube of an even draw, and every hundredth one 20 times as long.
        let mut draws = Key::of("lengths", &[]).draws();
        let mut length = |sample: u64| {
            let cube = draws.below(1 << 16).pow(3) >> 32;
            1 + ((cube * mean * 4) >> 16) as u32 * if sample % 100 == 0 { 20 } else { 1 }
        };
        let lengths: Vec<u32> = (0..rows).map(&mut length).collect();
        for policy in [Policy::Concat, Policy::Fit] {
            let order = in_block(&epoch, Shuffle::Full, 0, rows);
            let order_ns = best_ns(|| in_block(&epoch, Shuffle::Full, 0, rows));
            let count_ns = best_ns(|| pack_count(&lengths, pack_tokens, policy));
            let pack_ns = best_ns(|| Packs::new(&lengths, order.clone(), pack_tokens, policy));
            let packs = Packs::new(&lengths, order, pack_tokens, policy)?;
            let mut spans: Vec<Span> = vec![];
            let spans_ns = best_ns(|| {
                spans.clear();
                (0..packs.count()).try_for_each(|pack| packs.spans(pack, &lengths, &mut spans))
            });
            let tokens: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
            let places = u64::from(packs.count()) * u64::from(pack_tokens);
            writeln!(
                out,
                "{policy:?} {rows} samples to {pack_tokens}: order {:.0} us, count {:.0} us, packs {:.0} us, spans {:.0} us; {} packs, {:.2} % padding",
                order_ns / 1e3,
                count_ns / 1e3,
                pack_ns / 1e3,
                spans_ns / 1e3,
                packs.count(),
                100.0 * (places - tokens) as f64 / places as f64,
            )?;
        }
    }
    Ok(())
}

fn periods(out: &mut impl Write) -> Outcome {
    for sources in [1, 3, 50, 1_000] {
        let weights = (0..sources).map(|source| 1.0 / f64::from(source + 1)).collect();
        let limits = vec![None; sources as usize];
        let mixture =
            Mixture::new(Key::mixture(17), &[Change::fixed(0, weights)], &limits, Exhaustion::Stop)?;
        let table_ns = best_ns(|| mixture.period_at(1 << 40));
        let table = mixture.period_at(1 << 40).ok_or("no period")?;
        let read_ns =
            best_ns(|| table.positions().filter_map(|at| table.locate(at)).map(|place| place.index).max());
        writeln!(
            out,
            "period of {sources} sources: {:.0} us, then {:.1} ns a position",
            table_ns / 1e3,
            read_ns / PERIOD as f64,
        )?;
    }
    let weights = (0..50).map(|source| 1.0 / f64::from(source + 1)).collect();
    let limits: Vec<_> = (0..50).map(|source| Some(1_000_000 << (source % 10))).collect();
    let changes = [Change::fixed(0, weights)];
    let open_ns = best_ns(|| Mixture::new(Key::mixture(17), &changes, &limits, Exhaustion::Drop));
    let mixture = Mixture::new(Key::mixture(17), &changes, &limits, Exhaustion::Drop)?;
    writeln!(
        out,
        "50 sources that run out one by one: {} segments in {:.1} ms",
        mixture.segments().len(),
        open_ns / 1e6
    )?;
    Ok(())
}
