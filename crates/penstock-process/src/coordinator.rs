//! The coordinator: hears reports, writes down what it decides, and answers with orders. It owns nothing.
//!
//! Everything that it knows is in the journal and in the next report, so it can be killed at any moment: the agent starts another,
//! which goes on where it was, and no worker notices (P4).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::error::{ProcessError, Result};
use crate::job::Room;
use crate::launch::Wires;
use crate::memory::{Entry, Memory};
use crate::messages::Report;
use crate::mind::Mind;
use crate::state::wall_s;
use crate::system;

/// Plays the role until the agent ends the conversation.
pub fn run(room: &Room, wires: Wires) -> Result<i32> {
    system::die_with_parent();
    system::outlive_full_files();
    let link = wires.link.ok_or_else(|| ProcessError::Usage("a coordinator needs a link".to_owned()))?;
    let link = UnixStream::from(link);
    let job = room.job()?;
    let mut journal = Journal::open(room)?;
    let memory = Memory::new(&job).read(&journal.content(room)?);
    let mut mind = Mind::new(job, memory);
    for line in BufReader::new(&link).lines() {
        let Ok(line) = line else { break };
        let report: Report = serde_json::from_str(&line)
            .map_err(|source| ProcessError::Format { path: room.path().to_owned(), source })?;
        let (entries, orders) = mind.consider(&report);
        // First written down, then said: what was said is remembered.
        entries.iter().for_each(|entry| journal.add(entry));
        let mut answer = serde_json::to_vec(&orders).expect("orders are plain values");
        answer.push(b'\n');
        if (&link).write_all(&answer).is_err() {
            break;
        }
    }
    Ok(0)
}

/// What happened and what was decided, one line each, in order; never rewritten.
pub struct Journal {
    room: Room,
    file: File,
    /// The last line may have no end: the disk was full.
    torn: bool,
}

impl Journal {
    /// Continues the journal of a room. A line that was torn by a full disk gets an end, so that the next is whole.
    pub fn open(room: &Room) -> Result<Self> {
        let path = room.file("journal.jsonl");
        let file = File::options().create(true).append(true).read(true).open(&path);
        let mut file =
            file.map_err(|source| ProcessError::File { verb: "open", path: path.clone(), source })?;
        let mut text = Vec::new();
        let _ = file.read_to_end(&mut text);
        if text.last().is_some_and(|last| *last != b'\n') {
            let _ = file.write_all(b"\n");
        }
        Ok(Self { room: room.clone(), file, torn: false })
    }

    /// All that was written so far.
    fn content(&self, room: &Room) -> Result<Vec<u8>> {
        let path = room.file("journal.jsonl");
        std::fs::read(&path).map_err(|source| ProcessError::File { verb: "read", path, source })
    }

    /// Adds an entry. A full disk must not stop supervision, so a line that does not fit is left out.
    pub fn add(&mut self, entry: &Entry) {
        self.add_value(serde_json::to_value(entry).expect("an entry is plain values"));
    }

    /// Adds something that concerns people only.
    pub fn add_fact(&mut self, event: &str, about: Value) {
        self.add_value(json!({"event": event, "about": about}));
    }

    fn add_value(&mut self, value: Value) {
        let mut value = self.room.secrets().value(value);
        value["at"] = wall_s().into();
        let begin = if self.torn { "\n" } else { "" };
        self.torn = self.file.write_all(format!("{begin}{value}\n").as_bytes()).is_err();
    }
}
