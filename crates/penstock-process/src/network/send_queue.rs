//! Frames that wait for a slow peer: bounded, so that back-pressure reaches whoever sends.

use std::collections::VecDeque;

/// Whole frames in the order in which they were sent; of the first, some may have left.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    frames: VecDeque<Vec<u8>>,
    /// How much of the first has left.
    left_bytes: usize,
    /// What has not left, of all of them.
    bytes: usize,
}

impl SendQueue {
    /// Takes a frame if it fits within the limit.
    pub(super) fn push(&mut self, frame: Vec<u8>, bytes_max: usize) -> bool {
        if self.bytes + frame.len() > bytes_max {
            return false;
        }
        self.bytes += frame.len();
        self.frames.push_back(frame);
        true
    }

    /// What is to leave next; empty where nothing waits.
    pub(super) fn front(&self) -> &[u8] {
        self.frames.front().map_or(&[], |frame| &frame[self.left_bytes..])
    }

    /// So many bytes of the first have left.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.left_bytes += bytes;
        self.bytes -= bytes;
        if self.frames.front().is_some_and(|frame| self.left_bytes == frame.len()) {
            self.frames.pop_front();
            self.left_bytes = 0;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_nothing_until_something_has_left() {
        let mut queue = SendQueue::default();
        assert!(queue.push(vec![1; 6], 10));
        assert!(!queue.push(vec![2; 5], 10));
        assert!(queue.push(vec![3; 4], 10));
        queue.consume(5);
        assert_eq!((queue.bytes(), queue.front()), (5, &[1][..]));
        queue.consume(1);
        assert!(queue.push(vec![4; 6], 10));
        assert_eq!((queue.bytes(), queue.front()), (10, &[3; 4][..]));
    }
}
