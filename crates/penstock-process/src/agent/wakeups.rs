//! What wakes the agent, beside the coordinator, the launcher and its zygotes: signals, the keeper's end, and the control socket.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::agent::control_socket::StopRequest;
use crate::error::Result;
use crate::system::{self, Signals};

/// The agent's ends.
pub(super) struct Wakeups {
    pub(super) signals: Signals,
    /// Ends when the keeper does.
    pub(super) keeper: Option<File>,
    /// The control thread has put something into `stops`.
    pub(super) woken: File,
    /// Requests to stop that came through the control socket.
    pub(super) stops: Receiver<StopRequest>,
}

/// The control thread's ends.
pub(super) struct Waker {
    /// Wakes the agent.
    pub(super) wake: File,
    /// Where requests to stop go.
    pub(super) stops: Sender<StopRequest>,
}

impl Wakeups {
    /// Both ends.
    pub(super) fn open(signals: Signals, keeper: Option<OwnedFd>) -> Result<(Self, Waker)> {
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let (sender, stops) = channel();
        let wakeups = Self { signals, keeper: keeper.map(File::from), woken: woken.into(), stops };
        Ok((wakeups, Waker { wake: wake.into(), stops: sender }))
    }

    /// Forgets that the control thread woke us.
    pub(super) fn clear(&self) {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    }
}
