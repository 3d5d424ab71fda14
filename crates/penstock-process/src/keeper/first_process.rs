//! The first process of a pid namespace, of a job that has a lease. No timer of its own can kill it, so it is nobody who has to be killed: it
//! only waits for the keeper, which is its child. When it ends, the kernel ends everybody else in the namespace.

use std::os::fd::AsRawFd;

use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::launcher::inherited_fds::InheritedFds;
use crate::system::{self, Signals, interest};

/// Makes the keeper a child of the first process, if it is that and its job may have a lease. Gives back what it inherited, in the
/// keeper; the first process does not return before the keeper is gone, and then with its exit code.
pub fn step_aside(
    directory: &JobDirectory,
    fds: InheritedFds,
) -> Result<std::result::Result<InheritedFds, i32>> {
    if std::process::id() != 1 || !directory.file("host.json").exists() {
        return Ok(Ok(fds));
    }
    // SAFETY: there is one thread, and both sides go on with what they have.
    let keeper = unsafe { libc::fork() };
    match keeper {
        0 => Ok(Ok(fds)),
        1.. => {
            // Others wait for the end of some of these.
            drop(fds);
            wait_for(keeper).map(Err)
        }
        _ => Err(ProcessError::System { call: "fork", source: std::io::Error::last_os_error() }),
    }
}

fn wait_for(keeper: i32) -> Result<i32> {
    let signals = Signals::catch(&system::OF_JOBS)?;
    loop {
        while let Some(reaped) = system::reap() {
            if reaped.pid == keeper {
                let killed = libc::WIFSIGNALED(reaped.status);
                return Ok(if killed {
                    128 + libc::WTERMSIG(reaped.status)
                } else {
                    libc::WEXITSTATUS(reaped.status)
                });
            }
        }
        system::poll(&mut [interest(signals.as_raw_fd(), libc::POLLIN)], None);
        for signal in signals.take().into_iter().filter(|signal| *signal != libc::SIGCHLD) {
            // SAFETY: the number is the keeper's, because only we reap it and we have not.
            unsafe { libc::kill(keeper, signal) };
        }
    }
}
