//! A job in a pid namespace of its own: when its first process ends, the kernel ends all others, at once and without exception.
//!
//! Root needs nothing else. An ordinary user gets there through a user namespace in which every file and process keeps
//! its owner: the one user that is mapped is the caller, as itself. What runs inside has a /proc of its own.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{ProcessError, Result};
use crate::system;

/// What can be refused, in order.
const STEPS: [&str; 5] = [
    "map its user into a namespace",
    "make mounts of its own",
    "mount a /proc of its own",
    "start a session",
    "start the keeper",
];

/// The first process of a namespace: what to execute, and what it keeps open.
pub struct First<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments, the name first.
    pub words: &'a [String],
    /// Its standard error; there is no other input or output.
    pub log: &'a File,
    /// Descriptors that it inherits.
    pub passed: &'a [RawFd],
}

/// All that the new process needs, made before it exists: between clone and exec nothing may be allocated.
struct Prepared {
    program: CString,
    words: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
    users: CString,
    groups: CString,
    null: File,
    log: RawFd,
    passed: Vec<RawFd>,
    report: RawFd,
}

/// Starts the first process; its number as seen from here. It ends with whoever kills it, and takes all below along.
pub fn start(first: &First<'_>) -> Result<i32> {
    let (told, report) = system::pipe()?;
    let prepared = prepare(first, report.as_raw_fd())?;
    let spaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let mut pid = clone(spaces, &prepared, false);
    if pid < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
        pid = clone(spaces | libc::CLONE_NEWUSER, &prepared, true);
    }
    if pid < 0 {
        return Err(ProcessError::Isolate { step: "make a namespace", source: io::Error::last_os_error() });
    }
    drop(report);
    let mut answer = [0; 5];
    // Nothing is told when the program runs: the other end is closed by exec.
    match File::from(told).read(&mut answer) {
        Ok(5) => {
            // SAFETY: our own child, which ended.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            let [step, code @ ..] = answer;
            let source = io::Error::from_raw_os_error(i32::from_ne_bytes(code));
            Err(ProcessError::Isolate { step: STEPS[usize::from(step).min(STEPS.len() - 1)], source })
        }
        _ => Ok(pid),
    }
}

fn prepare(first: &First<'_>, report: RawFd) -> Result<Prepared> {
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|source| ProcessError::System { call: "exec", source: source.into() })
    };
    let words = first.words.iter().map(|word| text(word.as_bytes())).collect::<Result<Vec<_>>>()?;
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: both ask for a number.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    Ok(Prepared {
        program: text(first.program.as_os_str().as_bytes())?,
        words,
        pointers,
        users: text(format!("{user} {user} 1").as_bytes())?,
        groups: text(format!("{group} {group} 1").as_bytes())?,
        null: File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(|source| ProcessError::File { verb: "open", path: "/dev/null".into(), source })?,
        log: first.log.as_raw_fd(),
        passed: first.passed.to_vec(),
        report,
    })
}

/// As fork, into new namespaces.
fn clone(spaces: i32, prepared: &Prepared, mapped: bool) -> i32 {
    debug_assert_eq!(prepared.pointers.len(), prepared.words.len() + 1);
    let flags = i64::from(spaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has a copy of everything and uses no stack of ours.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid != 0 {
        return i32::try_from(pid).unwrap_or(-1);
    }
    let step = enter(prepared, mapped);
    let code = io::Error::last_os_error().raw_os_error().unwrap_or(0).to_ne_bytes();
    let answer = [step, code[0], code[1], code[2], code[3]];
    // SAFETY: the descriptor is open and the bytes are valid; then the child ends without running anything of ours.
    unsafe {
        libc::write(prepared.report, answer.as_ptr().cast(), answer.len());
        libc::_exit(126);
    }
}

/// In the new process: everything up to the program. Returns only with the number of the step that was refused.
fn enter(prepared: &Prepared, mapped: bool) -> u8 {
    // SAFETY: only plain system calls, on memory that was made before the process was; nothing is allocated.
    unsafe {
        if mapped
            && !(write(c"/proc/self/setgroups", c"deny")
                && write(c"/proc/self/uid_map", &prepared.users)
                && write(c"/proc/self/gid_map", &prepared.groups))
        {
            return 0;
        }
        let none = std::ptr::null();
        // What others mount later shows up here too, and nothing of ours there.
        if libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()) != 0 {
            return 1;
        }
        let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        if libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), quiet, none.cast()) != 0 {
            return 2;
        }
        if libc::setsid() < 0 {
            return 3;
        }
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigprocmask(libc::SIG_SETMASK, &signals, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for (from, to) in [(prepared.null.as_raw_fd(), 0), (prepared.null.as_raw_fd(), 1), (prepared.log, 2)]
        {
            libc::dup2(from, to);
        }
        for fd in &prepared.passed {
            libc::fcntl(*fd, libc::F_SETFD, 0);
        }
        libc::execv(prepared.program.as_ptr(), prepared.pointers.as_ptr());
    }
    4
}

/// One write to a file that is there.
///
/// # Safety
/// Safe between clone and exec; the strings have to live through the call.
unsafe fn write(path: &std::ffi::CStr, text: &std::ffi::CStr) -> bool {
    // SAFETY: both strings are valid, and the descriptor is ours.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return false;
        }
        let count = text.count_bytes();
        let written = libc::write(fd, text.as_ptr().cast(), count);
        let whole = usize::try_from(written).is_ok_and(|written| written == count);
        libc::close(fd);
        whole
    }
}
