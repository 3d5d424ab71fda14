//! The imagined work of imagined hosts for a question: it takes a random time, sometimes too long, and no host does it twice.

use penstock_process::host::Event;
use penstock_process::host::questions::answer::Part;
use penstock_process::tree::rank_set::RankSet;

use crate::network::Item;
use crate::world::World;

impl World {
    /// A host begins to work for a question, for a random time, and never a second time.
    pub(crate) fn begin_task(&mut self, index: usize, question: u64, limit_ms: u64) {
        let task = (index, self.nodes[index].start, question);
        assert!(self.begun.insert(task), "h{index} is asked to do the same twice");
        self.tasks.insert(task);
        let takes_ms = if self.chance.percent(90) { self.chance.between(1, 100) } else { limit_ms + 100 };
        self.push(self.now_ms + takes_ms, Item::Done(index as u32, task.1, question));
    }

    pub(crate) fn end_task(&mut self, index: usize, start: u32, question: u64) {
        if !self.tasks.remove(&(index, start, question)) {
            return;
        }
        let Some(rank) = self.rank(index) else {
            // It lost its host rank meanwhile.
            return self.give(index, Event::Done(question, Ok(Vec::new())));
        };
        let digest = if rank % 3 == 0 { "third" } else { "other" }.to_owned();
        let part = Part { digest, ranks: RankSet::of(2 * rank..2 * rank + 2), ..Part::default() };
        let found = if rank % 7 == 5 { Err("broken".to_owned()) } else { Ok(vec![part]) };
        self.give(index, Event::Done(question, found));
    }

    fn rank(&self, index: usize) -> Option<u32> {
        let host = self.nodes[index].host.as_ref()?;
        host.membership().list.rank_of(self.nodes[index].config.host)
    }
}
