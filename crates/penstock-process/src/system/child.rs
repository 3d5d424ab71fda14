//! Starting a program as a child that is born inside its control group.
//!
//! The standard library knows no control groups: a child has to write itself into one between fork and exec, and the kernel then
//! waits for all processors. `clone3` puts it there while it is made. The standard library also waits for each child until its
//! program runs; here that is a step of its own ([`Child::confirm`]), so that several children begin side by side.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use crate::error::{ProcessError, Result};
use crate::system::pipe;

/// Of Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

unsafe extern "C" {
    /// The variables of this process, as `execvp` hands them on.
    static mut environ: *const *const libc::c_char;
}

/// What `clone3` takes, as of Linux 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A program to start.
pub struct ChildProgram {
    /// Its name, for people.
    command: String,
    /// Its name, which is looked for on its own PATH, and its arguments.
    words: Vec<CString>,
    /// Variables of ours that it does not get.
    without: Vec<String>,
    /// All of its variables, as `NAME=value`.
    environment: Vec<CString>,
    /// Where it starts; nothing for where we are.
    directory: Option<CString>,
    /// Standard input, output and error.
    streams: [OwnedFd; 3],
    /// The directory of its control group, where it can be born there, and the file to write it into where it cannot.
    group: Option<(Option<File>, File)>,
}

impl ChildProgram {
    /// Without variables.
    pub fn new(words: &[String], streams: [OwnedFd; 3]) -> Result<Self> {
        let command = words.first().cloned().unwrap_or_default();
        let words = words.iter().map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<std::result::Result<_, _>>();
        let words = words.map_err(|source| unstarted(&command, source.into()))?;
        Ok(Self {
            command,
            words,
            without: Vec::new(),
            environment: Vec::new(),
            directory: None,
            streams,
            group: None,
        })
    }

    /// Leaves out variables of ours; to be said before the variables.
    pub fn without(mut self, names: Vec<String>) -> Self {
        self.without = names;
        self
    }

