//! Messages on a stream of bytes: `u32` length of the body (big-endian), `u8` version, body.
//!
//! The decoder holds what has come of a frame and grows with it, so a length costs no memory before its bytes are here.

/// The version that this agent speaks.
pub const VERSION: u8 = 1;
/// A body is at most this long.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// What comes before a body.
pub const HEADER_BYTES: usize = 5;

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks another version.
    #[error("it sent a frame of version {version}, and this agent speaks version {VERSION}")]
    Version {
        /// What it said.
        version: u8,
    },
    /// A frame that is larger than any may be.
    #[error("it announced a frame of {length} bytes, and at most {BODY_BYTES_MAX} are allowed")]
    Length {
        /// What it said.
        length: u32,
    },
}

/// A body with its header; none where it is larger than a body may be.
pub fn encoded(body: &[u8]) -> Option<Vec<u8>> {
    if body.len() > BODY_BYTES_MAX {
        return None;
    }
    let length = u32::try_from(body.len()).ok()?;
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.push(VERSION);
    frame.extend_from_slice(body);
    Some(frame)
}

/// Cuts a stream into bodies, however the bytes arrive.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    /// Bytes of at most one frame that is not whole yet.
    rest: Vec<u8>,
}

impl FrameDecoder {
    /// Takes bytes and appends the bodies that they complete. After an error the stream makes no sense any more.
    pub fn take(&mut self, mut bytes: &[u8], bodies: &mut Vec<Vec<u8>>) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            if self.rest.len() < HEADER_BYTES {
                let missing = HEADER_BYTES - self.rest.len();
                let (now, later) = bytes.split_at(missing.min(bytes.len()));
                self.rest.extend_from_slice(now);
                bytes = later;
            }
            let Some(body_bytes) = self.body_bytes()? else { return Ok(()) };
            let missing = HEADER_BYTES + body_bytes - self.rest.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if now.len() == missing {
                let mut body = std::mem::take(&mut self.rest);
                body.drain(..HEADER_BYTES);
                bodies.push(body);
            }
        }
        Ok(())
    }

    /// Whether the stream stopped within a frame.
    pub fn is_within_frame(&self) -> bool {
        !self.rest.is_empty()
    }

    /// How long the body of the present frame is, once the header is here. A length that is wrong is noticed before the version is here.
    fn body_bytes(&self) -> Result<Option<usize>, FrameError> {
        let Some(length) = self.rest.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return Ok(None);
        };
        if length as usize > BODY_BYTES_MAX {
            return Err(FrameError::Length { length });
        }
        match self.rest.get(4) {
            None => Ok(None),
            Some(&VERSION) => Ok(Some(length as usize)),
            Some(&version) => Err(FrameError::Version { version }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bodies_come_out_as_they_went_in_wherever_the_stream_is_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..12),
            cuts in prop::collection::vec(1usize..40, 1..60),
        ) {
            let stream: Vec<u8> = bodies.iter().flat_map(|body| encoded(body).unwrap()).collect();
            let (mut decoder, mut decoded, mut rest) = (FrameDecoder::default(), Vec::new(), stream.as_slice());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.take(now, &mut decoded).unwrap();
                rest = later;
            }
            prop_assert!(!decoder.is_within_frame());
            prop_assert_eq!(decoded, bodies);
        }

        #[test]
        fn random_bytes_never_panic_and_hold_no_more_than_came(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (mut decoder, mut decoded) = (FrameDecoder::default(), Vec::new());
            let _ = decoder.take(&bytes, &mut decoded);
            let held = decoder.rest.len() + decoded.iter().map(Vec::len).sum::<usize>();
            prop_assert!(held <= bytes.len());
        }
    }

    #[test]
    fn the_largest_body_passes_and_a_larger_one_is_neither_written_nor_read() {
        let largest = vec![7; BODY_BYTES_MAX];
        let mut bodies = Vec::new();
        FrameDecoder::default().take(&encoded(&largest).unwrap(), &mut bodies).unwrap();
        assert!(bodies[0] == largest);

        assert_eq!(encoded(&vec![7; BODY_BYTES_MAX + 1]), None);
        let length = u32::try_from(BODY_BYTES_MAX).unwrap() + 1;
        let told = FrameDecoder::default().take(&length.to_be_bytes(), &mut bodies);
        assert_eq!(told, Err(FrameError::Length { length }));
    }

    #[test]
    fn another_version_is_refused_by_its_header() {
        let told = FrameDecoder::default().take(&[0, 0, 0, 9, 2], &mut Vec::new());
        assert_eq!(told, Err(FrameError::Version { version: 2 }));
    }
}
