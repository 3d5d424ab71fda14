//! What a server has done since it was started, as JSON and as text for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use penstock_io::Histogram;

/// Counters that anybody adds to and anybody reads.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) begun: Instant,
    pub(crate) requests: AtomicU64,
    pub(crate) batches_sent: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) batches_made: AtomicU64,
    /// Batches that stood on the shelf when they were asked for.
    pub(crate) ready: AtomicU64,
    /// Batches that were thrown away for room, or with their lane, before anybody asked for them.
    pub(crate) unasked: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) invalid: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Connections that were closed because of a deadline, a limit or an error.
    pub(crate) cut: AtomicU64,
    pub(crate) connections: AtomicUsize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) sending_bytes: AtomicUsize,
    /// From the request to the batch, and how long batches take to make.
    pub(crate) wait: Histogram,
    pub(crate) make: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            requests: AtomicU64::new(0),
            batches_sent: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            batches_made: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            invalid: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            sending_bytes: AtomicUsize::new(0),
            wait: Histogram::default(),
            make: Histogram::default(),
        }
    }
}

/// What stands on the shelf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lanes: usize,
    pub(crate) batches: usize,
    pub(crate) bytes: usize,
}

pub(crate) fn add(count: &AtomicU64, number: u64) {
    count.fetch_add(number, Ordering::Relaxed);
}

impl Counts {
    /// Name, purpose, whether it only grows, and value of everything.
    fn all(&self, held: Held) -> Vec<(&'static str, &'static str, bool, f64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64;
        vec![
            ("requests_total", "Requests that were read.", true, read(&self.requests)),
            ("batches_sent_total", "Batches that were handed to the kernel.", true, read(&self.batches_sent)),
            ("bytes_sent_total", "Bytes of those.", true, read(&self.bytes_sent)),
            ("batches_made_total", "Batches that were made.", true, read(&self.batches_made)),
            ("ready_total", "Batches that were made before they were asked for.", true, read(&self.ready)),
            ("unasked_total", "Batches that nobody asked for.", true, read(&self.unasked)),
            ("busy_total", "Requests answered with 503.", true, read(&self.busy)),
            ("denied_total", "Requests without the right token.", true, read(&self.denied)),
            ("invalid_total", "Requests that make no sense.", true, read(&self.invalid)),
            ("failed_total", "Batches that could not be made.", true, read(&self.failed)),
            ("cut_total", "Connections ended by a limit or an error.", true, read(&self.cut)),
            ("connections", "Connections now.", false, now(&self.connections)),
            ("waiting", "Requests that wait for a batch now.", false, now(&self.waiting)),
            ("sending_bytes", "Bytes that are being sent now.", false, now(&self.sending_bytes)),
            ("lanes", "Lanes that batches are made ahead for.", false, held.lanes as f64),
            ("shelf_batches", "Batches on the shelf.", false, held.batches as f64),
            ("shelf_bytes", "Bytes on the shelf.", false, held.bytes as f64),
            (
                "wait_p50_seconds",
                "Median time from request to batch, to a factor of two.",
                false,
                seconds(&self.wait, 0.5),
            ),
            ("wait_p99_seconds", "The same, 99th percentile.", false, seconds(&self.wait, 0.99)),
            (
                "make_p50_seconds",
                "Median time to make a batch, to a factor of two.",
                false,
                seconds(&self.make, 0.5),
            ),
            ("make_p99_seconds", "The same, 99th percentile.", false, seconds(&self.make, 0.99)),
            ("up_seconds", "Since the start.", false, self.begun.elapsed().as_secs_f64()),
        ]
    }

    /// Everything as plain values.
    pub(crate) fn to_json(&self, held: Held) -> Value {
        let all = self.all(held).into_iter();
        all.map(|(name, _, _, value)| (name.trim_end_matches("_total").to_owned(), json!(value))).collect()
    }

    /// Everything as Prometheus reads it.
    pub(crate) fn to_text(&self, held: Held) -> String {
        let mut text = String::new();
        for (name, purpose, grows, value) in self.all(held) {
            let kind = if grows { "counter" } else { "gauge" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP penstock_service_{name} {purpose}\n# TYPE penstock_service_{name} {kind}\npenstock_service_{name} {value}"
            );
        }
        text
    }
}

/// A quantile in seconds; zero when nothing was seen.
fn seconds(times: &Histogram, share: f64) -> f64 {
    times.quantile(share).map_or(0.0, |time| time.as_secs_f64())
}
