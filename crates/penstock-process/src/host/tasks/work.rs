//! One process of a task, from its start until nothing of it is left.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::system::lineage::{self, Process};
use crate::system::{self, interest};

/// What tells the processes of a question from those of another.
pub(in crate::host) const MARK: &str = "PENSTOCK_QUESTION";
/// How long a process may take to end well.
const GRACE: Duration = Duration::from_millis(200);
/// How often a process is looked at where the kernel does not tell of its end.
const LOOK: Duration = Duration::from_millis(20);
/// Rounds of ending what is left; each finds what was forked during the one before.
const ROUNDS_MAX: u32 = 50;
/// Words of a helper that are kept for people.
const WORDS_BYTES_MAX: usize = 4 << 10;

/// What is to be run.
pub(super) struct Program {
    pub(super) words: Vec<String>,
    /// Where; nothing for where we are.
    pub(super) folder: Option<String>,
    /// For its standard input: less than a pipe holds. Nothing for none, and then both its outputs are one.
    pub(super) input: Option<Vec<u8>>,
    pub(super) output_bytes_max: usize,
}

/// How it ended.
#[derive(Default)]
pub(super) struct Ending {
    /// As a shell says it: 128 and its number for a signal.
    pub(super) code: i32,
    pub(super) unstarted: Option<std::io::Error>,
    /// It was ended, because its time was over or nobody waited any more.
    pub(super) late: bool,
    pub(super) output: Vec<u8>,
    /// Of all output, what is not kept included.
    pub(super) digest: Vec<u8>,
    /// Bytes that are not kept.
    pub(super) cut: u64,
    /// The end of its standard error, where that is apart.
    pub(super) said: String,
}

/// One task under way.
pub(super) struct Work {
    pub(super) question: u64,
    pub(super) until: Instant,
    /// Its other end is closed when nobody waits any more.
    pub(super) cancel: OwnedFd,
    /// How many there are.
    pub(super) count: Arc<AtomicUsize>,
}

/// Tells the coordinator's loop that something is there.
pub(in crate::host) fn wake(wake: &std::fs::File) {
    let _ = (&*wake).write(b"!");
}

/// Equal for equal pieces.
pub(super) fn digest_of(pieces: &[&[u8]]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for piece in pieces {
        context.update(&(piece.len() as u64).to_le_bytes());
        context.update(piece);
    }
    context.finish().as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// What a process writes, as far as it is kept.
struct Output {
    kept: Vec<u8>,
    most: usize,
    cut: u64,
    digest: ring::digest::Context,
}

impl Output {
    fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most, cut: 0, digest: ring::digest::Context::new(&ring::digest::SHA256) }
    }

    /// Reads what is there; false at the end.
    fn read(&mut self, mut from: impl Read) -> bool {
        let mut piece = [0; 16 << 10];
        match from.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                let piece = &piece[..count];
                self.digest.update(piece);
                let room = (self.most - self.kept.len()).min(count);
                self.kept.extend_from_slice(&piece[..room]);
                self.cut += (count - room) as u64;
                true
            }
            Err(problem) => problem.kind() == std::io::ErrorKind::Interrupted,
        }
    }
}

impl Work {
    /// Runs it to its end, and to that of all that it started.
    pub(super) fn run(&self, program: Program) -> Ending {
        // What a command leaves behind becomes ours, so it can be found.
        let _ = system::become_subreaper();
        let ending = self.run_alone(program);
        self.end_orphans();
        self.count.fetch_sub(1, Ordering::SeqCst);
        ending
    }

