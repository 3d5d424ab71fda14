//! A job of very many hosts in imagined time: how long its simulation takes, what it needs, and whom faults cost their ranks.
//!
//! `cargo run --release -p penstock-process --example hosts_simulation -- --hosts 100000 --seconds 60 --deaths 300` prints one line of
//! JSON. Hosts die at random moments of the first third; then a rack is cut off for a third of a lease, and with `--lose-leader` the
//! host that leads is lost in the middle.
//!
//! `--leaders 1000 --hosts 10000 --fanout 25` loses a leader in each of 1,000 worlds, of the seeds from `--seed` on, and says whether any rank
//! ended; two worlds at a time where there are two processors.

#[allow(dead_code)]
#[path = "../tests/simulation/chance.rs"]
mod chance;
#[allow(dead_code)]
#[path = "../tests/hosts/checks.rs"]
mod checks;
#[path = "../tests/hosts/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../tests/hosts/faults.rs"]
mod faults;
#[allow(dead_code)]
#[path = "../tests/hosts/large.rs"]
mod large;
#[allow(dead_code)]
#[path = "../tests/hosts/network.rs"]
mod network;
#[allow(dead_code)]
#[path = "../tests/hosts/node.rs"]
mod node;
#[path = "../tests/hosts/queue.rs"]
mod queue;
#[path = "../tests/hosts/tasks.rs"]
mod tasks;
#[allow(dead_code)]
#[path = "../tests/hosts/twin.rs"]
mod twin;
#[allow(dead_code)]
#[path = "../tests/hosts/world.rs"]
mod world;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use large::{Large, Lost};
use serde_json::{Value, json};

fn main() {
    let mut large = Large {
        hosts: 1000,
        seconds: 60,
        deaths: 0,
        seed: 1,
        fanout: 64,
        lease_ms: 30_000,
        ..Large::default()
    };
    let mut leaders = 0;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value =
            || words.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or_else(|| usage(&word));
        match word.as_str() {
            "--hosts" => large.hosts = value() as u32,
            "--seconds" => large.seconds = value(),
            "--deaths" => large.deaths = value() as u32,
            "--seed" => large.seed = value(),
            "--fanout" => large.fanout = value() as u32,
            "--lease-ms" => large.lease_ms = value(),
            "--rack" => large.rack = value() as u32,
            "--leaders" => leaders = value(),
            "--lose-leader" => large.lose_leader = true,
            _ => usage(&word),
        }
    }
    let line = if leaders > 0 { lose_leaders(&large, leaders) } else { large.run() };
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

/// Loses the leader in so many worlds.
fn lose_leaders(large: &Large, count: u64) -> Value {
    let began = std::time::Instant::now();
    let (next, found) = (AtomicU64::new(large.seed), Mutex::new(Vec::new()));
    let end = large.seed + count;
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let lost = Large { seed, ..large.clone() }.lose_leader_once();
                    found.lock().expect("nobody panics with it").push(lost);
                }
            });
        }
    });
    let found: Vec<Lost> = found.into_inner().expect("nobody panics with it");
    let costly = |lost: &&Lost| lost.ended > 0 || lost.running + 1 < large.hosts;
    let seeds: Vec<u64> = found.iter().filter(costly).map(|lost| lost.seed).collect();
    json!({
        "hosts": large.hosts, "fanout": large.fanout, "worlds": found.len(), "first_seed": large.seed,
        "seeds_with_ended_ranks": seeds,
        "least_rest_ms": found.iter().map(|lost| lost.least_ms).min(),
        "longest_ms": found.iter().map(|lost| lost.took_ms).max(),
        "wall_s": began.elapsed().as_secs_f64(), "cpu_s": large::cpu_s(),
    })
}

fn usage(word: &str) -> ! {
    eprintln!("hosts_simulation: {word}: not an option with a number");
    std::process::exit(2);
}
