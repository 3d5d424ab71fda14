//! What one host answers of itself.

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::messages::Question;
use crate::host::questions::answer::{Answer, Part};
use crate::tree::host_list::HostId;
use crate::vote::storage::VoteStorage;

impl<S: VoteStorage> Host<S> {
    /// What this host says to a question at once; of a host without a rank nobody asks for an account.
    pub(super) fn own_answer(&self, what: &Question) -> Answer {
        let rows = match what {
            Question::Ps => self.worker_rows(),
            Question::Hosts => vec![self.host_rows()],
            Question::Journal => self.voter.as_ref().map(|voter| voter.lines.clone()).unwrap_or_default(),
            // Who leads has taken note of it; from anybody else the answer is empty, and it is to be said again.
            Question::Ended { host, .. } => self.leading.iter().map(|_| json!({"noted": host})).collect(),
            Question::Task { .. } => return Answer::default(),
            Question::Unknown(_) => {
                let why = format!("{} has another version and does not know the question", self.me.name);
                return Answer::refusal(self.rank.into_iter().collect(), &why);
            }
        };
        Answer::of(self.rank, vec![Part { head: Value::Array(rows), ..Part::default() }])
    }

    /// The workers of this host, by their ranks over all hosts.
    fn worker_rows(&self) -> Vec<Value> {
        let (Some(rank), Some(report)) = (self.rank, self.agent.report()) else { return Vec::new() };
        let standing = self.standing(rank);
        let gangs = self.job.gangs();
        let rows = report.gangs.iter().zip(&gangs).flat_map(|(gang, plan)| {
            let first = standing.first_ranks.get(plan.role).copied().unwrap_or(0);
            let role = &self.job.roles[plan.role].name;
            let host = &self.me.name;
            gang.workers.iter().map(move |worker| {
                json!({
                    "host": host, "host_rank": rank, "role": role, "rank": first + worker.rank, "pid": worker.pid,
                    "incarnation": gang.incarnation, "running": worker.running,
                    "exit": worker.exit, "step": worker.pulse.as_ref().map(|pulse| pulse.step),
                })
            })
        });
        rows.collect()
    }

    /// The job as this host sees it; the leader sees all hosts.
    fn host_rows(&self) -> Value {
        let list = &self.membership.list;
        let states = self.leading.as_ref().map(|leading| leading.host_rows(list, self.now_ms));
        let name = |id: &HostId| list.entry(*id).map_or_else(|| id.to_string(), |entry| entry.name.clone());
        json!({
            "term": self.membership.term,
            "leader": self.membership.leader.as_ref().map(name),
            "voters": list.voters.iter().map(name).collect::<Vec<_>>(),
            "frozen": self.frozen(),
            "reason": self.meeting.why.clone().filter(|_| self.rank.is_none()),
            "answered_by": self.me.name,
            "lease_ms": self.config.lease_ms,
            "list": list.stamp(),
            "hosts": states,
        })
    }
}
