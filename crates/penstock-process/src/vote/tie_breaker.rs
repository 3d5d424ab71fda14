//! A directory that decides where two hosts cannot: whoever writes the record of the next term first leads in it.
//!
//! `terms/<number>.json` is made by a link that fails if the name exists, on network file systems too. Each leader
//! copies its journal to a file of its own term, and a record says how many lines came before it; so lines that a
//! leader writes after another has taken over do not count. `alive.json` holds a counter that moves while the job
//! lives. Clocks are not compared: a reader looks twice.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{Result, VoteError};

/// Who leads in a term.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermRecord {
    /// The term.
    pub term: u64,
    /// The host that leads.
    pub host: u64,
    /// Its name, for people.
    pub name: String,
    /// How many lines of the journal were decided in earlier terms, as far as they were copied.
    pub lines: usize,
}

/// What came of asking for a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The term is ours.
    Won(TermRecord),
    /// It, or a later one, belongs to this host.
    Lost(TermRecord),
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveRecord {
    /// The host that gave it.
    pub host: u64,
    /// Its name, for people.
    pub name: String,
    /// Its term.
    pub term: u64,
    /// Grows by one with each sign.
    pub counter: u64,
    /// Whether the job ended, so that nobody has to wait for another sign.
    pub is_over: bool,
}

