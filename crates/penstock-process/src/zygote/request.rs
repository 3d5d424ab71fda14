//! Births: workers that a zygote forks at our request, in batches, and the gate that they wait at.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::error::{ProcessError, Result};
use crate::system::{self, now_ms};
use crate::zygote::{Word, Zygote, packet};

/// A fork copies the tables of a whole process, which takes milliseconds, so several midwives share a gang. One has at most so many.
const BATCH_MAX: usize = 16;
/// Fewer are not worth a midwife, who is a fork herself.
const BATCH_LEAST: usize = 4;
/// A zygote that forks nobody for so long is stuck.
const PATIENCE_MS: u64 = 10_000;

/// What all workers of a request have in common.
#[derive(Debug, Clone, Serialize)]
pub struct Program {
    /// As it would be executed; what `ps` shows.
    pub command: Vec<String>,
    /// Script or module, and its arguments.
    pub argv: Vec<String>,
    /// Whether `argv` begins with a module.
    pub module: bool,
    /// Where it starts.
    pub directory: String,
    /// Limit of open files, soft and hard.
    pub files_max: (u64, u64),
}

/// A worker to be forked.
pub struct Unborn {
    /// Its place in the role.
    pub rank: u32,
    /// Variables beside those of the zygote.
    pub environment: Vec<(String, String)>,
    /// What is passed to it, by the names that the other side knows: `out`, `err`, `terminal`, `door`, `limit`, and leases.
    pub files: Vec<(&'static str, OwnedFd)>,
    /// Processors that it may run on; nothing for all of the zygote's.
    pub cpus: Vec<u32>,
    /// The limit that marks it, soft and hard, where the system lets us.
    pub mark: Option<(u64, u64)>,
}

/// Holds workers back until it is opened. Dropped unopened, they leave.
pub struct Gate {
    writing: OwnedFd,
    workers: usize,
}

impl Gate {
    /// Lets all of them begin.
    pub fn open(self) -> Result<()> {
        let go = vec![b'.'; self.workers];
        let written = File::from(self.writing).write_all(&go);
        written.map_err(|source| ProcessError::System { call: "write", source })
    }
}

/// What became of a request.
pub enum Birth {
    /// All wait at the gate.
    Born {
        /// Their processes, in order.
        pids: Vec<i32>,
        /// To be opened when they are known.
        gate: Gate,
    },
    /// None was born, or not all; those who were leave.
    Refused(String),
    /// Something more important happened.
    Interrupted,
}

impl Zygote {
    /// Has workers forked. Waits, but not for ever, and not once something is to be read from `urgent`.
    pub fn bear(&mut self, program: &Program, workers: &[Unborn], urgent: &[RawFd]) -> Birth {
        self.try_bear(program, workers, urgent).unwrap_or_else(|problem| Birth::Refused(problem.to_string()))
    }

    fn try_bear(&mut self, program: &Program, workers: &[Unborn], urgent: &[RawFd]) -> Result<Birth> {
        let (waiting, writing) = system::pipe()?;
        let gate = Gate { writing, workers: workers.len() };
        let first = self.requests + 1;
        let batches: Vec<&[Unborn]> = workers.chunks(batch_size(workers.len())).collect();
        for batch in &batches {
            self.requests += 1;
            self.ask(program, batch, &waiting)?;
        }
        let mut born: Vec<Option<Vec<i32>>> = vec![None; batches.len()];
        let mut due_ms = now_ms() + PATIENCE_MS;
        while born.iter().any(Option::is_none) {
            match self.hear()? {
                Some(Word::Born { request, born: pids }) if request >= first => {
                    born[usize::try_from(request - first).unwrap_or(usize::MAX)] = Some(pids);
                    due_ms = now_ms() + PATIENCE_MS;
                }
                Some(Word::Refused { request, refused }) if request >= first => {
                    return Ok(Birth::Refused(refused));
                }
                Some(_) => {}
                None if now_ms() >= due_ms => {
                    self.kill();
                    return Ok(Birth::Refused(format!("the zygote said nothing for {PATIENCE_MS} ms")));
                }
                None if self.is_interrupted(urgent, due_ms) => return Ok(Birth::Interrupted),
                None => {}
            }
        }
        Ok(Birth::Born { pids: born.into_iter().flatten().flatten().collect(), gate })
    }

    /// Waits for a word or for something urgent; whether it was that.
    fn is_interrupted(&self, urgent: &[RawFd], due_ms: u64) -> bool {
        let mut interests = vec![system::interest(self.number(), libc::POLLIN)];
        interests.extend(urgent.iter().map(|fd| system::interest(*fd, libc::POLLIN)));
        system::poll(&mut interests, Some(Duration::from_millis(due_ms.saturating_sub(now_ms()))));
        interests[1..].iter().any(|interest| interest.revents != 0)
    }

