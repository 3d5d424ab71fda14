//! Frames that wait for a slow peer: bounded, so that back-pressure reaches whoever sends. Bulk has a bound of its own and leaves only
//! when nothing else waits, so no heartbeat stands behind more than the rest of one bulk frame.

use std::collections::VecDeque;

/// Which frames a frame stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// What hosts say to each other.
    Words,
    /// Output and files on their way.
    Bulk,
}

/// Whole frames in the order in which they were sent; of the first, some may have left.
#[derive(Debug, Default)]
struct Lane {
    frames: VecDeque<Vec<u8>>,
    /// How much of the first has left.
    left_bytes: usize,
    /// What has not left, of all of them.
    bytes: usize,
}

impl Lane {
    fn push(&mut self, frame: Vec<u8>, bytes_max: usize) -> bool {
        if self.bytes + frame.len() > bytes_max {
            return false;
        }
        self.bytes += frame.len();
        self.frames.push_back(frame);
        true
    }

    fn front(&self) -> &[u8] {
        self.frames.front().map_or(&[], |frame| &frame[self.left_bytes..])
    }

    fn consume(&mut self, bytes: usize) {
        self.left_bytes += bytes;
        self.bytes -= bytes;
        if self.frames.front().is_some_and(|frame| self.left_bytes == frame.len()) {
            self.frames.pop_front();
            self.left_bytes = 0;
        }
    }
}

/// What waits for one peer.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    words: Lane,
    bulk: Lane,
}

impl SendQueue {
    /// Takes a frame if it fits within the limit of its class.
    pub(super) fn push(&mut self, class: Class, frame: Vec<u8>, bytes_max: usize) -> bool {
        match class {
            Class::Words => self.words.push(frame, bytes_max),
            Class::Bulk => self.bulk.push(frame, bytes_max),
        }
    }

    /// Bulk is on its way: it began, or nothing else waits.
    fn is_bulk(&self) -> bool {
        self.bulk.left_bytes > 0 || self.words.bytes == 0
    }

    /// What is to leave next; empty where nothing waits.
    pub(super) fn front(&self) -> &[u8] {
        if self.is_bulk() { self.bulk.front() } else { self.words.front() }
    }

    /// So many bytes of the first have left.
    pub(super) fn consume(&mut self, bytes: usize) {
        if self.is_bulk() { self.bulk.consume(bytes) } else { self.words.consume(bytes) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.bytes + self.bulk.bytes
    }

    pub(super) fn bulk_bytes(&self) -> usize {
        self.bulk.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_takes_nothing_until_something_has_left() {
        let mut queue = SendQueue::default();
        assert!(queue.push(Class::Words, vec![1; 6], 10));
        assert!(!queue.push(Class::Words, vec![2; 5], 10));
        assert!(queue.push(Class::Words, vec![3; 4], 10));
        queue.consume(5);
        assert_eq!((queue.bytes(), queue.front()), (5, &[1][..]));
        queue.consume(1);
        assert!(queue.push(Class::Words, vec![4; 6], 10));
        assert_eq!((queue.bytes(), queue.front()), (10, &[3; 4][..]));
    }

    #[test]
    fn bulk_fills_no_place_of_words_and_lets_them_pass_between_two_frames() {
        let mut queue = SendQueue::default();
        assert!(queue.push(Class::Bulk, vec![1; 10], 10));
        queue.consume(4);
        assert!(queue.push(Class::Words, vec![2; 10], 10));
        assert!(!queue.push(Class::Bulk, vec![3; 10], 10));
        assert_eq!((queue.bytes(), queue.front()), (16, &[1; 6][..]));
        queue.consume(6);
        assert!(queue.push(Class::Bulk, vec![3; 10], 10));
        assert_eq!(queue.front(), &[2; 10]);
        queue.consume(10);
        assert_eq!((queue.bulk_bytes(), queue.front()), (10, &[3; 10][..]));
    }
}
