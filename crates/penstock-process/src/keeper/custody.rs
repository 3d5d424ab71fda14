//! Second copies of our ends of what workers write to, in the keeper's hands: what is in a pipe when the agent is killed is not lost.
//! A launcher that stays has third ones (`launcher/third_copies`), for when the keeper is killed with the agent.
//!
//! The agent hands every pipe over when it takes it itself. While it lives, it alone reads. When it was killed and all writers are gone, the
//! keeper reads what is left and puts it where the agent would have put it: once, because what was read is in no copy any more. Terminals are not handed over: their other end would never close.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::job::{Job, JobDirectory, Stream};
use crate::logs::pump::in_hand::left_in_hand;
use crate::logs::pump::{Outputs, Remainder, Speaker};
use crate::system;
use crate::zygote::packet;

/// A pipe holds at most so much, in reads of the size below.
const READS_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;

/// What is handed over.
#[derive(Serialize, Deserialize)]
enum Handed {
    /// The memory of what the pump has in hand.
    InHand,
    /// The pipes of a worker.
    Pipes { role: usize, rank: u32, incarnation: u32 },
    /// How long ranks may run; nothing when none run, or nobody limits them.
    Lease(Option<LentTime>),
}

/// How long the ranks of a host may run unheard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentTime {
    /// When nobody of them may run any more.
    pub until_ms: u64,
    /// When the keeper ends them and the agent, if the agent has not.
    pub act_ms: u64,
}

/// Tells the keeper how long ranks may run.
pub fn lend(keeper: &OwnedFd, time: Option<LentTime>) {
    send(std::slice::from_ref(keeper), &Handed::Lease(time), &[]);
}

/// Shows the holders what the pump has in hand.
pub fn show_hand(holders: &[OwnedFd], in_hand: &OwnedFd) {
    send(holders, &Handed::InHand, &[in_hand.as_fd()]);
}

/// Hands the pipes of a worker to keeper and launcher. If one does not take them, it has no copy, and all else is as before.
pub fn hand_over(holders: &[OwnedFd], speaker: Speaker, outputs: &Outputs) {
    let Outputs::Pipes([out, err]) = outputs else { return };
    let Speaker { role, rank, incarnation } = speaker;
    send(holders, &Handed::Pipes { role, rank, incarnation }, &[out.as_fd(), err.as_fd()]);
}

fn send(holders: &[OwnedFd], handed: &Handed, fds: &[BorrowedFd<'_>]) {
    let words = serde_json::to_vec(handed).expect("plain numbers");
    for holder in holders {
        let _ = packet::send(holder, &words, fds);
    }
}

/// What a holder has.
#[derive(Default)]
pub struct Custody {
    /// Of each worker the pipes of its newest life.
    pipes: BTreeMap<(usize, u32), (u32, Vec<OwnedFd>)>,
    /// What the newest agent has read and perhaps not written down.
    in_hand: Option<File>,
    /// How long ranks may run.
    pub lease: Option<LentTime>,
}

impl Custody {
    /// Takes what the agent hands over; false when it is gone.
    pub fn take(&mut self, agent: &OwnedFd) -> bool {
        loop {
            match packet::receive_fds(agent) {
                Ok(Some((words, fds))) => match serde_json::from_slice(&words) {
                    Ok(Handed::InHand) => self.in_hand = fds.into_iter().next().map(File::from),
                    Ok(Handed::Pipes { role, rank, incarnation }) => {
                        self.pipes.insert((role, rank), (incarnation, fds));
                    }
                    Ok(Handed::Lease(time)) => self.lease = time,
                    Err(_) => {}
                },
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Puts what was in the agent's hands and what is left in the pipes into the logs. Only when agent and writers are gone.
    pub fn finish(&mut self, directory: &JobDirectory, job: &Job) -> Result<()> {
        if let Some(left) = self.in_hand.take().as_ref().and_then(left_in_hand) {
            let mut log = Remainder::open(directory, job, left.speaker);
            // Some of it may have been written down, or all.
            let written = usize::try_from(log.at(left.stream).saturating_sub(left.at)).unwrap_or(usize::MAX);
            log.append(left.stream, &left.bytes[written.min(left.bytes.len())..]);
        }
        for ((role, rank), (incarnation, fds)) in std::mem::take(&mut self.pipes) {
            let mut left: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
            for (bytes, fd) in left.iter_mut().zip(fds) {
                system::set_nonblocking(&fd)?;
                rest_of(File::from(fd), bytes);
            }
            if left.iter().any(|bytes| !bytes.is_empty()) {
                let mut log = Remainder::open(directory, job, Speaker { role, rank, incarnation });
                for (stream, bytes) in
                    Stream::ALL.into_iter().zip(&left).filter(|(_, bytes)| !bytes.is_empty())
                {
                    log.append(stream, bytes);
                }
            }
        }
        Ok(())
    }
}

fn rest_of(mut pipe: File, bytes: &mut Vec<u8>) {
    let mut piece = vec![0; READ_BYTES];
    for _ in 0..READS_MAX {
        match pipe.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_left_in_a_pipe_is_found_after_its_reader_and_writer_are_gone() {
        let (ours, theirs) = packet::pair().unwrap();
        let (out, out_writer) = system::pipe().unwrap();
        let (err, err_writer) = system::pipe().unwrap();
        let speaker = Speaker { role: 0, rank: 3, incarnation: 2 };
        let outputs = Outputs::Pipes([out, err]);
        hand_over(std::slice::from_ref(&theirs), speaker, &outputs);
        drop((outputs, theirs));
        File::from(out_writer).write_all(b"last words\n").unwrap();
        drop(err_writer);

        let mut custody = Custody::default();
        assert!(!custody.take(&ours));
        let (incarnation, fds) = custody.pipes.remove(&(0, 3)).unwrap();
        let mut left = Vec::new();
        rest_of(File::from(fds.into_iter().next().unwrap()), &mut left);
        assert_eq!((incarnation, left), (2, b"last words\n".to_vec()));
    }
}
