//! Requests to a zygote: workers that it forks for us, in batches, and the gate that they wait at.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::error::{ProcessError, Result};
use crate::system::{self, now_ms};
use crate::zygote::{Zygote, ZygoteMessage, packet};

/// A fork copies the tables of a whole process, which takes milliseconds, so several *forkers*, children of the
/// zygote, share a gang. One has at most so many.
const BATCH_MAX: usize = 16;
/// Fewer are not worth a forker, which is a fork itself.
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
pub struct WorkerFork {
    /// Its place in the role.
    pub rank: u32,
    /// Variables beside those of the zygote.
    pub environment: Vec<(String, String)>,
    /// Variables of the zygote that it does not get.
    pub removed: Vec<String>,
    /// What is passed to it, by the names that the other side knows: `out`, `err`, `terminal`, `door`, `limit`, and locks.
    pub files: Vec<(&'static str, OwnedFd)>,
    /// Processors that it may run on; nothing for all of the zygote's.
    pub cpus: Vec<u32>,
    /// The limit that marks it, soft and hard, where the system lets us.
    pub mark: Option<(u64, u64)>,
}

/// Holds workers back until it is opened. Dropped unopened, they leave.
pub struct StartGate {
    writing: OwnedFd,
    workers: usize,
}

impl StartGate {
    /// Lets all of them begin.
    pub fn open(self) -> Result<()> {
        let go = vec![b'.'; self.workers];
        let written = File::from(self.writing).write_all(&go);
        written.map_err(|source| ProcessError::System { call: "write", source })
    }
}

/// What became of a request.
pub enum ForkOutcome {
    /// All wait at the gate.
    Forked {
        /// Their processes, in order.
        pids: Vec<i32>,
        /// To be opened when they are known.
        gate: StartGate,
    },
    /// None was forked, or not all; those who were leave.
    Refused(String),
    /// Something more important happened.
    Interrupted,
}

impl Zygote {
    /// Has workers forked. Waits, but not for ever, and not once something is to be read from `urgent`.
    pub fn fork(&mut self, program: &Program, workers: &[WorkerFork], urgent: &[RawFd]) -> ForkOutcome {
        self.try_fork(program, workers, urgent)
            .unwrap_or_else(|problem| ForkOutcome::Refused(problem.to_string()))
    }

    fn try_fork(
        &mut self,
        program: &Program,
        workers: &[WorkerFork],
        urgent: &[RawFd],
    ) -> Result<ForkOutcome> {
        let (waiting, writing) = system::pipe()?;
        let gate = StartGate { writing, workers: workers.len() };
        let first = self.requests + 1;
        let batches: Vec<&[WorkerFork]> = workers.chunks(batch_size(workers.len())).collect();
        for batch in &batches {
            self.requests += 1;
            self.ask(program, batch, &waiting)?;
        }
        let mut forked: Vec<Option<Vec<i32>>> = vec![None; batches.len()];
        let mut due_ms = now_ms() + PATIENCE_MS;
        while forked.iter().any(Option::is_none) {
            match self.hear()? {
                Some(ZygoteMessage::Forked { request, pids }) if request >= first => {
                    forked[usize::try_from(request - first).unwrap_or(usize::MAX)] = Some(pids);
                    due_ms = now_ms() + PATIENCE_MS;
                }
                Some(ZygoteMessage::Refused { request, refused }) if request >= first => {
                    return Ok(ForkOutcome::Refused(refused));
                }
                Some(_) => {}
                None if now_ms() >= due_ms => {
                    self.kill();
                    return Ok(ForkOutcome::Refused(format!("the zygote said nothing for {PATIENCE_MS} ms")));
                }
                None if self.is_interrupted(urgent, due_ms) => return Ok(ForkOutcome::Interrupted),
                None => {}
            }
        }
        Ok(ForkOutcome::Forked { pids: forked.into_iter().flatten().flatten().collect(), gate })
    }

    /// Waits for a word or for something urgent; whether it was that.
    fn is_interrupted(&self, urgent: &[RawFd], due_ms: u64) -> bool {
        let mut interests = vec![system::interest(self.number(), libc::POLLIN)];
        interests.extend(urgent.iter().map(|fd| system::interest(*fd, libc::POLLIN)));
        system::poll(&mut interests, Some(Duration::from_millis(due_ms.saturating_sub(now_ms()))));
        interests[1..].iter().any(|interest| interest.revents != 0)
    }

    fn ask(&self, program: &Program, batch: &[WorkerFork], waiting: &OwnedFd) -> Result<()> {
        let about = batch.iter().map(|worker| {
            let names: Vec<&str> = worker.files.iter().map(|(name, _)| *name).collect();
            let removed = worker.removed.iter().map(|name| (name, None));
            let set = worker.environment.iter().map(|(name, value)| (name, Some(value)));
            let variables: std::collections::BTreeMap<_, _> = removed.chain(set).collect();
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

/// How many workers a forker gets: as many forkers as there are processors, within bounds.
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
    use crate::zygote::ZygoteSpec;

    /// A real zygote that is warm.
    fn warm() -> Zygote {
        let entry = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/penstock/process/zygote/__main__.py");
        let spec = ZygoteSpec {
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
        let zygote = Zygote::start(&spec, log, limit).unwrap();
        let due_ms = now_ms() + 20_000;
        loop {
            match zygote.hear().unwrap() {
                Some(ZygoteMessage::Ready { .. }) => return zygote,
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
    fn workers(count: u32) -> (Vec<WorkerFork>, Vec<File>) {
        let forks = (0..count).map(|rank| {
            let (out, out_writer) = system::pipe().unwrap();
            let err_writer = File::options().write(true).open("/dev/null").unwrap();
            let environment = vec![("RANK".to_owned(), rank.to_string())];
            let files = vec![("out", out_writer), ("err", err_writer.into())];
            (
                WorkerFork { rank, environment, removed: Vec::new(), files, cpus: Vec::new(), mark: None },
                File::from(out),
            )
        });
        forks.unzip()
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
        let (forks, outputs) = workers(37);
        let text =
            "import os, resource; print(os.environ['RANK'], os.getpid(), *resource.getrlimit(7), end='')";
        let ForkOutcome::Forked { pids, gate } = zygote.fork(&program(text), &forks, &[]) else {
            panic!("nobody was forked");
        };
        drop(forks);
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
        let (forks, _outputs) = workers(3);
        let outcome = zygote.fork(&program("print(1)"), &forks, &[urgent.as_raw_fd()]);
        assert!(matches!(outcome, ForkOutcome::Interrupted));
        zygote.kill();
        wait_for(zygote.pid);
        let outcome = zygote.fork(&program("print(1)"), &forks, &[]);
        assert!(matches!(outcome, ForkOutcome::Refused(_)), "nobody is forked from a dead zygote");
    }
}
