//! A directory, or a place on an object store, that decides where two hosts cannot, and from which a job that is started again continues.
//!
//! `terms/<number>.json` is made by a link that fails if the name exists, on network file systems too. Its number is that of a
//! configuration of voters: of two that lost each other, whoever writes the record of the next one first goes on alone. A start of the
//! job writes one as well, which says how many records of the journal it continues. Each leader copies the journal to a file of its own
//! term, a record with its place on each line: so copies of several leaders of one start fit together, and what is added after another
//! start has begun does not count. `alive.json` holds a counter that moves while the job lives. Clocks are not compared: a reader looks
//! twice.
//!
//! On an object store a record is made by a conditional put, and a copy of the journal has an object for each piece that was added:
//! `journal/<term>.<first index>.jsonl`. Nothing there grows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{Result, VoteError};
use super::state_store::{StateStore, StoreAnswer, StoreRequest};

/// What is in it.
const FOLDERS: [&str; 3] = ["terms", "journal", "hosts"];

/// Who may go on with a configuration of voters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermRecord {
    /// The configuration.
    pub number: u32,
    /// The host that made it.
    pub host: u64,
    /// Its name, for people.
    pub name: String,
    /// Of a start of the job: how many records of the journal it continues. Nothing where a tie was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<usize>,
}

/// What came of asking for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is ours.
    Won(TermRecord),
    /// It, or a later one, belongs to this host.
    Lost(TermRecord),
}

/// One record of the journal, as it is copied.
#[derive(Debug, Serialize, Deserialize)]
struct CopiedRecord {
    /// Its place among all records of the job.
    index: usize,
    /// What it says.
    record: String,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveRecord {
    /// The host that gave it.
    pub host: u64,
    /// Its name, for people.
    pub name: String,
    /// Grows by one with each sign.
    pub counter: u64,
    /// No life has this number or a higher one, whatever was not copied.
    pub lives: u32,
    /// Whether the job ended, so that nobody has to wait for another sign.
    pub is_over: bool,
}

/// The state directory of a job.
#[derive(Debug, Clone)]
pub struct StateDirectory {
    /// The directory, or the URL of the place on a store.
    path: PathBuf,
    store: Option<Arc<Mutex<StateStore>>>,
}

impl StateDirectory {
    /// A directory that exists: a host that begins makes it, and nobody makes it again, because a directory that vanished and came back
    /// empty would give away twice what it had given once.
    pub fn open(place: &Path) -> Self {
        Self { path: place.to_owned(), store: None }
    }

    /// A place on an object store.
    pub fn on_store(url: &Path, store: StateStore) -> Self {
        Self { path: url.to_owned(), store: Some(Arc::new(Mutex::new(store))) }
    }