    fn run_alone(&self, program: Program) -> Ending {
        let is_helper = program.input.is_some();
        let most = program.output_bytes_max;
        let (mut child, output, errors) = match self.start(program) {
            Ok(started) => started,
            Err(problem) => return Ending { unstarted: Some(problem), ..Ending::default() },
        };
        let handle = pidfd(child.id());
        let mut output = (output, Output::new(most));
        let mut errors = (errors, Output::new(WORDS_BYTES_MAX));
        let mut late = false;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let number = |file: &Option<std::fs::File>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            let mut interests = [
                interest(number(&output.0), libc::POLLIN),
                interest(number(&errors.0), libc::POLLIN),
                interest(handle.as_ref().map_or(-1, AsRawFd::as_raw_fd), libc::POLLIN),
                interest(self.cancel.as_raw_fd(), 0),
            ];
            let wait = if handle.is_some() { left } else { left.min(LOOK) };
            system::poll(&mut interests, Some(wait + Duration::from_millis(1)));
            for (place, stream) in [&mut output, &mut errors].into_iter().enumerate() {
                let is_ready = interests[place].revents != 0;
                if is_ready && stream.0.as_ref().is_some_and(|file| !stream.1.read(file)) {
                    stream.0 = None;
                }
            }
            let is_over = interests[2].revents != 0 || handle.is_none();
            if is_over && interests[0].revents == 0 && child.try_wait().is_ok_and(|status| status.is_some()) {
                break;
            }
            if left.is_zero() || interests[3].revents != 0 {
                late = true;
                end(&mut child);
                break;
            }
        }
        let status = child.wait().ok();
        let code = status.and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal)));
        let said = String::from_utf8_lossy(&errors.1.kept).into_owned();
        let Output { kept, cut, digest, .. } = output.1;
        let digest = if is_helper { Vec::new() } else { digest.finish().as_ref().to_vec() };
        Ending { code: code.unwrap_or(-1), unstarted: None, late, output: kept, digest, cut, said }
    }

    #[allow(clippy::type_complexity)]
    fn start(
        &self,
        program: Program,
    ) -> std::io::Result<(Child, Option<std::fs::File>, Option<std::fs::File>)> {
        let mut command = Command::new(&program.words[0]);
        command.args(&program.words[1..]).env(MARK, self.question.to_string());
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        let pipe = || system::pipe().map_err(std::io::Error::other);
        let (output, written) = pipe()?;
        let mut errors = None;
        match &program.input {
            Some(_) => {
                let (said, words) = pipe()?;
                errors = Some(std::fs::File::from(said));
                command.stdin(Stdio::piped()).stderr(words);
            }
            None => {
                command.stdin(Stdio::null()).stderr(written.try_clone()?);
            }
        }
        command.stdout(written);
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                system::begin_session()?;
                system::die_with_parent();
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), &program.input) {
            // Who does not read it ends without an answer, and that is told.
            let _ = stdin.write_all(input);
        }
        Ok((child, Some(output.into()), errors))
    }

    /// Ends what a command left behind and what became ours by that. Another task's processes say so themselves; when there is no other,
    /// whatever is left is of this one.
    fn end_orphans(&self) {
        let mark = self.question.to_string();
        for round in 0..ROUNDS_MAX {
            let alone = self.count.load(Ordering::SeqCst) <= 1;
            let ours =
                |pid: &i32| alone || lineage::variable_of(*pid, MARK).is_none_or(|found| found == mark);
            let orphans: Vec<i32> = lineage::strangers(&BTreeSet::new()).into_iter().filter(ours).collect();
            if orphans.is_empty() {
                return;
            }
            for pid in orphans {
                if let Some(process) = Process::read(pid) {
                    process.signal(libc::SIGKILL);
                }
                // SAFETY: a null status is allowed; only an own child of this number is reaped.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            }
            std::thread::sleep(Duration::from_millis(u64::from(round.min(10))));
        }
    }
}

/// Ends a process with all that descends from it: well, if it can.
fn end(child: &mut Child) {
    let Ok(leader) = i32::try_from(child.id()) else { return };
    // SAFETY: plain integers; the child leads a group of its own and is not reaped yet.
    unsafe { libc::kill(-leader, libc::SIGTERM) };
    let until = Instant::now() + GRACE;
    // It is not reaped meanwhile, so its number stays its own.
    while Instant::now() < until && Process::read(leader).is_some_and(|process| process.is_alive()) {
        std::thread::sleep(Duration::from_millis(2));
    }
    for process in lineage::descendants(&lineage::everyone(), leader, &BTreeSet::new()) {
        process.signal(libc::SIGKILL);
    }
    let _ = child.kill();
    // SAFETY: as above. What is left of the group is ended, also where its leader is over.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}

/// Tells when a process ends; nothing where the kernel cannot.
fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: plain integers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let number = i32::try_from(number).ok().filter(|number| *number >= 0)?;
    // SAFETY: the kernel just gave it to us.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
