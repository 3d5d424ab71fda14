//! The agent's conversation with the coordinator, and the coordinator's process: started, and started again when it is gone.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::complain;
use crate::coordinator::messages::{CoordinatorWord, Report};
use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::system;

/// A coordinator that says nothing for so long is taken for stuck and replaced.
const PATIENCE_MS: u64 = 5000;
/// Between two starts, so that one that cannot live is not started all the time.
const BETWEEN_STARTS_MS: u64 = 200;
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A report that has no answer yet.
struct Asked {
    number: u64,
    at_ms: u64,
}

/// The coordinator as the agent sees it.
#[derive(Default)]
pub(super) struct CoordinatorLink {
    /// Its process; 0 while there is none.
    pub(super) pid: i32,
    stream: Option<UnixStream>,
    heard: Vec<u8>,
    asked: Option<Asked>,
    started_ms: Option<u64>,
    /// Reports so far: the number of the newest is one less.
    pub(super) reports: u64,
    /// The report that was sent last; nothing when it has to be sent again, whatever it says.
    pub(super) told: Option<Report>,
    /// When to report again, even if nothing happened.
    pub(super) look_at_ms: Option<u64>,
}

impl CoordinatorLink {
    /// With a coordinator that has just been started, or will be.
    pub(super) fn open(directory: &JobDirectory) -> Self {
        let mut link = Self::default();
        link.keep_up(directory, system::now_ms());
        link
    }

    /// The descriptor to poll; negative while there is no coordinator.
    pub(super) fn number(&self) -> RawFd {
        self.stream.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether a report may be sent: there is a coordinator, and it owes no answer.
    pub(super) fn is_free(&self) -> bool {
        self.stream.is_some() && self.asked.is_none()
    }

    /// Starts a coordinator if there is none and it is time; when to try again, or to lose patience.
    pub(super) fn keep_up(&mut self, directory: &JobDirectory, now_ms: u64) -> Option<u64> {
        if self.stream.is_some() {
            let due_ms = self.asked.as_ref().map(|asked| asked.at_ms + PATIENCE_MS)?;
            if now_ms < due_ms {
                return Some(due_ms);
            }
            complain!("penstock-agent: the coordinator does not answer and is replaced");
            self.lose();
        }
        let again_ms = self.started_ms.map_or(0, |started| started + BETWEEN_STARTS_MS);
        if now_ms < again_ms {
            return Some(again_ms);
        }
        self.started_ms = Some(now_ms);
        match start(directory) {
            Ok((pid, stream)) => (self.pid, self.stream) = (pid, Some(stream)),
            Err(problem) => complain!("penstock-agent: {problem}"),
        }
        Some(now_ms + BETWEEN_STARTS_MS)
    }

    /// Says how things are. A coordinator that cannot be told is given up.
    pub(super) fn tell(&mut self, report: &Report) {
        let Some(stream) = self.stream.as_mut() else { return };
        let mut line = serde_json::to_vec(report).expect("a report is plain values");
        line.push(b'\n');
        if stream.write_all(&line).is_err() {
            self.lose();
            return;
        }
        self.reports = report.number + 1;
        self.asked = Some(Asked { number: report.number, at_ms: report.now_ms });
    }

    /// Takes in what the coordinator has said, without waiting.
    pub(super) fn listen(&mut self) {
        let Some(stream) = self.stream.as_ref() else { return };
        let mut piece = [0; 64 << 10];
        // SAFETY: the descriptor is open, and the place has so much room. Only this call does not block; writing may.
        let count = unsafe {
            libc::recv(stream.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len(), libc::MSG_DONTWAIT)
        };
        match usize::try_from(count) {
            Ok(count) if count > 0 => self.heard.extend_from_slice(&piece[..count]),
            Ok(_) => self.lose(),
            Err(_) if std::io::Error::last_os_error().kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.lose(),
        }
        if self.heard.len() > ANSWER_BYTES_MAX {
            self.lose();
        }
    }

    /// The next that has come.
    pub(super) fn hear(&mut self) -> Option<CoordinatorWord> {
        while let Some(end) = memchr::memchr(b'\n', &self.heard) {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let Some(word) = CoordinatorWord::read(&line) else { continue };
            if let CoordinatorWord::Orders(orders) = &word {
                self.asked.take_if(|asked| asked.number == orders.number);
            }
            return Some(word);
        }
        None
    }

    /// Whether orders are about the newest report: its answer, or given unasked after it.
    pub(super) fn is_newest(&self, number: u64) -> bool {
        number + 1 == self.reports
    }

    /// The coordinator is gone, or will be.
    pub(super) fn lose(&mut self) {
        if self.pid > 0 {
            // SAFETY: the number is the coordinator's: only we reap it, and forget it then.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        (self.stream, self.asked) = (None, None);
        self.heard.clear();
    }

    /// Its process was reaped.
    pub(super) fn note_reaped(&mut self) {
        self.pid = 0;
        self.lose();
    }
}

fn start(directory: &JobDirectory) -> Result<(i32, UnixStream)> {
    let (ours, theirs) = system::conversation()?;
    ours.set_write_timeout(Some(Duration::from_secs(2)))
        .map_err(|source| ProcessError::System { call: "setsockopt", source })?;
    let path = directory.file("agent.log");
    let log = File::options().create(true).append(true).open(&path);
    let log = log.map_err(|source| ProcessError::File { verb: "open", path, source })?;
    let number = theirs.as_raw_fd();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("penstock-agent").arg("coordinator").arg(directory.path()).arg(format!("link={number}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            system::die_with_parent();
            system::keep_over_exec(number)
        });
    }
    let child = command
        .spawn()
        .map_err(|source| ProcessError::Start { command: "penstock-agent".to_owned(), source })?;
    Ok((child.id() as i32, ours))
}
