//! What follows a configuration of voters: another that they agree on, or a voter alone to which a directory gave the next one.

use omnipaxos::storage::StopSign;

use super::VoterGroup;
use crate::vote::Configuration;
use crate::vote::engine::{Engine, cluster_of};
use crate::vote::error::{NotLeader, Result};
use crate::vote::ledger::Step;
use crate::vote::storage::VoteStorage;

impl<S: VoteStorage> VoterGroup<S> {
    /// Wants other voters, at least one of which votes now. Only the leader can; it leads again if it is the first.
    pub fn reconfigure(&mut self, voters: Vec<u64>) -> std::result::Result<(), NotLeader> {
        self.check_leads()?;
        let Some(present) = self.ledger.lock().configuration.clone() else { return Err(NotLeader::Silent) };
        let next = Configuration { number: present.number.saturating_add(1), voters };
        next.check().map_err(|error| NotLeader::Voters(error.to_string()))?;
        if !next.voters.iter().any(|voter| present.voters.contains(voter)) {
            return Err(NotLeader::Voters(
                "none of the new voters votes now, so none has the history".to_owned(),
            ));
        }
        // Who votes is in the metadata; the library numbers them.
        let cluster = cluster_of(&next);
        let metadata = serde_json::to_vec(&next).ok();
        if matches!(self.engine, Engine::Alone) {
            self.take(Step::Stop(Some(StopSign::with(cluster, metadata))));
            return Ok(());
        }
        let taken = self.with_protocol(|protocol| protocol.reconfigure(cluster, metadata).is_ok());
        if taken == Some(true) { Ok(()) } else { Err(NotLeader::Reconfiguring) }
    }

    /// Goes on with a configuration of this voter alone, although the others did not agree: whoever calls this made sure that no other
    /// voter does the same. All that was accepted here counts as decided: of two voters, both have accepted whatever was decided.
    pub fn continue_alone(&mut self, number: u32) -> Result<()> {
        let (kept, rest) = {
            let ledger = self.ledger.lock();
            let decided = ledger.decided.min(ledger.log.len());
            (ledger.decided_count(), ledger.log[decided..].to_vec())
        };
        let next = Configuration { number, voters: vec![self.me] };
        next.check()?;
        self.queue.clear();
        self.begin(next, kept, rest);
        self.settle();
        Ok(())
    }

    /// Decided records from an index on, which the owner may have been told before.
    pub fn decided_since(&self, index: usize) -> Vec<Vec<u8>> {
        let told = self.told.saturating_sub(index);
        self.ledger.lock().decided_from(index).into_iter().take(told).collect()
    }
}
