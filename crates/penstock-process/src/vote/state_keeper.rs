//! Does in the state directory what a host asks for, one task after the other, and says what came of it.
//!
//! The directory may be on a network that stalls, and no host may stall with it: [`StateThread`] has a thread of its own and a
//! bounded queue. The journal is copied behind and never waited for. A copy that fails leaves a gap; then the keeper asks for
//! everything from there on, each time that it is told that the job lives.

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use super::error::{Result, VoteError};
use super::tie_breaker::{AliveRecord, Claim, JournalCopy, StateDirectory, TermRecord};
use crate::system;

/// Numbers of lives that are reserved beyond the newest: a job that starts again begins above them if it cannot know better.
pub const LIVES_AHEAD: u32 = 16;
/// Tasks that may wait.
const QUEUE_MAX: usize = 256;

/// What a host wants of the state directory.
#[derive(Debug, Clone)]
pub enum StateTask {
    /// Begin a job.
    Begin {
        /// Hosts that should all see the directory.
        hosts: Vec<u64>,
        /// The sign of life that was there a while ago.
        seen: Option<AliveRecord>,
        /// With the journal of earlier starts.
        continues: bool,
    },
    /// Break a tie: go on alone with this configuration.
    Claim(u32),
    /// This host leads in a term from now on.
    Lead(u64),
    /// Records of the journal, from an index on.
    Copy(usize, Vec<Vec<u8>>),
    /// The job lives: no life has this number or a higher one, and the journal has so many records.
    Alive(u32, usize),
    /// It is over.
    Over(u32, usize),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum StateAnswer {
    /// The job may begin.
    Begun(Beginning),
    /// Somebody showed life, now or long ago: look again.
    Alive(AliveRecord),
    /// The job must not begin here: in words.
    Refused(String),
    /// These hosts do not see the directory.
    Unseen(Vec<u64>),
    /// It cannot be said whether it may: in words.
    Unbegun(String),
    /// Who has the configuration.
    Claimed(Claim),
    /// It could not be claimed: in words.
    Unclaimed(String),
    /// Records are missing from this index on.
    Wants(usize),
    /// No life below this number can be repeated by another start.
    Reserved(u32),
    /// The journal cannot be copied: in words.
    Uncopied(String),
}

/// How a job begins.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// The first configuration of its voters.
    pub number: u32,
    /// What earlier starts decided.
    pub journal: Vec<Vec<u8>>,
    /// The first number of a life that no earlier start can have used.
    pub lives: u32,
    /// Numbers of lives below this are this start's.
    pub reserved: u32,
}

/// One host's hand in the state directory.
pub struct StateKeeper {
    directory: StateDirectory,
    host: u64,
    name: String,
    term: u64,
    copy: Option<JournalCopy>,
    /// The first index that is not copied; nothing while that is unknown.
    next: Option<usize>,
    /// The counter and lives that this host showed last.
    shown: Option<(u64, u32)>,
}

impl StateKeeper {
    /// For one start of a host.
    pub fn new(directory: StateDirectory, host: u64, name: String) -> Self {
        Self { directory, host, name, term: 0, copy: None, next: None, shown: None }
    }

    /// Does a task.
    pub fn handle(&mut self, task: StateTask) -> Vec<StateAnswer> {
        match task {
            StateTask::Begin { hosts, seen, continues } => match self.begin(&hosts, seen.as_ref(), continues)
            {
                Ok(answer) => vec![answer],
                Err(problem @ VoteError::Living { .. }) => vec![StateAnswer::Refused(problem.to_string())],
                Err(problem) => vec![StateAnswer::Unbegun(problem.to_string())],
            },
            StateTask::Claim(number) => match self.claim(number, None) {
                Ok(claim) => vec![StateAnswer::Claimed(claim)],
                Err(problem) => vec![StateAnswer::Unclaimed(problem.to_string())],
            },
            StateTask::Lead(term) => {
                (self.term, self.copy, self.next) = (term, None, None);
                Vec::new()
            }
            StateTask::Copy(index, records) => self.copy(index, &records),
            StateTask::Alive(lives, count) => self.live(lives, count, false),
            StateTask::Over(lives, count) => self.live(lives, count, true),
        }
    }

    fn claim(&self, number: u32, continues: Option<usize>) -> Result<Claim> {
        self.directory.claim(TermRecord { number, host: self.host, name: self.name.clone(), continues })
    }

