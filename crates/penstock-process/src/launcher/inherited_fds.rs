//! Descriptors that a role of the job inherits: they are named on its command line, as in `launcher=5`.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::{ProcessError, Result};
use crate::system::inherited;

/// Descriptors that are handed down from the launcher to the keeper to every agent.
#[derive(Default)]
pub struct InheritedFds {
    /// Ends with the keeper; for agents only.
    pub keeper: Option<OwnedFd>,
    /// Where second copies of pipes go; for agents only.
    pub custody: Option<OwnedFd>,
    /// Where third copies go, if the launcher stays.
    pub third_copies: Option<OwnedFd>,
    /// Ends with the launcher.
    pub launcher: Option<OwnedFd>,
    /// To the launcher's standard output.
    pub out: Option<OwnedFd>,
    /// To the launcher's standard error.
    pub err: Option<OwnedFd>,
    /// What the launcher's standard output is, if a terminal: to ask for its size.
    pub out_terminal: Option<OwnedFd>,
    /// The same for its standard error.
    pub err_terminal: Option<OwnedFd>,
    /// What the rank reads that has standard input.
    pub input: Option<OwnedFd>,
    /// Closed when the ranks are started.
    pub ready: Option<OwnedFd>,
    /// The /proc of the launcher, for a job in a namespace of its own.
    pub outside: Option<OwnedFd>,
    /// The namespace of processes of the launcher, for such a job.
    pub namespace: Option<OwnedFd>,
    /// To the agent; for coordinators only.
    pub link: Option<OwnedFd>,
}

impl InheritedFds {
    /// Takes over what words like `launcher=5` name.
    pub fn from_words(words: &[String]) -> Result<Self> {
        let mut fds = Self::default();
        for word in words {
            let parts = word.split_once('=').and_then(|(name, number)| Some((name, number.parse().ok()?)));
            let (name, number): (&str, RawFd) =
                parts.ok_or_else(|| ProcessError::Usage(format!("what is `{word}`?")))?;
            let fd = match name {
                "keeper" => &mut fds.keeper,
                "custody" => &mut fds.custody,
                "third_copies" => &mut fds.third_copies,
                "launcher" => &mut fds.launcher,
                "out" => &mut fds.out,
                "err" => &mut fds.err,
                "out_terminal" => &mut fds.out_terminal,
                "err_terminal" => &mut fds.err_terminal,
                "input" => &mut fds.input,
                "ready" => &mut fds.ready,
                "outside" => &mut fds.outside,
                "namespace" => &mut fds.namespace,
                "link" => &mut fds.link,
                _ => return Err(ProcessError::Usage(format!("there is no descriptor `{name}`"))),
            };
            *fd = Some(inherited(number)?);
        }
        Ok(fds)
    }

    fn named(&self) -> [(&'static str, &Option<OwnedFd>); 10] {
        [
            ("third_copies", &self.third_copies),
            ("launcher", &self.launcher),
            ("out", &self.out),
            ("err", &self.err),
            ("out_terminal", &self.out_terminal),
            ("err_terminal", &self.err_terminal),
            ("input", &self.input),
            ("ready", &self.ready),
            ("outside", &self.outside),
            ("namespace", &self.namespace),
        ]
    }

    /// What `from_words` understands, for those that are handed down.
    pub fn words(&self) -> Vec<String> {
        let there = self.named().into_iter().filter_map(|(name, fd)| Some((name, fd.as_ref()?.as_raw_fd())));
        there.map(|(name, number)| format!("{name}={number}")).collect()
    }

    /// Their numbers.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.named().into_iter().filter_map(|(_, fd)| Some(fd.as_ref()?.as_raw_fd())).collect()
    }
}
