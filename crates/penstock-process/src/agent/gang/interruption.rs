//! What a person sends reaches the ranks as the terminal would send it: the same signal, to the rank and its process group.

use std::collections::BTreeSet;

use crate::agent::Agent;
use crate::coordinator::decider::saves;
use crate::system::now_ms;

impl Agent {
    /// Sends workers of a gang what the person sent, each once: all of them, or those that do not look for notices.
    pub(in crate::agent) fn interrupt_gang(&mut self, gang: usize, signal: i32, listeners: bool) {
        if signal == 0 {
            return;
        }
        let state = &self.view.state.gangs[gang];
        let chosen: BTreeSet<u32> = state
            .workers
            .iter()
            .map(|worker| worker.rank)
            .filter(|rank| listeners || !self.pulse_of(gang, *rank).is_some_and(|pulse| pulse.listens))
            .collect();
        for worker in &mut self.view.state.gangs[gang].workers {
            let due = chosen.contains(&worker.rank) && self.workers.running.contains_key(&worker.pid);
            if due && self.workers.tracked[gang].interrupted.insert(worker.pid) {
                worker.asked = true;
                // SAFETY: the number is the worker's, who leads its group: only we reap it, and we have not.
                unsafe {
                    libc::kill(-worker.pid, signal);
                    libc::kill(-worker.pid, libc::SIGCONT);
                }
            }
        }
    }

    /// Whether any worker looks for notices.
    pub(in crate::agent) fn listens(&self) -> bool {
        let mut pulses = self.workers.running.values().filter_map(|(gang, rank)| self.pulse_of(*gang, *rank));
        pulses.any(|pulse| pulse.listens)
    }

    /// Whether any worker is saving.
    pub(in crate::agent) fn is_saving(&self) -> bool {
        let now = now_ms();
        let mut pulses = self.workers.running.values().filter_map(|(gang, rank)| self.pulse_of(*gang, *rank));
        pulses.any(|pulse| saves(&pulse, now))
    }
}
