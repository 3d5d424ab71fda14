//! How a process ended, in words that a person and a program understand.

use serde::{Deserialize, Serialize};

use crate::system::signal_name;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exit {
    /// What it returned, when it ended by itself.
    pub code: Option<i32>,
    /// What killed it, when something did.
    pub signal: Option<i32>,
    /// Whether it left a core file.
    pub core: bool,
    /// Whether the kernel ran out of memory and chose a victim while it lived; with SIGKILL, the likely reason.
    pub memory_exhausted: bool,
}

impl Exit {
    /// Reads a raw status of `wait`.
    pub fn from_status(status: i32, memory_exhausted: bool) -> Self {
        let signalled = libc::WIFSIGNALED(status);
        let signal = signalled.then(|| libc::WTERMSIG(status));
        Self {
            code: (!signalled).then(|| libc::WEXITSTATUS(status)),
            signal,
            core: signalled && libc::WCOREDUMP(status),
            memory_exhausted: memory_exhausted && signal == Some(libc::SIGKILL),
        }
    }

    /// With what its own group counted: a rank whose worker was killed for want of memory fails in its own way because of it.
    pub fn in_group(self, killed: bool) -> Self {
        Self { memory_exhausted: killed && !self.is_success(), ..self }
    }

    /// It says by itself that it left because it had to, and wants to go on: BSD's "try again later".
    pub fn wants_to_go_on(&self) -> bool {
        self.code == Some(75)
    }

    /// SIGTERM ended it, or a shell says that of what it ran.
    pub fn is_terminated(&self) -> bool {
        self.shell_code() == 128 + libc::SIGTERM
    }

    /// It did what it should.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// What a shell would show: the code, or 128 and the signal.
    pub fn shell_code(&self) -> i32 {
        self.code.or_else(|| self.signal.map(|signal| 128 + signal)).unwrap_or(1)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(out, "exited with code {code}"),
            (None, Some(signal)) => write!(out, "was killed by {}", signal_name(signal)),
            (None, None) => write!(out, "ended in an unknown way"),
        }?;
        if self.core {
            write!(out, " (core dumped)")?;
        }
        if self.memory_exhausted {
            write!(out, " (the kernel was out of memory)")?;
        }
        Ok(())
    }
}

/// How often the kernel chose a victim for want of memory since it started; 0 where it does not say.
pub fn memory_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_a_signal_and_a_core_are_told_apart() {
        let code = Exit::from_status(3 << 8, true);
        let killed = Exit::from_status(libc::SIGKILL, true);
        let crashed = Exit::from_status(libc::SIGSEGV | 0x80, true);

        assert_eq!((code.to_string(), code.shell_code()), ("exited with code 3".to_owned(), 3));
        assert_eq!(killed.to_string(), "was killed by SIGKILL (the kernel was out of memory)");
        assert_eq!(
            (crashed.to_string(), crashed.shell_code()),
            ("was killed by SIGSEGV (core dumped)".to_owned(), 139)
        );
    }
}
