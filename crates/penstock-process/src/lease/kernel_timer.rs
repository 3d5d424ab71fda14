//! A timer in the kernel that kills the process which has it. It needs nobody: it fires while the process is stopped, frozen or busy.
//!
//! The first process of a pid namespace survives it, as it survives every signal from inside, so that one must never rely on it.

use std::io;

use crate::error::{ProcessError, Result};
use crate::system::now_ms;

/// Neither a fork nor what is executed later has it.
#[derive(Debug)]
pub struct KernelTimer {
    id: libc::timer_t,
    until_ms: Option<u64>,
}

impl KernelTimer {
    /// A timer that is not armed.
    pub fn open() -> Result<Self> {
        // SAFETY: zero is a valid event; both places live until the call returns.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            let mut id: libc::timer_t = std::ptr::null_mut();
            if libc::timer_create(libc::CLOCK_BOOTTIME, &mut event, &mut id) != 0 {
                return Err(failed("timer_create"));
            }
            Ok(Self { id, until_ms: None })
        }
    }

    /// Kills us at this moment, on the clock of [`now_ms`], instead of any earlier one. At once, if it is over.
    pub fn arm(&mut self, until_ms: u64) -> Result<()> {
        // A moment of zero would disarm it.
        if self.until_ms != Some(until_ms) {
            self.set(until_ms.max(1))?;
            self.until_ms = Some(until_ms);
        }
        Ok(())
    }

    /// Kills nobody.
    pub fn disarm(&mut self) -> Result<()> {
        if self.until_ms.is_some() {
            self.set(0)?;
            self.until_ms = None;
        }
        Ok(())
    }

    /// When it kills us.
    pub fn until_ms(&self) -> Option<u64> {
        self.until_ms
    }

    /// How long until then.
    pub fn left_ms(&self) -> Option<u64> {
        self.until_ms.map(|until_ms| until_ms.saturating_sub(now_ms()))
    }

    fn set(&self, until_ms: u64) -> Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at = libc::timespec {
            tv_sec: i64::try_from(until_ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(until_ms % 1000).unwrap_or(0) * 1_000_000,
        };
        let wanted = libc::itimerspec { it_interval: never, it_value: at };
        // SAFETY: the timer is ours, and the value lives until the call returns.
        let answer =
            unsafe { libc::timer_settime(self.id, libc::TIMER_ABSTIME, &wanted, std::ptr::null_mut()) };
        if answer == 0 { Ok(()) } else { Err(failed("timer_settime")) }
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is ours, and nobody uses it any more.
        unsafe { libc::timer_delete(self.id) };
    }
}

fn failed(call: &'static str) -> ProcessError {
    ProcessError::System { call, source: io::Error::last_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forks a process that arms a timer and then does what it is given; its status, and when it ended.
    fn fate(in_ms: u64, act: impl Fn(&mut KernelTimer)) -> (i32, u64) {
        let until_ms = now_ms() + in_ms;
        // SAFETY: the child makes plain calls and ends without running anything of the test.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut timer = KernelTimer::open().unwrap();
            timer.arm(until_ms).unwrap();
            act(&mut timer);
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        // SAFETY: our own child; the place is valid to write to.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        (status, now_ms().saturating_sub(until_ms))
    }

    fn stop() {
        // SAFETY: stops ourselves.
        unsafe { libc::raise(libc::SIGSTOP) };
    }

    #[test]
    fn a_stopped_process_is_killed_at_the_moment() {
        let (status, late_ms) = fate(60, |_| stop());
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        assert!(late_ms < 50, "{late_ms} ms late");
    }

    #[test]
    fn a_timer_that_is_pushed_on_or_disarmed_kills_nobody_before() {
        let doze = |ms: u64| {
            system_poll(ms);
        };
        let (status, _) = fate(40, |timer| {
            timer.arm(now_ms() + 200).unwrap();
            doze(100);
            timer.disarm().unwrap();
            doze(150);
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
    }

    #[test]
    fn a_moment_that_is_over_kills_at_once() {
        let (status, _) = fate(0, |timer| {
            timer.arm(1).unwrap();
            system_poll(2000);
        });
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
    }

    fn system_poll(ms: u64) {
        crate::system::poll(&mut [], Some(std::time::Duration::from_millis(ms)));
    }
}
