//! The imagined work of imagined hosts for a question: it takes a random time, sometimes too long, and no host does it twice.

use penstock_process::host::Event;
use penstock_process::host::questions::answer::Part;
use penstock_process::tree::rank_set::RankSet;
use serde_json::{Value, json};

use crate::network::Item;
use crate::world::World;

impl World {
    /// A host begins to work for a question, for a random time, and never a second time.
    pub(crate) fn begin_task(&mut self, index: usize, question: u64, task: &Value, limit_ms: u64) {
        self.kinds.insert(question, task["do"].as_str().unwrap_or_default().to_owned());
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
        let kind = self.kinds.get(&question).cloned().unwrap_or_default();
        let found = if rank % 7 == 5 { Err("broken".to_owned()) } else { Ok(parts_of(&kind, rank)) };
        self.give(index, Event::Done(question, found));
    }

    fn rank(&self, index: usize) -> Option<u32> {
        let host = self.nodes[index].host.as_ref()?;
        host.membership().list.rank_of(self.nodes[index].config.host)
    }
}

/// How much each host found in its logs: of many hosts together more than an answer may have.
pub(crate) const LOG_BYTES: usize = 150_000;

/// What a host says to a question of a kind, in the form in which `penstock.process.questions` says it.
fn parts_of(kind: &str, rank: u32) -> Vec<Part> {
    let digest = if rank % 3 == 0 { "third" } else { "other" }.to_owned();
    let ranks = RankSet::of(2 * rank..2 * rank + 2);
    match kind {
        // Lines of two hosts are never the same.
        "logs" => {
            vec![Part { digest: format!("logs of {rank}"), body: "l".repeat(LOG_BYTES), ..Part::default() }]
        }
        "usage" => {
            let head = json!({"rows": [rank, rank + 1]});
            vec![Part { digest: format!("usage of {rank}"), ranks, head, ..Part::default() }]
        }
        "attach" => vec![Part { digest: "kept".to_owned(), head: json!({"kept": true}), ..Part::default() }],
        // Something of the host, and something of its ranks.
        "incident" => vec![
            Part { digest: "kernel".to_owned(), body: "out of memory".to_owned(), ..Part::default() },
            Part { digest, ranks, body: "killed".to_owned(), ..Part::default() },
        ],
        _ => vec![Part { digest, ranks, about: json!({"of": rank}), ..Part::default() }],
    }
}
