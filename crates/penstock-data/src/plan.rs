//! What stands at a position, decided before anything is read.
//!
//! Everything here is a pure function of keys, counts and lengths: no file, clock or thread. Each part turns one number
//! into the next, and each can start anywhere, which is what makes a cursor an integer and opening at any position equally
//! cheap (D1, D5):
//!
//! | part                     | from                    | to                                          |
//! |--------------------------|-------------------------|---------------------------------------------|
//! | [`BatchSchedule`]        | step                    | range of positions, dealt by [`lane_rows`]   |
//! | [`Mixture`]              | position                | source, index in the source                 |
//! | [`Phase`]                | index in the source     | leg, epoch, index in the leg                |
//! | [`EpochPlan`], [`RowOrder`] | index in the leg     | block, pack in the block; or row            |
//! | [`Packs`]                | pack in the block       | spans of samples, by their place in the block |
//! | [`Blocks`]               | place in the block      | surviving sample of the source              |
//!
//! All randomness is a [`Key`] that says what it is for. Tables come in as slices, so they may be memory-mapped.

mod blocks;
mod crop;
mod deal;
mod epoch;
mod error;
mod even;
mod fit;
mod fixed_draws;
mod key;
mod legs;
mod mixture;
mod order;
mod pack;
mod ramp;
mod shares;
mod steps;
mod weights;

pub use blocks::{BLOCK_PACKS_MIN, BLOCK_ROWS_MAX, BLOCK_ROWS_MIN, Blocks};
pub use crop::{crop_at, crop_blocks, crop_rows};
pub use epoch::{EpochPlan, RowOrder, Window, in_block};
pub use error::PlanError;
pub use even::Even;
pub use fit::FIT_TOKENS_MAX;
pub use fixed_draws::{mark_held_out, slice_order};
pub use key::{Draws, Key, Part};
pub use legs::{Course, LegPlace, Phase, Stop, stops_at};
pub use mixture::{
    Change, Exhaustion, Mixture, Movement, PERIOD, POSITIONS_MAX, PeriodTable, Place, Segment,
};
pub use order::{Permutation, Shuffle, TABLE_MAX};
pub use pack::{Packs, Policy, Span, pack_count};
pub use ramp::{Curve, RAMP_MAX, Ramp};
pub use shares::{SOURCES_MAX, Shares};
pub use steps::{BatchSchedule, lane_rows};
pub use weights::{RampTo, WeightEntry, changes_of};

#[cfg(test)]
mod statistics;