    fn ask(&self, program: &Program, batch: &[Unborn], waiting: &OwnedFd) -> Result<()> {
        let about = batch.iter().map(|worker| {
            let names: Vec<&str> = worker.files.iter().map(|(name, _)| *name).collect();
            let variables: std::collections::BTreeMap<_, _> = worker.environment.iter().cloned().collect();
            json!({"rank": worker.rank, "environment": variables, "files": names, "cpus": worker.cpus, "mark": worker.mark})
        });
        let mut whole = serde_json::to_value(program).expect("a program is plain values");
        whole["request"] = self.requests.into();
        whole["workers"] = about.collect();
        let body = memory_file(whole.to_string().as_bytes())?;
        let files = batch.iter().flat_map(|worker| worker.files.iter().map(|(_, file)| file.as_fd()));
        let fds: Vec<BorrowedFd<'_>> = [body.as_fd(), waiting.as_fd()].into_iter().chain(files).collect();
        packet::send(&self.talk, b"bear", &fds)
    }
}

/// How many workers a midwife gets: as many midwives as there are processors, within bounds.
fn batch_size(workers: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    workers.div_ceil(processors).clamp(BATCH_LEAST, BATCH_MAX)
}

/// Bytes as a file that is nowhere: a packet is short, an environment may be long.
fn memory_file(bytes: &[u8]) -> Result<File> {
    // SAFETY: the name is a valid string.
    let fd = unsafe { libc::memfd_create(c"penstock-request".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(ProcessError::System { call: "memfd_create", source: std::io::Error::last_os_error() });
    }
    // SAFETY: the kernel just gave it to us.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let written = file.write_all(bytes).and_then(|()| file.rewind());
    written.map(|()| file).map_err(|source| ProcessError::System { call: "write", source })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::zygote::Wish;

    /// A real zygote that is warm.
    fn warm() -> Zygote {
        let entry = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/penstock/process/zygote/__main__.py");
        let wish = Wish {
            interpreter: "python3".to_owned(),
            flags: vec!["-S".to_owned()],
            entry: entry.to_owned(),
            preload: Vec::new(),
            environment: Vec::new(),
            directory: "/".to_owned(),
        };
        system::become_subreaper().unwrap();
        let log = File::options().write(true).open("/dev/null").unwrap();
        let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
        let zygote = Zygote::start(&wish, log, limit).unwrap();
        let due_ms = now_ms() + 20_000;
        loop {
            match zygote.hear().unwrap() {
                Some(Word::Ready { .. }) => return zygote,
                Some(other) => panic!("not ready: {other:?}"),
                None => {
                    assert!(!zygote.is_interrupted(&[], due_ms) && now_ms() < due_ms, "not ready in time")
                }
            }
        }
    }

    fn program(text: &str) -> Program {
        Program {
            command: vec!["python3".to_owned()],
            argv: vec!["-c".to_owned(), text.to_owned()],
            module: false,
            directory: "/".to_owned(),
            files_max: (128, 256),
        }
    }

    /// Workers with a rank as their only variable, and the reading ends of their outputs.
    fn workers(count: u32) -> (Vec<Unborn>, Vec<File>) {
        let born = (0..count).map(|rank| {
            let (out, out_writer) = system::pipe().unwrap();
            let err_writer = File::options().write(true).open("/dev/null").unwrap();
            let environment = vec![("RANK".to_owned(), rank.to_string())];
            let files = vec![("out", out_writer), ("err", err_writer.into())];
            (Unborn { rank, environment, files, cpus: Vec::new(), mark: None }, File::from(out))
        });
        born.unzip()
    }

    fn wait_for(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the place is valid to write to.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        status
    }

    #[test]
    fn workers_of_many_batches_come_in_order_and_begin_when_the_gate_is_opened() {
        let mut zygote = warm();
        let (unborn, outputs) = workers(37);
        let text =
            "import os, resource; print(os.environ['RANK'], os.getpid(), *resource.getrlimit(7), end='')";
        let Birth::Born { pids, gate } = zygote.bear(&program(text), &unborn, &[]) else {
            panic!("nobody was born");
        };
        drop(unborn);
        gate.open().unwrap();
        for ((rank, pid), mut output) in pids.iter().enumerate().zip(outputs) {
            let mut said = String::new();
            output.read_to_string(&mut said).unwrap();
            assert_eq!(said, format!("{rank} {pid} 128 256"));
            assert_eq!(wait_for(*pid), 0);
        }
        zygote.kill();
        wait_for(zygote.pid);
    }

    #[test]
    fn a_zygote_that_does_nothing_does_not_keep_us_from_what_is_urgent() {
        let mut zygote = warm();
        // SAFETY: the number is the zygote's, which was not reaped.
        unsafe { libc::kill(zygote.pid, libc::SIGSTOP) };
        let (urgent, mut news) =
            system::pipe().map(|(reading, writing)| (reading, File::from(writing))).unwrap();
        news.write_all(b"!").unwrap();
        let (unborn, _outputs) = workers(3);
        let birth = zygote.bear(&program("print(1)"), &unborn, &[urgent.as_raw_fd()]);
        assert!(matches!(birth, Birth::Interrupted));
        zygote.kill();
        wait_for(zygote.pid);
        let birth = zygote.bear(&program("print(1)"), &unborn, &[]);
        assert!(matches!(birth, Birth::Refused(_)), "nobody is born of the dead");
    }
}
