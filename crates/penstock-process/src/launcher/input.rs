//! Standard input of a job: what the person types or pipes goes to the one rank that was asked for; else nobody reads it, and is told so.
//!
//! A pipe or a file is handed down as it is, so the rank reads it as it would without us. A terminal belongs to the launcher, which reads
//! it in the foreground only: a rank has a session of its own and would take the letters that are meant for the shell.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use crate::complain;
use crate::error::{ProcessError, Result};
use crate::job::state::State;
use crate::job::{Job, JobDirectory, Stream};
use crate::logs::pump::Listing;
use crate::logs::tail::last_lines;
use crate::system::terminal;
use crate::system::{self, interest};

/// How long a launcher in the background leaves its terminal alone before it looks again.
const BACKGROUND_PAUSE: Duration = Duration::from_millis(200);
/// What Python says when it finds the end of standard input where it wanted a line: `input()`, and `breakpoint()`.
const LAST_WORDS: [&str; 2] = ["EOFError", "bdb.BdbQuit"];
const HINT: &str = "`--stdin 0` gives it to rank 0";

/// What the rank that reads inherits; nothing when none does.
pub fn open(job: &Job) -> Result<Option<OwnedFd>> {
    if job.roles.iter().all(|role| role.stdin.is_none()) {
        std::thread::spawn(tell_if_unread);
        return Ok(None);
    }
    let given = std::io::stdin().as_fd().try_clone_to_owned();
    let given = given.map_err(|source| ProcessError::System { call: "dup", source })?;
    if !terminal::is_terminal(&given) {
        return Ok(Some(given));
    }
    let (theirs, ours) = system::pipe()?;
    std::thread::spawn(move || pass_on(&mut File::from(given), &mut File::from(ours)));
    Ok(Some(theirs))
}

/// Moves what is typed, until the person ends it or nobody is left who reads.
fn pass_on(typed: &mut File, to: &mut File) {
    let mut buffer = [0; 4096];
    loop {
        system::poll(&mut [interest(typed.as_raw_fd(), libc::POLLIN)], None);
        if is_in_background(typed) {
            std::thread::sleep(BACKGROUND_PAUSE);
            continue;
        }
        match typed.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) if to.write_all(&buffer[..count]).is_ok() => {}
            Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

fn is_in_background(terminal: &File) -> bool {
    // SAFETY: plain integers; a terminal that is not ours is answered with an error.
    let (foreground, ours) = unsafe { (libc::tcgetpgrp(terminal.as_raw_fd()), libc::getpgrp()) };
    foreground >= 0 && foreground != ours
}

/// Says it when something was piped into us that nobody will read. Only data counts: many start us with a pipe that stays empty.
fn tell_if_unread() {
    // SAFETY: open since the process began, and never closed: the guard keeps `File` from doing so.
    let given = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) });
    let kind = given.metadata().map(|about| about.file_type());
    if !kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file() || kind.is_socket()) {
        return;
    }
    system::poll(&mut [interest(given.as_raw_fd(), libc::POLLIN)], None);
    let mut waiting: libc::c_int = 0;
    // SAFETY: the place is valid to write to.
    let answer = unsafe { libc::ioctl(given.as_raw_fd(), libc::FIONREAD, &mut waiting) };
    if answer == 0 && waiting > 0 {
        complain!("note: standard input is not empty, and no rank reads it; {HINT}");
    }
}

/// A hint for a job that failed because it wanted to read.
pub fn hint(directory: &JobDirectory, state: &State) -> Option<String> {
    let job = directory.job().ok().filter(|job| job.roles.iter().all(|role| role.stdin.is_none()))?;
    let there = Listing::read(&directory.file("logs"));
    let failed = state.gangs.iter().flat_map(|gang| gang.workers.iter().map(move |worker| (gang, worker)));
    let mut failed = failed.filter(|(_, worker)| {
        !worker.asked && worker.exit.as_ref().is_some_and(|exit| exit.code.is_some_and(|code| code != 0))
    });
    let wanted = failed.any(|(gang, worker)| {
        let has_terminal = job.roles.iter().any(|role| role.name == gang.role && role.terminal);
        let stream = if has_terminal { Stream::Out } else { Stream::Err };
        let lines = last_lines(&there, &gang.role, worker, stream);
        lines.iter().any(|line| LAST_WORDS.iter().any(|words| line.starts_with(words)))
    });
    wanted.then(|| format!("ranks read nothing from standard input; {HINT}"))
}
