//! What other gangs mean for one: who comes first, who restarts together, and whose end is everybody's.

use crate::coordinator::decider::{Decider, about};
use crate::coordinator::history::{GangHistory, Outcome};
use crate::coordinator::verdict::{Action, Stop, decide};
use crate::coordinator::view::JobView;
use crate::job::policy::{Cause, Scope};
use crate::job::{GangPlan, Kind};

impl Decider {
    /// The roles that have to come first and have not.
    pub(super) fn waits_for(&self, gang: usize) -> Option<String> {
        let role = &self.job.roles[self.plans[gang].role];
        let open: Vec<&str> =
            role.after.iter().map(String::as_str).filter(|name| !self.is_past(name)).collect();
        (!open.is_empty()).then(|| open.join(", "))
    }

    fn is_past(&self, name: &str) -> bool {
        let of_role = self
            .plans
            .iter()
            .zip(&self.history.gangs)
            .filter(|(plan, _)| self.job.roles[plan.role].name == name);
        of_role.into_iter().all(|(plan, history)| match self.job.roles[plan.role].kind {
            Kind::Service => history.started && history.failure().is_none(),
            Kind::Gang | Kind::Task => history.outcome == Some(Outcome::Succeeded),
        })
    }

    /// Why a gang has to end although nobody asked: another failed for good, or nobody is left who may need it.
    pub(super) fn stop_of(&self, gang: usize) -> Option<Stop> {
        let role = &self.job.roles[self.plans[gang].role];
        let failed = self.history.gangs.iter().position(|history| history.outcome == Some(Outcome::Failed));
        if let Some(other) = failed {
            let by = format!("the failure of {}", self.job.roles[self.plans[other].role].name);
            return Some(Stop { by, grace_ms: role.policy.failure_grace_ms, code: 1, ..Stop::default() });
        }
        let needed = |plan: &GangPlan| self.job.roles[plan.role].kind != Kind::Service;
        let mut others =
            self.plans.iter().zip(&self.history.gangs).filter(|(plan, _)| needed(plan)).peekable();
        let alone = others.peek().is_none();
        if role.kind == Kind::Service && !alone && others.all(|(_, history)| history.outcome.is_some()) {
            let by = "the end of everything that needed it".to_owned();
            return Some(Stop {
                by,
                grace_ms: role.policy.stop_grace_ms,
                save_ms: role.policy.save_grace_ms,
                ..Stop::default()
            });
        }
        None
    }

    /// Why a gang that may restart does not yet, in a restart of everybody: all of them are gone first, whoever failed first
    /// may begin again, and then they come in their order.
    pub(super) fn held_back(&self, gang: usize, view: &JobView<'_>) -> Option<String> {
        let all = |gang: usize| self.job.roles[self.plans[gang].role].policy.restart == Scope::All;
        let by_peer =
            |history: &GangHistory| history.failure().is_some_and(|failure| failure.cause == Cause::Peer);
        let takes_part = |gang: usize, history: &GangHistory| {
            history.outcome.is_none() && history.failure().is_some() && (all(gang) || by_peer(history))
        };
        if !takes_part(gang, &self.history.gangs[gang]) {
            return None;
        }
        for (other, history) in self.history.gangs.iter().enumerate() {
            if other == gang || !takes_part(other, history) {
                continue;
            }
            let role = &self.job.roles[self.plans[other].role];
            let known = self.gang(other, about(view, other));
            let verdict = decide(view.now_ms, &known, &role.policy);
            if !matches!(verdict.action, Action::Start { .. }) {
                let gone = known.running + known.orphans == 0;
                let what = if gone { "for the restart of" } else { "for the end of" };
                return Some(format!("waits {what} {}", role.name));
            }
        }
        self.waits_for(gang).map(|what| format!("waits for {what}"))
    }
}
