//! The imagined gang: it starts, loads, trains and saves, and what it did not save is done again.

use std::collections::BTreeMap;

use crate::coordinator::view::{FailedWorker, GangView};
use crate::simulate::accounts::{Accounts, Stretch};
use crate::simulate::machines::Machines;
use crate::simulate::plan::Times;
use crate::tree::rank_set::RankSet;
use crate::tree::summary::Prepared;

/// What its processes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// There are none.
    Down,
    /// They find each other.
    Starting,
    /// They load a checkpoint.
    Loading,
    /// They make steps, and save.
    Training { since_ms: u64 },
    /// They were told to leave, and save before they do.
    Leaving { since_ms: u64, told_ms: u64 },
    /// They wait for one that is gone.
    Stalled,
    /// They are being ended.
    Ending,
}

impl Stage {
    /// In a word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Starting => "starting",
            Self::Loading => "loading",
            Self::Training { .. } => "training",
            Self::Leaving { .. } => "leaving",
            Self::Stalled => "stalled",
            Self::Ending => "ending",
        }
    }
}

/// The gang.
#[derive(Debug)]
pub(super) struct Gang {
    pub(super) stage: Stage,
    /// The newest life that began.
    pub(super) incarnation: Option<u32>,
    pub(super) failed: Option<FailedWorker>,
    /// A rank is gone, and nobody has noticed.
    pub(super) is_undetected: bool,
    pub(super) ending_ms: Option<u64>,
    /// The life that hosts were told to prepare for.
    pub(super) preparing: Option<u32>,
    pub(super) prepared: Option<(u32, RankSet)>,
    /// What of all steps exists as a checkpoint, as a time of all hosts.
    saved_ms: u64,
    /// How far it came, in the same unit.
    furthest_ms: u64,
}

impl Gang {
    /// Before its first life.
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Down,
            incarnation: None,
            failed: None,
            is_undetected: false,
            ending_ms: None,
            preparing: None,
            prepared: None,
            saved_ms: 0,
            furthest_ms: 0,
        }
    }

    /// Whether it has processes on hosts that are alive.
    pub(super) fn is_up(&self) -> bool {
        self.stage != Stage::Down
    }

    /// Whether a fault would interrupt it.
    pub(super) fn is_well(&self) -> bool {
        !matches!(self.stage, Stage::Down | Stage::Stalled | Stage::Ending)
    }

    /// Whether time is that of training, which is accounted for when it ends.
    pub(super) fn is_training(&self) -> bool {
        matches!(self.stage, Stage::Training { .. } | Stage::Leaving { .. })
    }

    /// A life begins.
    pub(super) fn begin(&mut self, incarnation: u32, is_whole: bool) {
        self.incarnation = Some(incarnation);
        (self.failed, self.ending_ms, self.is_undetected) = (None, None, false);
        (self.preparing, self.prepared) = (None, None);
        // Ranks that wait for a host that is dead never find each other.
        self.stage = if is_whole { Stage::Starting } else { Stage::Stalled };
    }

    /// Training ends now. What is not saved is lost, unless all of it counts.
    pub(super) fn close(
        &mut self,
        times: &Times,
        accounts: &mut Accounts,
        now_ms: u64,
        keeps: bool,
        hosts: (u32, u32),
    ) {
        let (since_ms, until_ms) = match self.stage {
            Stage::Training { since_ms } => (since_ms, now_ms),
            Stage::Leaving { since_ms, told_ms } => (since_ms, told_ms),
            _ => return,
        };
        let stretch = stretch(times, since_ms, until_ms, now_ms, keeps);
        let (size, all) = hosts;
        let trained_ms = stretch.kept_ms + stretch.lost_ms;
        let came_ms = trained_ms * u64::from(size) / u64::from(all.max(1));
        self.furthest_ms = self.saved_ms + came_ms;
        self.saved_ms += accounts.train(stretch, now_ms, size, all);
        self.stage = Stage::Stalled;
    }

    /// What the decider sees of it.
    pub(super) fn view(&self, machines: &Machines, gpus: u32, step_ms: u64) -> GangView<'static> {
        let (mut running, mut unheard, mut unbegun) = (0, 0, 0);
        for silent in machines.silent() {
            match (silent.is_covered, silent.has_processes) {
                (false, _) => unheard += gpus,
                (true, true) => running += gpus,
                (true, false) if self.is_up() => unbegun += gpus,
                (true, false) => {}
            }
        }
        if self.is_up() {
            running += machines.living() * gpus;
        }
        let prepared = self.prepared.iter().map(|(life, hosts)| {
            let hosts = hosts.clone();
            (*life, Prepared { hosts, meeting: None })
        });
        GangView {
            incarnation: self.incarnation,
            running,
            unheard,
            unbegun,
            failed: self.failed.clone(),
            examined: running == 0 && unheard == 0 && self.incarnation.is_some(),
            pulsing: true,
            step: self.incarnation.map(|_| self.furthest_ms / step_ms),
            ending_since_ms: self.ending_ms,
            prepared: prepared.collect::<BTreeMap<_, _>>(),
            ..GangView::default()
        }
    }
}

/// What training since then came to: intervals, each with a save behind it. A save counts when the checkpoint exists.
fn stretch(times: &Times, since_ms: u64, until_ms: u64, now_ms: u64, keeps: bool) -> Stretch {
    let cycle_ms = times.save_every_ms + times.save_ms;
    let elapsed_ms = until_ms - since_ms;
    let saves = elapsed_ms / cycle_ms;
    let trained_ms = saves * times.save_every_ms + (elapsed_ms % cycle_ms).min(times.save_every_ms);
    let written = (now_ms - since_ms).saturating_sub(times.write_ms) / cycle_ms;
    let kept_ms = if keeps { trained_ms } else { written.min(saves) * times.save_every_ms };
    Stretch {
        kept_ms,
        lost_ms: trained_ms - kept_ms,
        saving_ms: elapsed_ms - trained_ms + (now_ms - until_ms),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulate::tests::times;

    proptest! {
        /// Goal: O1 for training: whatever the interval, its parts sum to the time, and what is kept was saved before.
        #[test]
        fn the_parts_of_training_sum_to_it(
            every in 1..10_000_u64, save in 0..500_u64, write in 0..500_u64, since in 0..1000_u64, took in 0..100_000_u64, left in 0..1000_u64,
        ) {
            let times = Times { save_every_ms: every, save_ms: save, write_ms: write, ..times() };
            for keeps in [false, true] {
                let found = stretch(&times, since, since + took, since + took + left, keeps);
                prop_assert_eq!(found.kept_ms + found.lost_ms + found.saving_ms, took + left);
                prop_assert!(keeps || found.kept_ms % every == 0);
                prop_assert!(!keeps || found.lost_ms == 0);
                prop_assert!(found.lost_ms <= (every + save) * 2 + write || keeps);
            }
        }
    }
}
