//! Frames decompressed lately, so that neighbouring rows do not decompress their frame again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use zstd::bulk::Decompressor;

use crate::DataError;
use crate::index::Frame;
use crate::shard::Shard;

/// Decompressed bytes kept, the newest frame excepted: that one is kept whatever its size.
const CACHE_BYTES: usize = 16 << 20;
/// Frames kept.
const CACHE_FRAMES: usize = 64;
/// Largest frame that is decompressed to read a row of it.
pub(crate) const FRAME_BYTES_MAX: u64 = 1 << 30;

/// A bounded store of decompressed frames, the most recently used last.
#[derive(Default)]
pub(crate) struct FrameCache {
    /// Held only to look up and to insert, never while decompressing.
    kept: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

impl FrameCache {
    fn get(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = kept.iter().position(|(kept, _)| *kept == number)?;
        let frame = kept.remove(place)?;
        let content = frame.1.clone();
        kept.push_back(frame);
        Some(content)
    }

    fn insert(&self, number: u64, content: Arc<Vec<u8>>) {
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept.push_back((number, content));
        let mut bytes: usize = kept.iter().map(|(_, content)| content.len()).sum();
        while kept.len() > 1 && (bytes > CACHE_BYTES || kept.len() > CACHE_FRAMES) {
            bytes -= kept.pop_front().map_or(0, |(_, content)| content.len());
        }
    }
}

/// One thread's way to frames: its own decompressor, the shard's cache.
pub(crate) struct Frames<'a> {
    shard: &'a Shard,
    decompressor: Decompressor<'static>,
    /// The frame used last: sorted rows mostly stay in it.
    last: Option<(Frame, Arc<Vec<u8>>)>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Result<Self, DataError> {
        let decompressor = Decompressor::new().map_err(|error| DataError::BadStream {
            shard: shard.name().to_owned(),
            offset: 0,
            reason: error.to_string(),
        })?;
        Ok(Self { shard, decompressor, last: None })
    }

    /// Fills `into` with the decompressed bytes at `offset`.
    pub(crate) fn read_into(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DataError> {
        let mut done = 0;
        // Each turn copies at least one byte: a frame that is found holds the byte that was looked for.
        while done < into.len() {
            let at = offset + done as u64;
            let (frame, content) = self.frame_with(at)?;
            let start = (at - frame.content.offset) as usize;
            let count = (content.len() - start).min(into.len() - done);
            into[done..done + count].copy_from_slice(&content[start..start + count]);
            done += count;
        }
        Ok(())
    }

    fn frame_with(&mut self, at: u64) -> Result<(Frame, Arc<Vec<u8>>), DataError> {
        if let Some((frame, content)) = &self.last {
            if at >= frame.content.offset && at - frame.content.offset < frame.content.length {
                return Ok((*frame, content.clone()));
            }
        }
        let missing =
            || DataError::index_damaged(format!("no frame of `{}` holds byte {at}", self.shard.name()));
        let frame = self.shard.index.frame_of(at).ok_or_else(missing)?;
        let content = match self.shard.frames.get(frame.number) {
            Some(content) => content,
            None => {
                let content = Arc::new(self.decompress(&frame)?);
                self.shard.frames.insert(frame.number, content.clone());
                content
            }
        };
        self.last = Some((frame, content.clone()));
        Ok((frame, content))
    }

    fn decompress(&mut self, frame: &Frame) -> Result<Vec<u8>, DataError> {
        let shard = || self.shard.name().to_owned();
        let (offset, bytes, limit) = (frame.packed.offset, frame.content.length, FRAME_BYTES_MAX);
        if bytes > limit || frame.packed.length > 2 * limit {
            return Err(DataError::FrameTooLarge { shard: shard(), offset, bytes, limit });
        }
        let packed = self.shard.file.read(offset, frame.packed.length as usize)?;
        let content = self
            .decompressor
            .decompress(&packed, bytes as usize)
            .map_err(|error| DataError::BadStream { shard: shard(), offset, reason: error.to_string() })?;
        if content.len() as u64 != bytes {
            let reason =
                format!("frame at byte {offset} of `{}` holds {} bytes, not {bytes}", shard(), content.len());
            return Err(DataError::index_damaged(reason));
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_keeps_the_newest_within_its_bounds() {
        let cache = FrameCache::default();
        for number in 0..100 {
            cache.insert(number, Arc::new(vec![0; 10]));
        }
        assert!(cache.get(35).is_none() && cache.get(36).is_some());
        cache.insert(200, Arc::new(vec![0; CACHE_BYTES - 20]));
        assert!(cache.get(98).is_none() && cache.get(36).is_some() && cache.get(200).is_some());
        cache.insert(300, Arc::new(vec![0; 2 * CACHE_BYTES]));
        assert!(cache.get(200).is_none() && cache.get(300).is_some());
    }
}