    /// Makes a directory, as a host does that begins.
    pub fn create(place: &Path) -> Result<Self> {
        let directory = Self::open(place);
        for folder in FOLDERS {
            let folder = directory.path.join(folder);
            std::fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        }
        Ok(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hosts that have left their mark here, so that others can tell that they see this directory.
    pub fn hosts(&self) -> Result<BTreeSet<u64>> {
        let names = self.names("hosts")?;
        Ok(names.iter().filter_map(|name| u64::from_str_radix(name, 16).ok()).collect())
    }

    /// Asks the store, where there is one.
    fn ask(&self, request: &StoreRequest<'_>) -> Option<Result<StoreAnswer>> {
        let store = self.store.as_ref()?;
        Some(store.lock().unwrap_or_else(PoisonError::into_inner).ask(request))
    }

    /// Claims a configuration for a host. Asking again for one that it has is won again.
    pub fn claim(&self, wanted: TermRecord) -> Result<Claim> {
        if let Some(newest) = self.newest()?.filter(|newest| newest.number >= wanted.number) {
            let is_ours = newest.number == wanted.number && newest.host == wanted.host;
            return Ok(if is_ours { Claim::Won(newest) } else { Claim::Lost(newest) });
        }
        if self.put_if_absent(&wanted)? {
            return Ok(Claim::Won(wanted));
        }
        let path = self.record_path(wanted.number);
        let record: TermRecord = self.document(&path)?.ok_or_else(|| missing(&self.path.join(&path)))?;
        // A store may have made it and not have said so.
        Ok(if record == wanted { Claim::Won(record) } else { Claim::Lost(record) })
    }

    /// The newest record.
    pub fn newest(&self) -> Result<Option<TermRecord>> {
        match self.numbers("terms", ".json")?.last() {
            Some(number) => self.record(*number).map(Some),
            None => Ok(None),
        }
    }

    /// A number of a configuration that no earlier start has used, as far as anything here shows.
    pub fn next_number(&self) -> Result<u32> {
        let claimed = self.numbers("terms", ".json")?.last().copied().unwrap_or(0);
        let copied = self.numbers("journal", ".jsonl")?.last().map_or(0, |term| term >> 32);
        Ok(u32::try_from(claimed.max(copied)).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// The journal as it was copied, over all starts: what a job that starts again continues.
    pub fn journal(&self) -> Result<Vec<String>> {
        let mut starts: Vec<TermRecord> = Vec::new();
        for number in self.numbers("terms", ".json")? {
            let record = self.record(number)?;
            starts.extend(Some(record).filter(|record| record.continues.is_some()));
        }
        let terms = self.numbers("journal", ".jsonl")?;
        let mut records: Vec<String> = Vec::new();
        for (place, start) in starts.iter().enumerate() {
            records.truncate(start.continues.unwrap_or(0));
            let before = starts.get(place + 1).map_or(u64::MAX, |next| u64::from(next.number));
            let of_start = |term: &&u64| (u64::from(start.number)..before).contains(&(**term >> 32));
            let mut copied = BTreeMap::new();
            for term in terms.iter().filter(of_start) {
                copied.extend(self.copied(*term)?);
            }
            while let Some(record) = copied.remove(&records.len()) {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// What the leader of a term copied. What makes no sense was not written to its end.
    fn copied(&self, term: u64) -> Result<BTreeMap<usize, String>> {
        let prefix = format!("journal/{term}.");
        let text = match self.ask(&StoreRequest::GetAll { prefix: &prefix }) {
            Some(answer) => answer?.texts.into_values().collect::<Vec<_>>().join("\n").into_bytes(),
            None => {
                let path = self.journal_path(term);
                std::fs::read(&path).map_err(failed("read", &path))?
            }
        };
        let lines = text.split(|byte| *byte == b'\n');
        let records = lines.filter_map(|line| serde_json::from_slice::<CopiedRecord>(line).ok());
        Ok(records.map(|copied| (copied.index, copied.record)).collect())
    }

    /// Opens the copy of the journal of a term.
    pub fn open_journal(&self, term: u64) -> Result<JournalCopy> {
        if self.store.is_some() {
            return Ok(JournalCopy::OnStore { directory: self.clone(), term });
        }
        let path = self.journal_path(term);
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).append(true).mode(0o600).open(&path).map_err(failed("open", &path))?;
        // A line that a killed process left half written stays a line of its own, which readers skip.
        if file.metadata().map_err(failed("read", &path))?.len() > 0 {
            file.write_all(b"\n").map_err(failed("write", &path))?;
        }
        Ok(JournalCopy::File { path, file })
    }

    /// The newest sign of life.
    pub fn alive(&self) -> Result<Option<AliveRecord>> {
        self.document("alive.json")
    }

    /// Gives a sign of life.
    pub fn show_alive(&self, record: &AliveRecord) -> Result<()> {
        let path = self.path.join("alive.json");
        let draft = self.path.join(format!(".alive-{:016x}", record.host));
        let text = serde_json::to_string(record).map_err(|error| failed("write", &draft)(error.into()))?;
        if let Some(answer) = self.ask(&StoreRequest::Replace { name: "alive.json", text: &text }) {
            return answer.map(drop);
        }
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

    fn record_path(&self, number: u32) -> String {
        format!("terms/{number}.json")
    }

    fn record(&self, number: u64) -> Result<TermRecord> {
        let name = format!("terms/{number}.json");
        self.document(&name)?.ok_or_else(|| missing(&self.path.join(name)))
    }

    fn journal_path(&self, term: u64) -> PathBuf {
        self.path.join("journal").join(format!("{term}.jsonl"))
    }

    /// The names in a folder.
    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let prefix = format!("{folder}/");
        if let Some(answer) = self.ask(&StoreRequest::List { prefix: &prefix }) {
            return answer.map(|answer| answer.names);
        }
        let folder = self.path.join(folder);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(failed("list", &folder))? {
            names.extend(entry.map_err(failed("list", &folder))?.file_name().into_string());
        }
        Ok(names)
    }

    /// The numbers that names of files in a folder begin with, in order.
    fn numbers(&self, folder: &str, ending: &str) -> Result<Vec<u64>> {
        let names = self.names(folder)?;
        let number = |name: &String| name.strip_suffix(ending)?.split('.').next()?.parse::<u64>().ok();
        Ok(names.iter().filter_map(number).collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// What a document says; nothing where there is none.
    fn document<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.path.join(name);
        let bytes = match self.ask(&StoreRequest::Get { name }) {
            Some(answer) => match answer?.text {
                Some(text) => text.into_bytes(),
                None => return Ok(None),
            },
            None => match std::fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed("read", &path)(error)),
            },
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| VoteError::Damaged {
            path,
            offset: error.column() as u64,
            reason: error.to_string(),
        })
    }

    /// Makes a record, unless it exists. True if it is ours.
    fn put_if_absent(&self, record: &TermRecord) -> Result<bool> {
        let name = self.record_path(record.number);
        let path = self.path.join(&name);
        let text = serde_json::to_string(record).map_err(|error| failed("write", &path)(error.into()))?;
        if let Some(answer) = self.ask(&StoreRequest::PutIfAbsent { name: &name, text: &text }) {
            return answer.map(|answer| answer.made);
        }
        let draft = self.path.join("terms").join(format!(".{}-{:016x}", record.number, record.host));
        // A draft of a process of this host that was killed.
        let _ = std::fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o644).open(&draft).map_err(failed("make", &draft))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write", &draft))?;
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

/// The copy of the journal that the leader of a term writes.
#[derive(Debug)]
pub enum JournalCopy {
    /// A file that grows.
    File {
        /// Which.
        path: PathBuf,
        /// Open to add to it.
        file: File,
    },
    /// Objects, one for each piece.
    OnStore {
        /// Where.
        directory: StateDirectory,
        /// Of the leader.
        term: u64,
    },
}

impl JournalCopy {
    /// Adds records from an index on, and returns when they are durable.
    pub fn add(&mut self, index: usize, records: &[Vec<u8>]) -> Result<()> {
        let mut text = String::new();
        for (index, record) in (index..).zip(records) {
            let record = String::from_utf8_lossy(record).into_owned();
            let line = serde_json::to_string(&CopiedRecord { index, record });
            text += &line.map_err(|error| failed("write", Path::new("journal"))(error.into()))?;
            text.push('\n');
        }
        match self {
            Self::File { path, file } => {
                let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
                written.map_err(failed("write", path))
            }
            Self::OnStore { directory, term } => {
                // A piece that was given up may be there already, and this one may be longer.
                let name = format!("journal/{term}.{index:012}.jsonl");
                let answer = directory.ask(&StoreRequest::Replace { name: &name, text: &text });
                answer.map_or(Ok(()), |answer| answer.map(drop))
            }
        }
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(std::io::Error) -> VoteError + use<> {
    let path = path.to_owned();
    move |source| VoteError::File { verb, path: path.clone(), source }
}

fn missing(path: &Path) -> VoteError {
    failed("read", path)(ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(place: &Path) -> StateDirectory {
        StateDirectory::create(place).expect("opens")
    }

    fn wanted(number: u32, host: u64, continues: Option<usize>) -> TermRecord {
        TermRecord { number, host, name: format!("gpu{host:02}"), continues }
    }

    fn copy(directory: &StateDirectory, number: u64, index: usize, records: &[&str]) {
        let records: Vec<Vec<u8>> = records.iter().map(|record| record.as_bytes().to_vec()).collect();
        directory.open_journal(number << 32).expect("opens").add(index, &records).expect("writes");
    }

    #[test]
    fn only_one_of_many_hosts_wins_a_configuration() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        for number in 1..20 {
            let claims: Vec<Claim> = std::thread::scope(|scope| {
                let claim = |host| {
                    scope.spawn({
                        let directory = &directory;
                        move || directory.claim(wanted(number, host, None)).expect("a claim")
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
            let again = directory.claim(wanted(number, won[0].host, None)).expect("a claim");
            assert_eq!(again, Claim::Won(won[0].clone()));
            let late = directory.claim(wanted(number - 1, 5, None)).expect("a claim");
            assert!(matches!(late, Claim::Lost(record) if record == won[0]));
        }
    }

    #[test]
    fn leaders_of_one_start_continue_each_others_copies_and_gaps_end_them() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        directory.claim(wanted(1, 1, Some(0))).expect("a claim");
        copy(&directory, 1, 0, &["zero", "one"]);
        directory.claim(wanted(2, 2, None)).expect("a claim");
        copy(&directory, 2, 1, &["one", "two"]);
        copy(&directory, 2, 4, &["four"]);
        // The last line of a process that was killed while it wrote.
        let JournalCopy::File { mut file, .. } = directory.open_journal(2 << 32).expect("opens") else {
            panic!("a directory has files")
        };
        file.write_all(b"{\"index\": 3, \"rec").expect("writes");
        assert_eq!(directory.journal().expect("reads"), ["zero", "one", "two"]);
        assert_eq!(directory.next_number().expect("reads"), 3);
    }

    #[test]
    fn a_later_start_continues_what_it_read_and_ignores_what_an_old_leader_adds() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        directory.claim(wanted(1, 1, Some(0))).expect("a claim");
        copy(&directory, 1, 0, &["zero", "one"]);
        directory.claim(wanted(4, 2, Some(2))).expect("a claim");
        copy(&directory, 1, 2, &["too late"]);
        copy(&directory, 5, 2, &["two"]);
        assert_eq!(directory.journal().expect("reads"), ["zero", "one", "two"]);
        assert_eq!(directory.next_number().expect("reads"), 6);
    }

    #[test]
    fn a_start_beside_a_living_job_is_refused_and_one_after_its_end_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = open(place.path());
        directory.check_still(None).expect("nobody was there");
        let mut alive =
            AliveRecord { host: 1, name: "gpu01".to_owned(), counter: 1, lives: 16, is_over: false };
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
}