/// The state directory of a job.
#[derive(Debug, Clone)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Opens what `--state` names; a directory is made, a URL is refused.
    pub fn open(place: &str) -> Result<Self> {
        if place.contains("://") {
            return Err(VoteError::StateUrl { value: place.to_owned() });
        }
        let path = PathBuf::from(place);
        for folder in ["terms", "journal"] {
            let folder = path.join(folder);
            std::fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        }
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims a term for a host. Asking again for a term that one has is won again.
    pub fn claim(&self, term: u64, host: u64, name: &str) -> Result<Claim> {
        if let Some(newest) = self.newest()?.filter(|newest| newest.term >= term) {
            let is_ours = newest.term == term && newest.host == host;
            return Ok(if is_ours { Claim::Won(newest) } else { Claim::Lost(newest) });
        }
        let record = TermRecord { term, host, name: name.to_owned(), lines: self.journal()?.len() };
        if self.put_if_absent(&record)? {
            return Ok(Claim::Won(record));
        }
        let path = self.record_path(term);
        read_document(&path)?.map(Claim::Lost).ok_or_else(|| missing(&path))
    }

    /// The record of the newest term.
    pub fn newest(&self) -> Result<Option<TermRecord>> {
        match self.terms()?.last() {
            Some(term) => {
                let path = self.record_path(*term);
                read_document(&path)?.map(Some).ok_or_else(|| missing(&path))
            }
            None => Ok(None),
        }
    }

    /// The journal as it was copied, over all terms: what a job that starts again continues.
    pub fn journal(&self) -> Result<Vec<String>> {
        let mut lines: Vec<String> = Vec::new();
        for term in self.terms()? {
            let path = self.record_path(term);
            let record: TermRecord = read_document(&path)?.ok_or_else(|| missing(&path))?;
            lines.truncate(record.lines);
            let path = self.journal_path(term);
            match std::fs::read(&path) {
                // What follows the last end of a line was not written to its end.
                Ok(bytes) => {
                    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    let text = String::from_utf8_lossy(&bytes[..whole]);
                    lines.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed("read", &path)(error)),
            }
        }
        Ok(lines)
    }

    /// Opens the copy of the journal of a term, for appending whole lines.
    pub fn open_journal(&self, term: u64) -> Result<File> {
        let path = self.journal_path(term);
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).append(true).mode(0o600).open(&path).map_err(failed("open", &path))?;
        // A line that a killed process left half written stays a line of its own, which readers skip.
        if file.metadata().map_err(failed("read", &path))?.len() > 0 {
            file.write_all(b"\n").map_err(failed("write", &path))?;
        }
        Ok(file)
    }

    /// The newest sign of life.
    pub fn alive(&self) -> Result<Option<AliveRecord>> {
        read_document(&self.path.join("alive.json"))
    }

    /// Gives a sign of life.
    pub fn show_alive(&self, record: &AliveRecord) -> Result<()> {
        let path = self.path.join("alive.json");
        let draft = self.path.join(format!(".alive-{:016x}", record.host));
        let text = serde_json::to_vec(record).map_err(|error| failed("write", &draft)(error.into()))?;
        std::fs::write(&draft, text).map_err(failed("write", &draft))?;
        std::fs::rename(&draft, &path).map_err(failed("rename", &path))
    }

    /// Refuses to start beside a job that lives: the caller looked at [`Self::alive`] some time ago, and now again.
    pub fn check_still(&self, before: Option<&AliveRecord>) -> Result<()> {
        match self.alive()? {
            Some(now) if !now.is_over && before != Some(&now) => {
                Err(VoteError::Living { host: now.name, directory: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    fn record_path(&self, term: u64) -> PathBuf {
        self.path.join("terms").join(format!("{term}.json"))
    }

    fn journal_path(&self, term: u64) -> PathBuf {
        self.path.join("journal").join(format!("{term}.jsonl"))
    }

    fn terms(&self) -> Result<Vec<u64>> {
        let folder = self.path.join("terms");
        let mut terms = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(failed("list", &folder))? {
            let name = entry.map_err(failed("list", &folder))?.file_name();
            terms.extend(name.to_str().and_then(|name| name.strip_suffix(".json")?.parse::<u64>().ok()));
        }
        terms.sort_unstable();
        Ok(terms)
    }

    /// Makes the record of a term, unless it exists. True if it is ours.
    fn put_if_absent(&self, record: &TermRecord) -> Result<bool> {
        let path = self.record_path(record.term);
        let draft = self.path.join("terms").join(format!(".{}-{:016x}", record.term, record.host));
        // A draft of a process of this host that was killed.
        let _ = std::fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o644).open(&draft).map_err(failed("make", &draft))?;
        let text = serde_json::to_vec(record).map_err(|error| failed("write", &draft)(error.into()))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed("write", &draft))?;
        let linked = std::fs::hard_link(&draft, &path);
        // A network file system may say that a link failed which it has made: the count of names knows.
        let names = std::fs::metadata(&draft).map_err(failed("read", &draft))?.nlink();
        let _ = std::fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists && names != 2 => {
                return Err(failed("make", &path)(error));
            }
            _ => {}
        }
        let folder = self.path.join("terms");
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", &folder))?;
        Ok(names == 2)
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(std::io::Error) -> VoteError + use<> {
    let path = path.to_owned();
    move |source| VoteError::File { verb, path: path.clone(), source }
}

fn missing(path: &Path) -> VoteError {
    failed("read", path)(ErrorKind::NotFound.into())
}

fn read_document<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| VoteError::Damaged {
            path: path.to_owned(),
            offset: error.column() as u64,
            reason: error.to_string(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::state_writer::StateWriter;
    use super::*;

    fn open(place: &Path) -> StateDirectory {
        StateDirectory::open(place.to_str().expect("text")).expect("opens")
    }

    fn lead(directory: &StateDirectory, record: &TermRecord, lines: &[&str]) {
        let writer = StateWriter::start(directory.clone(), record).expect("starts");
        assert!(writer.copy_journal(lines.iter().map(|line| (*line).to_owned()).collect()));
        assert!(writer.end(Duration::from_secs(20)));
    }

    #[test]
    fn only_one_of_many_hosts_wins_a_term() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        for term in 1..20 {
            let claims: Vec<Claim> = std::thread::scope(|scope| {
                let claim = |host| {
                    scope.spawn({
                        let directory = &directory;
                        move || directory.claim(term, host, "gpu").expect("a claim")
                    })
                };
                let threads: Vec<_> = (1..=4).map(claim).collect();
                threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
            });
            let of_winner = |claim: &Claim| match claim {
                Claim::Won(record) => Some(record.clone()),
                Claim::Lost(_) => None,
            };
            let won: Vec<TermRecord> = claims.iter().filter_map(of_winner).collect();
            assert_eq!(won.len(), 1, "{claims:?}");
            assert_eq!(directory.newest().expect("reads").as_ref(), Some(&won[0]));
            assert_eq!(
                directory.claim(term, won[0].host, "gpu").expect("a claim"),
                Claim::Won(won[0].clone())
            );
            let late = directory.claim(term - 1, 5, "gpu").expect("a claim");
            assert!(matches!(late, Claim::Lost(record) if record == won[0]));
        }
    }

    #[test]
    fn a_later_term_continues_the_journal_and_ignores_what_an_old_leader_adds() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        let Claim::Won(first) = directory.claim(1, 1, "gpu01").expect("a claim") else { panic!("lost") };
        lead(&directory, &first, &["one", "two"]);
        let Claim::Won(second) = directory.claim(2, 2, "gpu02").expect("a claim") else { panic!("lost") };
        assert_eq!(second.lines, 2);
        lead(&directory, &first, &["too late"]);
        lead(&directory, &second, &["three"]);
        // The last line of a process that was killed while it wrote.
        let mut file = directory.open_journal(2).expect("opens");
        file.write_all(b"half a li").expect("writes");
        assert_eq!(directory.journal().expect("reads"), ["one", "two", "three"]);
    }

    #[test]
    fn a_start_beside_a_living_job_is_refused_and_one_after_its_end_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        directory.check_still(None).expect("nobody was there");
        let mut alive =
            AliveRecord { host: 1, name: "gpu01".to_owned(), term: 1, counter: 1, is_over: false };
        directory.show_alive(&alive).expect("writes");
        let before = directory.alive().expect("reads");
        directory.check_still(before.as_ref()).expect("it does not move");
        alive.counter = 2;
        directory.show_alive(&alive).expect("writes");
        let refused = directory.check_still(before.as_ref());
        assert!(matches!(refused, Err(VoteError::Living { host, .. }) if host == "gpu01"));
        (alive.counter, alive.is_over) = (3, true);
        directory.show_alive(&alive).expect("writes");
        directory.check_still(before.as_ref()).expect("it is over");
    }

    #[test]
    fn a_url_is_refused_with_its_value() {
        let refused = StateDirectory::open("s3://bucket/job");
        assert!(matches!(refused, Err(VoteError::StateUrl { value }) if value == "s3://bucket/job"));
    }
}
