//! Files that are read by place, read from beginning to end in large parts: what is far is asked for few times.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{IoError, ReadAt};

/// How much is asked for at once.
const PART_BYTES: u64 = 8 << 20;
/// How many such parts are read ahead of the reader.
const PARTS_AHEAD: usize = 2;

/// A file that is asked for block after block: the part that was read last is kept, so that most blocks cost no request.
pub struct Window {
    origin: Arc<dyn ReadAt>,
    /// Where the part begins, and its bytes.
    part: Mutex<(u64, Vec<u8>)>,
}

impl Window {
    /// Nothing is read yet.
    pub fn new(origin: Arc<dyn ReadAt>) -> Self {
        Self { origin, part: Mutex::default() }
    }
}

impl ReadAt for Window {
    fn len(&self) -> u64 {
        self.origin.len()
    }

    fn name(&self) -> &str {
        self.origin.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        let end = offset.saturating_add(into.len() as u64);
        if offset < part.0 || end > part.0 + part.1.len() as u64 {
            let bytes = PART_BYTES.min(self.origin.len().saturating_sub(offset));
            part.0 = offset;
            part.1.resize(bytes as usize, 0);
            if into.len() as u64 > bytes || self.origin.read_at(offset, &mut part.1).is_err() {
                // Only the bytes that are asked for say what is wrong with them.
                part.1.clear();
                return self.origin.read_at(offset, into);
            }
        }
        let skip = (offset - part.0) as usize;
        into.copy_from_slice(&part.1[skip..skip + into.len()]);
        Ok(())
    }
}

/// A file from beginning to end. What goes wrong is an [`IoError`] inside the error of the system's kind.
pub struct SequentialReader {
    source: Arc<dyn ReadAt>,
    at: u64,
    part: Vec<u8>,
    /// How much of the part was given out.
    used: usize,
}

impl SequentialReader {
    /// Nothing is read yet.
    pub fn new(source: Arc<dyn ReadAt>) -> Self {
        Self { source, at: 0, part: Vec::new(), used: 0 }
    }

    /// Reads the next part in place of the one before; an empty one at the end.
    fn advance(&mut self) -> io::Result<()> {
        let bytes = PART_BYTES.min(self.source.len() - self.at);
        self.part.resize(bytes as usize, 0);
        self.used = 0;
        self.source.read_at(self.at, &mut self.part).map_err(io::Error::other)?;
        self.at += bytes;
        Ok(())
    }
}

impl Read for SequentialReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.part.len() {
            self.advance()?;
        }
        Ok(give(&self.part, &mut self.used, into))
    }
}

/// The same with a thread that reads the next parts while one is being used. It ends with its reader.
pub struct ReadAhead {
    parts: Receiver<io::Result<Vec<u8>>>,
    part: Vec<u8>,
    used: usize,
}

impl ReadAhead {
    /// Starts to read.
    pub fn start(source: Arc<dyn ReadAt>) -> Result<Self, IoError> {
        let name = source.name().to_owned();
        let (send, parts) = sync_channel(PARTS_AHEAD);
        let mut reader = SequentialReader::new(source);
        let read = move || loop {
            let part = reader.advance().map(|()| std::mem::take(&mut reader.part));
            let is_last = part.as_ref().map_or(true, Vec::is_empty);
            // Nobody listens any more when the reader was dropped early.
            if send.send(part).is_err() || is_last {
                return;
            }
        };
        std::thread::Builder::new()
            .name("penstock-scan-ahead".into())
            .spawn(read)
            .map_err(|error| IoError::from_system(&name, None, &error))?;
        Ok(Self { parts, part: Vec::new(), used: 0 })
    }
}

impl Read for ReadAhead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.used == self.part.len() {
            // The thread ends after an empty part or an error, so after its end there is nothing more.
            self.part = self.parts.recv().unwrap_or(Ok(Vec::new()))?;
            self.used = 0;
        }
        Ok(give(&self.part, &mut self.used, into))
    }
}

/// Gives out what fits of the rest of a part; how much that was.
fn give(part: &[u8], used: &mut usize, into: &mut [u8]) -> usize {
    let count = into.len().min(part.len() - *used);
    into[..count].copy_from_slice(&part[*used..*used + count]);
    *used += count;
    count
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::MemoryFile;

    /// A file that counts how often it is asked, and cannot be read past a place.
    struct Counted {
        file: MemoryFile,
        asked: AtomicU64,
        broken_from: u64,
    }

    impl ReadAt for Counted {
        fn len(&self) -> u64 {
            self.file.len()
        }

        fn name(&self) -> &str {
            self.file.name()
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if offset.saturating_add(into.len() as u64) > self.broken_from {
                let reason = "planted".to_owned();
                return Err(IoError::Other { name: self.name().to_owned(), offset: Some(offset), reason });
            }
            self.file.read_at(offset, into)
        }
    }

    fn counted(bytes: u64, broken_from: u64) -> (Arc<Counted>, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|number| (number % 251) as u8).collect();
        let file = MemoryFile::new("far", content.clone());
        (Arc::new(Counted { file, asked: AtomicU64::new(0), broken_from }), content)
    }

    fn read_all(mut reader: impl Read) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        reader.read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn both_readers_give_the_whole_file_in_few_requests() {
        let (file, content) = counted(2 * PART_BYTES + 7, u64::MAX);
        assert_eq!(read_all(SequentialReader::new(Arc::clone(&file) as _)).unwrap(), content);
        // Three parts and the empty one that is the end.
        assert_eq!(file.asked.swap(0, Ordering::SeqCst), 4);
        assert_eq!(read_all(ReadAhead::start(Arc::clone(&file) as _).unwrap()).unwrap(), content);
        assert_eq!(file.asked.load(Ordering::SeqCst), 4);
        let (empty, _) = counted(0, u64::MAX);
        assert_eq!(read_all(SequentialReader::new(Arc::clone(&empty) as _)).unwrap(), []);
        assert_eq!(read_all(ReadAhead::start(empty).unwrap()).unwrap(), []);
    }

    #[test]
    fn what_goes_wrong_stays_our_own_error() {
        let (file, _) = counted(2 * PART_BYTES, PART_BYTES);
        for problem in [
            read_all(SequentialReader::new(Arc::clone(&file) as _)).unwrap_err(),
            read_all(ReadAhead::start(file).unwrap()).unwrap_err(),
        ] {
            let ours = problem.downcast::<IoError>().unwrap();
            assert!(matches!(ours, IoError::Other { offset: Some(PART_BYTES), .. }), "{ours:?}");
        }
    }

    #[test]
    fn a_window_asks_once_for_many_blocks_and_only_for_the_bad_one_alone() {
        let (file, content) = counted(PART_BYTES, PART_BYTES - 10);
        let window = Window::new(Arc::clone(&file) as _);
        let mut block = [0; 16];
        // The part reaches into what is broken: only the block that does is refused.
        window.read_at(0, &mut block).unwrap();
        assert_eq!(block, content[..16]);
        assert!(window.read_at(PART_BYTES - 16, &mut block).is_err());
        let (file, content) = counted(PART_BYTES + 100, u64::MAX);
        let window = Window::new(Arc::clone(&file) as _);
        for start in (0..PART_BYTES as usize).step_by(1 << 16) {
            window.read_at(start as u64, &mut block).unwrap();
            assert_eq!(block, content[start..start + 16]);
        }
        assert_eq!(file.asked.load(Ordering::SeqCst), 1);
        assert!(window.read_at(PART_BYTES + 90, &mut block).is_err());
        assert!(window.read_at(u64::MAX, &mut block).is_err());
    }
}
