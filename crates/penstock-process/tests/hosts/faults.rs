//! What can go wrong with a host: it is killed, its coordinator alone is, its ranks end, its processes stop, its machine sleeps.

use crate::network::Item;
use crate::node::Pause;
use crate::world::World;

impl World {
    /// Everything on a host ends at once; the other ends of its links are told, unless it was cut off.
    pub(crate) fn kill(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.host = None;
        node.start += 1;
        node.tick_at = u64::MAX;
        node.pause = None;
        node.held.clear();
        if std::mem::take(&mut node.twin.running) {
            self.note_end(index);
        }
        self.break_links(index);
    }

    /// A host leaves: its ranks end, that is said, and a little later nothing of it is there.
    pub(crate) fn dismiss(&mut self, index: usize) {
        if self.nodes[index].host.is_none() || self.nodes[index].pause.is_some() {
            return self.kill(index);
        }
        let local_ms = self.local_ms(index);
        let ran = self.nodes[index].twin.running;
        self.nodes[index].twin.leave(local_ms);
        if ran {
            self.note_end(index);
        }
        self.push(self.now_ms, Item::Report(index as u32));
        self.run_until(self.now_ms + 200);
        self.kill(index);
    }

    /// The coordinator of a host is killed and started again; its ranks notice nothing.
    pub(crate) fn restart_coordinator(&mut self, index: usize) {
        if self.nodes[index].host.is_none() || self.nodes[index].pause.is_some() {
            return;
        }
        self.nodes[index].host = None;
        self.break_links(index);
        self.boot(index);
    }

    /// The ranks of a host end by themselves.
    pub(crate) fn end_ranks(&mut self, index: usize, code: i32) {
        if matches!(self.nodes[index].pause, Some(Pause::Machine(_))) {
            return;
        }
        let local_ms = self.local_ms(index);
        if self.nodes[index].twin.end_alone(local_ms, code) {
            self.note_end(index);
            self.push(self.now_ms, Item::Report(index as u32));
        }
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cuts.cut(from, to);
    }

    pub(crate) fn heal(&mut self) {
        self.cuts.heal();
    }

    /// Puts a host where only others of the same number hear it.
    pub(crate) fn isolate(&mut self, index: usize, island: u8) {
        self.cuts.islands[index] = island;
    }

    /// Stops a host for a while.
    pub(crate) fn pause(&mut self, index: usize, pause: Pause, for_ms: u64) {
        let node = &mut self.nodes[index];
        if node.host.is_none() || node.pause.is_some() {
            return;
        }
        node.pause = Some(pause);
        if matches!(pause, Pause::Machine(_)) {
            // It wakes with its old lease.
            node.slept_until = self.now_ms + for_ms + self.plan.lease_ms + self.plan.lease_ms / 50;
        }
        self.note(format!("h{index} is paused for {for_ms} ms: {pause:?}"));
        self.push(self.now_ms + for_ms, Item::Resume(index as u32));
        if pause == Pause::Processes {
            self.watch_lease(index);
        }
    }

    /// While processes are stopped, the kernel's timers end the ranks.
    fn watch_lease(&mut self, index: usize) {
        let Some(due_ms) = self.nodes[index].twin.lease_due_ms() else { return };
        let at = self.nodes[index].clock.world_ms(due_ms).max(self.now_ms + 1);
        self.nodes[index].tick_at = at;
        self.push(at, Item::Tick(index as u32));
    }

    pub(crate) fn resume(&mut self, index: usize) {
        let Some(pause) = self.nodes[index].pause.take() else { return };
        if let Pause::Machine(since_ms) = pause {
            self.nodes[index].clock.stood_ms += self.now_ms - since_ms;
        }
        for item in std::mem::take(&mut self.nodes[index].held) {
            self.push(self.now_ms, item);
        }
        let now_ms = self.now_ms;
        let node = &mut self.nodes[index];
        (node.tick_at, node.due_at) = (now_ms, now_ms);
        self.push(now_ms, Item::Tick(index as u32));
    }

    /// What happens to a paused host happens when it goes on; all else happens now.
    pub(crate) fn unless_paused(&mut self, item: Item) -> Option<Item> {
        if matches!(item, Item::Resume(_)) {
            return Some(item);
        }
        let index = self.host_of(&item);
        let node = &mut self.nodes[index as usize];
        match (node.pause, item) {
            (None, item) => return Some(item),
            (Some(Pause::Processes), Item::Tick(_)) => {
                if node.tick_at == self.now_ms {
                    self.keep_lease(index as usize);
                }
            }
            (Some(_), Item::Tick(_)) => {}
            (Some(_), item) => node.held.push(item),
        }
        None
    }
}