    fn begin(&mut self, hosts: &[u64], seen: Option<&AliveRecord>, continues: bool) -> Result<StateAnswer> {
        let marked = self.directory.hosts()?;
        let unseen: Vec<u64> = hosts.iter().copied().filter(|host| !marked.contains(host)).collect();
        if !unseen.is_empty() {
            return Ok(StateAnswer::Unseen(unseen));
        }
        let alive = self.directory.alive()?;
        let others = alive.as_ref().filter(|alive| !alive.is_over && alive.host != self.host);
        match (others, seen) {
            (Some(others), None) => return Ok(StateAnswer::Alive(others.clone())),
            (Some(_), Some(_)) => self.directory.check_still(seen)?,
            (None, _) => {}
        }
        let journal = if continues { self.directory.journal()? } else { Vec::new() };
        let number = self.directory.next_number()?;
        if let Claim::Lost(record) = self.claim(number, Some(journal.len()))? {
            let directory = self.directory.path().to_owned();
            return Err(VoteError::Living { host: record.name, directory });
        }
        let lives = alive.as_ref().filter(|_| continues).map_or(0, |alive| alive.lives);
        let reserved = lives.saturating_add(LIVES_AHEAD);
        self.show(reserved, alive.map_or(0, |alive| alive.counter), false)?;
        let journal = journal.into_iter().map(String::into_bytes).collect();
        Ok(StateAnswer::Begun(Beginning { number, journal, lives, reserved }))
    }

    fn copy(&mut self, index: usize, records: &[Vec<u8>]) -> Vec<StateAnswer> {
        // What does not follow what is there is asked for again when the job shows that it lives.
        let Some(next) = self.next.filter(|next| index <= *next) else { return Vec::new() };
        let fresh = records.get(next - index..).unwrap_or_default();
        if fresh.is_empty() {
            return Vec::new();
        }
        let opened = match self.copy.take() {
            Some(copy) => Ok(copy),
            None => self.directory.open_journal(self.term),
        };
        let written = opened.and_then(|mut copy| copy.add(next, fresh).map(|()| copy));
        match written {
            Ok(copy) => {
                self.copy = Some(copy);
                self.next = Some(next + fresh.len());
                Vec::new()
            }
            Err(problem) => {
                self.next = None;
                vec![StateAnswer::Uncopied(problem.to_string())]
            }
        }
    }

    fn live(&mut self, lives: u32, count: usize, is_over: bool) -> Vec<StateAnswer> {
        let mut answers = Vec::new();
        if self.next.is_none() {
            match self.directory.journal() {
                Ok(journal) => self.next = Some(journal.len()),
                Err(problem) => return vec![StateAnswer::Uncopied(problem.to_string())],
            }
        }
        let whole = self.next == Some(count);
        answers.extend(self.next.filter(|next| *next < count).map(StateAnswer::Wants));
        // Whoever knows how the job ended knows its lives.
        let lives = if is_over && whole { lives } else { lives.saturating_add(LIVES_AHEAD) };
        let counter = match self.shown {
            Some((counter, _)) => Ok(counter),
            None => self.directory.alive().map(|alive| alive.map_or(0, |alive| alive.counter)),
        };
        let before = self.shown.map(|(_, lives)| lives);
        match counter.and_then(|counter| self.show(lives, counter, is_over)) {
            Ok(()) => answers.extend((before != Some(lives)).then_some(StateAnswer::Reserved(lives))),
            Err(problem) => answers.push(StateAnswer::Uncopied(problem.to_string())),
        }
        answers
    }

    fn show(&mut self, lives: u32, counter: u64, is_over: bool) -> Result<()> {
        let counter = counter + 1;
        let alive = AliveRecord { host: self.host, name: self.name.clone(), counter, lives, is_over };
        self.directory.show_alive(&alive)?;
        self.shown = Some((counter, lives));
        Ok(())
    }
}

