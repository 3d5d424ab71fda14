//! The journal of a job, `journal.jsonl`: what happened and what was decided. Agent and coordinator both add to it.

use std::fs::File;
use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::coordinator::history::Entry;
use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::job::state::wall_s;
use crate::system::{boot_id, boottime_ns};

/// What happened and what was decided, one line each, in order; never rewritten.
pub struct Journal {
    directory: JobDirectory,
    file: File,
    /// The last line may have no end: the disk was full.
    torn: bool,
}

impl Journal {
    /// Continues the journal of a directory. A line that was torn by a full disk gets an end, so that the next is whole.
    pub fn open(directory: &JobDirectory) -> Result<Self> {
        let path = directory.file("journal.jsonl");
        let file = File::options().create(true).append(true).read(true).open(&path);
        let mut file =
            file.map_err(|source| ProcessError::File { verb: "open", path: path.clone(), source })?;
        let mut text = Vec::new();
        let _ = file.read_to_end(&mut text);
        if text.last().is_some_and(|last| *last != b'\n') {
            let _ = file.write_all(b"\n");
        }
        Ok(Self { directory: directory.clone(), file, torn: false })
    }

    /// All that was written so far.
    pub fn content(&self, directory: &JobDirectory) -> Result<Vec<u8>> {
        let path = directory.file("journal.jsonl");
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

    /// Adds a line that others wrote, with their moment, in a job of many hosts.
    pub fn add_line(&mut self, line: Value) {
        self.add_value(line);
    }

    fn add_value(&mut self, value: Value) {
        let mut value = self.directory.secrets().value(value);
        if value["at"].is_null() {
            value["at"] = wall_s().into();
        }
        // What nobody can set, for who asks how long something took; the boot says which moments have a clock in common.
        value["boot_ns"] = boottime_ns().into();
        value["boot_id"] = boot_id().into();
        let begin = if self.torn { "\n" } else { "" };
        self.torn = self.file.write_all(format!("{begin}{value}\n").as_bytes()).is_err();
    }
}
