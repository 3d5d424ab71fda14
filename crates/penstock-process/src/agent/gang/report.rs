//! What the agent says about a gang.

use std::collections::BTreeMap;

use crate::agent::Agent;
use crate::coordinator::first_failure::Culprit;
use crate::coordinator::hang::Pulse;
use crate::coordinator::messages::{GangReport, WorkerReport};
use crate::logs::stderr_tail::RankStderr;

/// What workers write to standard error is told no more often than this; what they wrote before they failed at once.
const STDERR_MS: u64 = 1000;

impl Agent {
    /// What workers wrote to standard error, without secrets, for hosts that keep it for us.
    pub(in crate::agent) fn take_stderr(&mut self, news: bool, now_ms: u64) -> Vec<RankStderr> {
        let due = news || now_ms >= self.host.stderr_ms + STDERR_MS;
        if self.host.standing.is_none() || !due {
            return Vec::new();
        }
        self.host.stderr_ms = now_ms;
        let (secrets, roles) = (self.job.directory.secrets(), &self.job.spec.roles);
        let told = self.output.pump.take_stderr().into_iter();
        told.map(|(speaker, text)| RankStderr {
            role: roles[speaker.role].name.clone(),
            rank: speaker.rank,
            incarnation: speaker.incarnation,
            text: secrets.text(&text),
        })
        .collect()
    }

    /// How a gang is, for the coordinator.
    pub(in crate::agent) fn gang_report(&mut self, gang: usize) -> GangReport {
        let ranks: Vec<u32> = self.view.state.gangs[gang].workers.iter().map(|worker| worker.rank).collect();
        let mut pulses: BTreeMap<u32, Pulse> = BTreeMap::new();
        for rank in ranks {
            let pulse = self.pulse_of(gang, rank).map(|pulse| self.discounted(gang, rank, pulse));
            pulses.extend(pulse.map(|pulse| (rank, pulse)));
        }
        let (state, tended) = (&self.view.state.gangs[gang], &self.workers.tracked[gang]);
        if let Some((incarnation, why)) = &tended.queued {
            let (incarnation, queued) = (Some(*incarnation), Some(why.clone()));
            return GangReport { incarnation, queued, ..GangReport::default() };
        }
        let workers = state.workers.iter().map(|worker| WorkerReport {
            rank: worker.rank,
            pid: worker.pid,
            running: self.workers.running.contains_key(&worker.pid),
            exit: worker.exit.clone(),
            exit_ms: worker.exit_ms,
            asked: worker.asked,
            pulse: pulses.get(&worker.rank).cloned(),
            heard_ms: self.heard_ms(gang, worker.rank),
            signs: self.liveness.lookout.signs(gang, worker.rank),
        });
        let found = tended.examination.as_ref();
        let first_rank = state.first_rank;
        // Whoever hears it knows where the ranks of this host begin.
        let local = |culprit: Culprit| Culprit { rank: culprit.rank.saturating_sub(first_rank), ..culprit };
        GangReport {
            incarnation: state.incarnation,
            queued: None,
            workers: workers.collect(),
            orphans: tended.orphans,
            likeness: found.and_then(|found| found.likeness.clone()),
            culprit: found.and_then(|found| found.culprit.clone()).map(local),
            lived_ms: found.and_then(|found| found.lived_ms),
            examined: found.is_some(),
            witnessed: tended.witnessed,
            looks: self.liveness.lookout.looks(gang),
            patience: self.liveness.lookout.patience(gang),
            warned: tended.warned,
            notified_since_ms: tended.notified_since_ms,
            leave_since_ms: tended.leave_since_ms,
            signalled_since_ms: tended.signalled_since_ms,
            ending_since_ms: tended.ending_since_ms,
            killing_since_ms: tended.killing_since_ms,
            prepared: self.prepared(gang),
            lease_ended_ms: tended.lease_ended_ms,
        }
    }
}