/// A keeper on a thread of its own.
pub struct StateThread {
    tasks: Option<SyncSender<StateTask>>,
    answers: Receiver<StateAnswer>,
    woken: std::fs::File,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl StateThread {
    /// Begins; nothing is read or written before the first task.
    pub fn start(keeper: StateKeeper) -> crate::error::Result<Self> {
        let (tasks, waiting) = sync_channel(QUEUE_MAX);
        let (sender, answers) = channel();
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let thread = std::thread::Builder::new()
            .name("penstock-state".to_owned())
            .spawn(move || work(keeper, &waiting, &sender, &wake.into()))
            .map_err(|source| crate::error::ProcessError::System { call: "thread", source })?;
        Ok(Self { tasks: Some(tasks), answers, woken: woken.into(), thread: Some(thread) })
    }

    /// Has a task done, some time later. A full queue drops it: copies are asked for again, and claims made again.
    pub fn give(&self, task: StateTask) {
        let _ = self.tasks.as_ref().map(|tasks| tasks.try_send(task));
    }

    /// What to poll.
    pub fn number(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// Answers that are new.
    pub fn take(&mut self) -> Vec<StateAnswer> {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        self.answers.try_iter().collect()
    }

    /// Waits for what was given, but not for long. True: all of it was done.
    pub fn end(&mut self, patience: Duration) -> bool {
        self.tasks = None;
        let until = Instant::now() + patience;
        let Some(thread) = self.thread.take() else { return true };
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        thread.is_finished() && thread.join().is_ok()
    }
}

fn work(
    mut keeper: StateKeeper,
    tasks: &Receiver<StateTask>,
    answers: &Sender<StateAnswer>,
    wake: &std::fs::File,
) {
    while let Ok(task) = tasks.recv() {
        for answer in keeper.handle(task) {
            if answers.send(answer).is_err() {
                return;
            }
        }
        let _ = std::io::Write::write(&mut &*wake, b"!");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(place: &std::path::Path, host: u64) -> StateKeeper {
        let directory = StateDirectory::create(place).expect("opens");
        std::fs::write(place.join("hosts").join(format!("{host:016x}")), "").expect("writes");
        StateKeeper::new(directory, host, format!("gpu{host:02}"))
    }

    fn wish(hosts: &[u64], seen: Option<AliveRecord>) -> StateTask {
        StateTask::Begin { hosts: hosts.to_vec(), seen, continues: true }
    }

    fn begun(answers: &[StateAnswer]) -> Beginning {
        match answers {
            [StateAnswer::Begun(beginning)] => beginning.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn records(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_start_beside_a_living_job_is_refused_and_a_later_one_continues_its_journal() {
        let place = tempfile::tempdir().expect("a directory");
        let (mut first, mut second) = (keeper(place.path(), 1), keeper(place.path(), 2));
        assert_eq!(begun(&first.handle(wish(&[1], None))).number, 1);
        first.handle(StateTask::Lead(1 << 32));
        first.handle(StateTask::Alive(4, 0));
        first.handle(StateTask::Copy(0, records(&["zero", "one"])));
        let [StateAnswer::Alive(seen)] = &second.handle(wish(&[2], None))[..] else {
            panic!("the first is not seen")
        };
        first.handle(StateTask::Alive(4, 2));
        let refused = second.handle(wish(&[2], Some(seen.clone())));
        assert!(matches!(&refused[..], [StateAnswer::Refused(why)] if why.contains("gpu01")), "{refused:?}");
        let now = second.directory.alive().expect("reads");
        let continued = begun(&second.handle(wish(&[2], now)));
        assert_eq!((continued.number, continued.journal), (2, records(&["zero", "one"])));
        assert_eq!(continued.lives, 4 + LIVES_AHEAD, "what was not copied may have had more");
    }

    #[test]
    fn a_job_that_ended_in_order_has_used_no_more_lives_than_it_says() {
        let place = tempfile::tempdir().expect("a directory");
        let (mut first, mut second) = (keeper(place.path(), 1), keeper(place.path(), 2));
        first.handle(wish(&[1], None));
        first.handle(StateTask::Lead(1 << 32));
        first.handle(StateTask::Alive(1, 0));
        first.handle(StateTask::Copy(0, records(&["zero"])));
        first.handle(StateTask::Over(3, 1));
        assert_eq!(begun(&second.handle(wish(&[2], None))).lives, 3);
    }

    #[test]
    fn a_copy_that_failed_is_asked_for_again_from_where_it_ends() {
        let place = tempfile::tempdir().expect("a directory");
        let mut first = keeper(place.path(), 1);
        first.handle(wish(&[1], None));
        first.handle(StateTask::Lead(1 << 32));
        first.handle(StateTask::Alive(1, 0));
        first.handle(StateTask::Copy(0, records(&["zero"])));
        // Nobody can write where a directory is gone.
        std::fs::rename(place.path().join("journal"), place.path().join("elsewhere")).expect("moves");
        first.copy = None;
        let failed = first.handle(StateTask::Copy(1, records(&["one"])));
        assert!(matches!(&failed[..], [StateAnswer::Uncopied(_)]), "{failed:?}");
        assert!(first.handle(StateTask::Copy(2, records(&["two"]))).is_empty());
        std::fs::rename(place.path().join("elsewhere"), place.path().join("journal")).expect("moves");
        let wanted = first.handle(StateTask::Alive(1, 3));
        assert!(wanted.iter().any(|answer| matches!(answer, StateAnswer::Wants(1))), "{wanted:?}");
        first.handle(StateTask::Copy(1, records(&["one", "two"])));
        assert_eq!(first.directory.journal().expect("reads"), ["zero", "one", "two"]);
    }

    #[test]
    fn a_host_that_does_not_see_the_directory_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let unseen = keeper(place.path(), 1).handle(wish(&[1, 7], None));
        assert!(matches!(&unseen[..], [StateAnswer::Unseen(hosts)] if hosts == &[7]), "{unseen:?}");
    }
}