    /// With our own variables, and further ones that win over them; of those, the later win.
    pub fn environment(mut self, further: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        self.without.iter().for_each(|name| drop(all.remove(std::ffi::OsStr::new(name))));
        all.extend(further.into_iter().map(|(name, value)| (name.into(), value.into())));
        let joined = all.into_iter().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            CString::new(name.into_vec())
        });
        let joined = joined.collect::<std::result::Result<_, _>>();
        self.environment = joined.map_err(|source| unstarted(&self.command, source.into()))?;
        Ok(self)
    }

    /// Starts elsewhere.
    pub fn directory(mut self, path: &str) -> Result<Self> {
        let path = CString::new(path).map_err(|source| unstarted(&self.command, source.into()))?;
        self.directory = Some(path);
        Ok(self)
    }

    /// Belongs to a control group, given as its directory, where it can be born there, and as the file to write a process into.
    pub fn group(mut self, group: Option<(Option<File>, File)>) -> Self {
        self.group = group;
        self
    }

    /// Starts it. In the child, `prepare` is called before the program is executed.
    ///
    /// # Safety
    /// `prepare` runs between fork and exec: it may only make calls that are allowed there, and must not allocate.
    pub unsafe fn start(self, prepare: impl Fn() -> io::Result<()>) -> Result<Child> {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (words, environment) = (pointers(&self.words), pointers(&self.environment));
        let (told, report) = pipe()?;
        let group = self.group.as_ref();
        let folder = group.and_then(|(folder, _)| folder.as_ref());
        let born_inside = folder.map_or(-1, clone_into);
        let pid = if born_inside >= 0 {
            born_inside
        } else {
            // SAFETY: the child only does what is allowed between fork and exec.
            unsafe { libc::fork() }
        };
        if pid < 0 {
            return Err(unstarted(&self.command, io::Error::last_os_error()));
        }
        if pid == 0 {
            let door = group.filter(|_| born_inside < 0).map(|(_, door)| door);
            let problem = self.become_program(&words, &environment, door, prepare);
            let code = problem.raw_os_error().unwrap_or(libc::EINVAL).to_ne_bytes();
            // SAFETY: the descriptor is open and the bytes are valid; the child ends without running anything of ours.
            unsafe {
                libc::write(report.as_raw_fd(), code.as_ptr().cast(), code.len());
                libc::_exit(126);
            }
        }
        Ok(Child { command: self.command, pid, told: told.into() })
    }

    /// In the child: everything up to the program. Returns only when something was refused.
    fn become_program(
        &self,
        words: &[*const libc::c_char],
        environment: &[*const libc::c_char],
        door: Option<&File>,
        prepare: impl Fn() -> io::Result<()>,
    ) -> io::Error {
        // SAFETY: plain system calls on memory that was made before the child was; nothing is allocated.
        unsafe {
            for (stream, number) in self.streams.iter().zip(0..) {
                if libc::dup2(stream.as_raw_fd(), number) < 0 {
                    return io::Error::last_os_error();
                }
            }
            if let Some(directory) = &self.directory {
                if libc::chdir(directory.as_ptr()) < 0 {
                    return io::Error::last_os_error();
                }
            }
            if let Some(door) = door {
                // Zero is whoever writes. Without the group a program runs as well, so a refusal is no error.
                libc::write(door.as_raw_fd(), c"0".as_ptr().cast(), 1);
            }
            if let Err(problem) = prepare() {
                return problem;
            }
            // The program is looked for where its own PATH says.
            environ = environment.as_ptr();
            libc::execvp(words[0], words.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn unstarted(command: &str, source: io::Error) -> ProcessError {
    ProcessError::Start { command: command.to_owned(), source }
}

/// As fork, into a control group; negative where that is not possible: an old kernel, a sandbox, a group that is not ours.
fn clone_into(folder: &File) -> libc::pid_t {
    let arguments = CloneArguments {
        flags: CLONE_INTO_CGROUP,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: folder.as_raw_fd() as u64,
        ..CloneArguments::default()
    };
    // SAFETY: the arguments are as long as we say. Without CLONE_VM the child has a copy of everything and uses no stack of ours.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<CloneArguments>()) };
    i32::try_from(pid).unwrap_or(-1)
}

/// Whether a child that is born in a control group lives: one is made that ends at once.
pub fn survives_birth(folder: &File) -> bool {
    let pid = clone_into(folder);
    if pid == 0 {
        // SAFETY: ends the child without running anything of ours.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: our own child, which ends by itself; the place is valid to write to.
    pid > 0 && unsafe { libc::waitpid(pid, &mut status, 0) } == pid && status == 0
}

/// A child whose program may not run yet.
pub struct Child {
    /// Its name, for people.
    command: String,
    /// Its process.
    pub pid: i32,
    /// Says why the program cannot run; ends when it does.
    told: File,
}

impl Child {
    /// Waits until the program runs; why it cannot. Then the child is gone, and reaped.
    pub fn confirm(mut self) -> Result<()> {
        let mut code = [0; 4];
        match self.told.read_exact(&mut code) {
            Ok(()) => {
                // SAFETY: our own child, which ends and was not reaped.
                unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
                Err(unstarted(&self.command, io::Error::from_raw_os_error(i32::from_ne_bytes(code))))
            }
            // It was closed by exec, or with a child that was killed: then its end is noted like any other.
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn null() -> OwnedFd {
        File::options().read(true).write(true).open("/dev/null").unwrap().into()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn program(said: &[&str]) -> (ChildProgram, File) {
        let (reading, writing) = pipe().unwrap();
        let program = ChildProgram::new(&words(said), [null(), writing, null()]).unwrap();
        (program, reading.into())
    }

    fn run(program: ChildProgram, mut output: File) -> String {
        // SAFETY: nothing is done.
        let child = unsafe { program.start(|| Ok(())) }.unwrap();
        let pid = child.pid;
        child.confirm().unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        // SAFETY: our own child, which was not reaped.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        text
    }

    #[test]
    fn a_program_is_found_on_its_own_path_and_has_its_own_variables_and_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/sh", folder.path().join("penstock-test-shell")).unwrap();
        let (program, output) = program(&["penstock-test-shell", "-c", "echo $OWN $(pwd)"]);
        let variables = [("PATH", folder.path().to_str().unwrap()), ("OWN", "first"), ("OWN", "last")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let program = program.environment(variables).unwrap().directory("/").unwrap();
        assert_eq!(run(program, output), "last /\n");
    }

    #[test]
    fn what_cannot_be_executed_or_prepared_says_why_and_is_gone() {
        for (said, refuses, kind) in [
            ("/nowhere/at/all", false, ErrorKind::NotFound),
            ("/", false, ErrorKind::PermissionDenied),
            ("/bin/true", true, ErrorKind::ResourceBusy),
        ] {
            let (program, _output) = program(&[said]);
            // SAFETY: makes a number an error.
            let child = unsafe {
                program
                    .start(|| if refuses { Err(io::Error::from_raw_os_error(libc::EBUSY)) } else { Ok(()) })
            };
            let child = child.unwrap();
            let pid = child.pid;
            let Err(ProcessError::Start { source, .. }) = child.confirm() else { panic!("{said} runs") };
            assert_eq!(source.kind(), kind, "{said}");
            // SAFETY: asks about a child that is reaped already.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) }, -1);
        }
    }

    #[test]
    fn a_group_that_nobody_can_be_born_into_is_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let door = folder.path().join("cgroup.procs");
        let (program, output) = program(&["/bin/sh", "-c", "echo runs"]);
        let program = program.environment([]).unwrap();
        let group = (File::open(folder.path()).ok(), File::create(&door).unwrap());
        assert_eq!(run(program.group(Some(group)), output), "runs\n");
        assert_eq!(std::fs::read_to_string(door).unwrap(), "0");
    }

    #[test]
    fn a_word_with_a_zero_in_it_is_refused_before_anything_is_started() {
        assert!(ChildProgram::new(&words(&["a\0b"]), [null(), null(), null()]).is_err());
    }
}
