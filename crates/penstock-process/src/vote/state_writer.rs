//! Copies the journal to the state directory and shows that the job lives, behind a queue that nobody waits for.
//!
//! The directory may be on a network that stalls, and the leader must not stall with it. So a thread of its own writes;
//! the queue is bounded, and who finds it full keeps its lines and offers them again later.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::error::Result;
use super::tie_breaker::{AliveRecord, StateDirectory, TermRecord};

/// Messages that may wait.
const QUEUE_MAX: usize = 256;

enum Task {
    Lines(Vec<String>),
    Alive,
    Over,
}

/// The leader's end of the queue. Dropping it ends the thread after what is queued.
#[derive(Debug)]
pub struct StateWriter {
    queue: SyncSender<Task>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StateWriter {
    /// For the leader of a term that it has claimed.
    pub fn start(directory: StateDirectory, record: &TermRecord) -> Result<Self> {
        let counter = directory.alive()?.map_or(0, |alive| alive.counter);
        let alive = AliveRecord {
            host: record.host,
            name: record.name.clone(),
            term: record.term,
            counter,
            is_over: false,
        };
        let (queue, tasks) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("penstock-state".to_owned())
            .spawn(move || write_all(&directory, alive, &tasks))
            .ok();
        Ok(Self { queue, thread })
    }

    /// Appends lines of the journal, some time later. False: the queue is full, or the writer ended.
    pub fn copy_journal(&self, lines: Vec<String>) -> bool {
        self.queue.try_send(Task::Lines(lines)).is_ok()
    }

    /// Shows that the job lives.
    pub fn show_alive(&self) -> bool {
        // A full queue says that signs of life are on their way already.
        !matches!(self.queue.try_send(Task::Alive), Err(TrySendError::Disconnected(_)))
    }

    /// The job ended: says so, and returns when all is written or `patience` is over.
    pub fn end(mut self, patience: std::time::Duration) -> bool {
        let said = self.queue.try_send(Task::Over).is_ok();
        let until = std::time::Instant::now() + patience;
        let Some(thread) = self.thread.take() else { return false };
        while !thread.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        said && thread.is_finished() && thread.join().is_ok()
    }
}

fn write_all(directory: &StateDirectory, mut alive: AliveRecord, tasks: &Receiver<Task>) {
    let mut journal = None;
    while let Ok(task) = tasks.recv() {
        match task {
            Task::Lines(lines) => {
                let mut text = lines.join("\n");
                text.push('\n');
                if journal.is_none() {
                    journal = directory.open_journal(alive.term).ok();
                }
                // A copy that fails is a copy that is missing: the voters have the journal.
                if journal.as_mut().is_some_and(|file| file.write_all(text.as_bytes()).is_err()) {
                    journal = None;
                }
            }
            Task::Alive | Task::Over => {
                alive.counter += 1;
                alive.is_over = matches!(task, Task::Over);
                let _ = directory.show_alive(&alive);
                if alive.is_over {
                    return;
                }
            }
        }
    }
}
