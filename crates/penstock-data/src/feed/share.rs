//! One reader per host: processes that read the same lane make every batch once and look at it in the same memory.
//!
//! They meet at a name in the kernel that is made of everything that decides the bits of a batch. Whoever takes the name is the
//! **reader**: it keeps the [table](table) of who makes which step and of what is made; the others ask it. A batch is written once,
//! into sealed memory that has no name, and mapped by everybody. Nothing is ever on disk or in `/dev/shm`, and everything that a
//! process held is gone with it.
//!
//! Since a batch follows from its number alone, every process can make every batch: a reader that is dead, stopped or slow costs
//! time, and never a batch or its order.

mod member;
mod memory;
mod packet;
mod server;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::Histogram;

pub use member::{Asked, Claim, Member, Standing, Told};

use super::FeedError;
use super::ahead::MakeBatch;
use super::batch::Batch;
use super::wire;

/// How often somebody who waits is told that a step is being made.
const BEAT: Duration = Duration::from_millis(100);
/// A reader that says nothing for so long is given up; it says something with every beat.
const MUTE: Duration = Duration::from_millis(600);

/// Makes batches together with others.
pub struct Sharing {
    /// What makes a batch here.
    maker: Arc<dyn MakeBatch>,
    member: Arc<Member>,
    /// How long it took to get batches that others made.
    times: Histogram,
}

impl Sharing {
    /// Batches of `maker`, each made once by all who take part.
    pub fn new(maker: Arc<dyn MakeBatch>, member: Arc<Member>) -> Self {
        Self { maker, member, times: Histogram::default() }
    }

    /// How long it took to get batches that others made.
    pub fn times(&self) -> &Histogram {
        &self.times
    }
}

impl MakeBatch for Sharing {
    fn first_from(&self, step: u64) -> u64 {
        self.maker.first_from(step)
    }

    fn stop(&self) {
        self.maker.stop();
        self.member.close();
    }

    fn wait(&self, step: u64, timeout: Duration) -> Result<bool, FeedError> {
        self.maker.wait(step, timeout)
    }

    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
        let begun = Instant::now();
        let claim = match self.member.ask(step) {
            Asked::Alone => return self.maker.make(step),
            Asked::Make(claim) => claim,
            Asked::Batch(memory) => {
                let read = wire::read(memory).ok().filter(|batch| batch.step == step);
                let Some(batch) = read else { return self.maker.make(step) };
                self.times.add(begun.elapsed());
                return Ok(Some(batch));
            }
        };
        let Some(batch) = self.maker.make(step)? else { return Ok(None) };
        // Without memory for others there is still the batch.
        let shared = wire::bare_parts(&batch);
        match claim.put(&shared.slices()).map(wire::read) {
            Ok(Ok(seen)) => Ok(Some(seen)),
            _ => {
                drop(shared);
                Ok(Some(batch))
            }
        }
    }
}

#[cfg(test)]
mod tests;
