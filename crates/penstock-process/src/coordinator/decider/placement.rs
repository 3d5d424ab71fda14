//! Which slot each worker gets: the one it had, unless it failed there and a spare is better.

use crate::coordinator::decider::Decider;
use crate::job::policy::Cause;

impl Decider {
    /// The slots of the next life of a gang, its ranks in order. Spares belong to the role, so gangs of one role share them.
    pub(super) fn place(&self, gang: usize) -> Vec<u32> {
        let (plan, history) = (&self.plans[gang], &self.history.gangs[gang]);
        let mut placement = self.placement(gang);
        let Some(failure) = history.failure().filter(|failure| failure.cause != Cause::Preemption) else {
            return placement;
        };
        let place = failure.rank.and_then(|rank| rank.checked_sub(plan.ranks.start));
        let Some(own) = place.and_then(|place| placement.get_mut(place as usize)) else { return placement };
        let peers = || (0..self.plans.len()).filter(|peer| self.plans[*peer].role == plan.role);
        let taken: Vec<u32> = peers().flat_map(|peer| self.placement(peer)).collect();
        let charge = |slot: u32| -> u32 {
            let charges = peers().filter_map(|peer| self.history.gangs[peer].charges.get(slot as usize));
            charges.sum()
        };
        let role = &self.job.roles[plan.role];
        let free = (0..role.ranks.saturating_add(role.spares)).filter(|slot| !taken.contains(slot));
        if let Some(spare) = free.min_by_key(|slot| (charge(*slot), *slot)) {
            if charge(spare) < charge(*own) {
                *own = spare;
            }
        }
        placement
    }

    /// The slots that a gang has, or will have if nothing speaks against them.
    fn placement(&self, gang: usize) -> Vec<u32> {
        let history = &self.history.gangs[gang];
        if history.placement.is_empty() {
            self.plans[gang].ranks.clone().collect()
        } else {
            history.placement.clone()
        }
    }
}
