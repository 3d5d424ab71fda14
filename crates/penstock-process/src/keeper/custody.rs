//! Second copies of our ends of what workers write to, in the keeper's hands: what is in a pipe when the agent is killed is not lost.
//! A launcher that stays has third ones (`launcher/third_copies`), for when the keeper is killed with the agent.
//!
//! The agent hands every pipe over when it takes it itself. While it lives, it alone reads. When it was killed and all writers are gone, the
//! keeper reads what is left and puts it where the agent would have put it: once, because what was read is in no copy any more. Terminals are not handed over: their other end would never close.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::job::{Job, JobDirectory, Stream};
use crate::logs::pump::{Outputs, Remainder, Speaker};
use crate::system;
use crate::zygote::packet;

/// A pipe holds at most so much, in reads of the size below.
const READS_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;

/// Whose pipes they are.
#[derive(Serialize, Deserialize)]
struct Owner {
    role: usize,
    rank: u32,
    incarnation: u32,
}

/// Hands the pipes of a worker to keeper and launcher. If one does not take them, it has no copy, and all else is as before.
pub fn hand_over(holders: &[OwnedFd], speaker: Speaker, outputs: &Outputs) {
    let Outputs::Pipes([out, err]) = outputs else { return };
    let owner = Owner { role: speaker.role, rank: speaker.rank, incarnation: speaker.incarnation };
    let words = serde_json::to_vec(&owner).expect("plain numbers");
    for holder in holders {
        let _ = packet::send(holder, &words, &[out.as_fd(), err.as_fd()]);
    }
}

/// What a holder has: of each worker the pipes of its newest life.
#[derive(Default)]
pub struct Custody(BTreeMap<(usize, u32), (u32, Vec<OwnedFd>)>);

impl Custody {
    /// Takes what the agent hands over; false when it is gone.
    pub fn take(&mut self, agent: &OwnedFd) -> bool {
        loop {
            match packet::receive_fds(agent) {
                Ok(Some((words, fds))) => {
                    if let Ok(owner) = serde_json::from_slice::<Owner>(&words) {
                        self.0.insert((owner.role, owner.rank), (owner.incarnation, fds));
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Puts what is left in the pipes into the logs. Only when agent and writers are gone.
    pub fn finish(&mut self, directory: &JobDirectory, job: &Job) -> Result<()> {
        for ((role, rank), (incarnation, fds)) in std::mem::take(&mut self.0) {
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
        let (incarnation, fds) = custody.0.remove(&(0, 3)).unwrap();
        let mut left = Vec::new();
        rest_of(File::from(fds.into_iter().next().unwrap()), &mut left);
        assert_eq!((incarnation, left), (2, b"last words\n".to_vec()));
    }
}
