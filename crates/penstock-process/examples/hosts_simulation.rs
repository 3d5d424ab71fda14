//! A job of very many hosts in imagined time: how long its simulation takes, what it needs, and whom faults cost their ranks.
//!
//! `cargo run --release -p penstock-process --example hosts_simulation -- --hosts 100000 --seconds 60 --deaths 300` prints one line of
//! JSON. Hosts die at random moments of the first third; then a rack is cut off for a third of a lease, and with `--lose-leader` the
//! host that leads is lost in the middle.

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

use large::Large;

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
            "--lose-leader" => large.lose_leader = true,
            _ => usage(&word),
        }
    }
    let line = large.run().to_string();
    writeln!(std::io::stdout(), "{line}").expect("standard output");
}

fn usage(word: &str) -> ! {
    eprintln!("hosts_simulation: {word}: not an option with a number");
    std::process::exit(2);
}
