//! One connection: its socket, its TLS and the frames on their way, moved as far as possible without waiting.

use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::frame::{FrameDecoder, FrameError};
use super::send_queue::{Class, SendQueue};
use super::socket;
use super::strangers::Stranger;

/// So much is read of one link in a turn, so that a busy one starves no other.
const READ_BYTES_MAX: usize = 256 << 10;
/// Said of a peer whose key is not ours.
pub const OTHER_KEY: &str = "it holds the key of another job";
/// How a dial to something that speaks another language ends, in the words that begin its reason.
pub const OTHER_PROTOCOL: &str = "no TLS with it";
/// How a dial to something that says nothing ends.
pub const SILENT: &str = "it did not prove the key in time";
/// And so much while it has not proven the key.
const HANDSHAKE_READ_BYTES_MAX: usize = 16 << 10;
/// So much is written to one link in a turn.
const WRITE_BYTES_MAX: usize = 256 << 10;
/// So much is encrypted ahead of what the socket takes.
const ENCRYPT_BYTES_MAX: usize = 48 << 10;

/// How far a link has come. It only moves downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// The kernel is connecting.
    Connecting,
    /// The peer has not proven the key.
    Handshake,
    /// Frames go both ways.
    Open,
    /// Our owner closed it; what is queued leaves.
    Closing,
    /// All has left; the peer has yet to end its side, or it could lose what it has not read.
    Lingering,
}

/// Why a link ended.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The system says so.
    Socket(io::Error),
    /// TLS says so.
    Tls(rustls::Error),
    /// A frame cannot be read.
    Frame(FrameError),
    /// The peer ended it in order.
    Goodbye,
    /// The connection ended without a goodbye.
    Cut,
    /// It was not open in time.
    Late,
    /// A newcomer took its place before it was open.
    CrowdedOut,
}

/// What moving a link brought.
#[derive(Debug, Default)]
pub(super) struct LinkProgress {
    /// The peer has proven the key in this turn.
    pub(super) opened: bool,
    /// What it sent.
    pub(super) bodies: Vec<Vec<u8>>,
    /// The link is over.
    pub(super) end: Option<LinkEnd>,
    /// Bytes from and to the socket.
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

pub(super) struct Link {
    pub(super) socket: TcpStream,
    tls: rustls::Connection,
    pub(super) peer: SocketAddr,
    pub(super) dialled: bool,
    pub(super) stage: Stage,
    /// When it was dialled or accepted.
    pub(super) since_ms: u64,
    /// When it is ended if it has not gone on; owned by the set of all links.
    pub(super) deadline_ms: Option<u64>,
    /// What its owner waits for on the socket.
    pub(super) interest: i32,
    /// Anything came from the peer.
    heard: bool,
    /// We sent something. Of a stranger: what it sent was understood.
    pub(super) answered: bool,
    decoder: FrameDecoder,
    queue: SendQueue,
    /// Writing failed outside of a turn.
    broken: Option<LinkEnd>,
    notified: bool,
}

impl Link {
    pub(super) fn new(socket: TcpStream, tls: rustls::Connection, peer: SocketAddr, since_ms: u64) -> Self {
        let dialled = matches!(tls, rustls::Connection::Client(_));
        Self {
            socket,
            tls,
            peer,
            dialled,
            stage: if dialled { Stage::Connecting } else { Stage::Handshake },
            since_ms,
            deadline_ms: None,
            interest: libc::EPOLLIN,
            heard: false,
            answered: false,
            decoder: FrameDecoder::default(),
            queue: SendQueue::default(),
            broken: None,
            notified: false,
        }
    }

    /// An accepted peer that has not proven the key.
    pub(super) fn is_half_open(&self) -> bool {
        !self.dialled && self.stage < Stage::Open
    }

    /// Does what can be done without waiting, within the limits of a turn.
    pub(super) fn advance(&mut self, scratch: &mut [u8]) -> LinkProgress {
        let mut progress = LinkProgress::default();
        if let Err(end) = self.try_advance(scratch, &mut progress) {
            progress.end = Some(end);
        }
        if progress.end.is_none() {
            progress.end = self.broken.take();
        }
        progress
    }

    fn try_advance(&mut self, scratch: &mut [u8], progress: &mut LinkProgress) -> Result<(), LinkEnd> {
        if self.stage == Stage::Connecting && !self.connected()? {
            return Ok(());
        }
        self.read(scratch, progress)?;
        progress.sent_bytes += self.write()?;
        Ok(())
    }

    /// Whether the kernel has connected us.
    fn connected(&mut self) -> Result<bool, LinkEnd> {
        if let Some(error) = self.socket.take_error().map_err(LinkEnd::Socket)? {
            return Err(LinkEnd::Socket(error));
        }
        match self.socket.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            answer => answer.map_err(LinkEnd::Socket)?,
        };
        socket::tune(&self.socket).map_err(LinkEnd::Socket)?;
        self.stage = Stage::Handshake;
        Ok(true)
    }

    fn read(&mut self, scratch: &mut [u8], progress: &mut LinkProgress) -> Result<(), LinkEnd> {
        let mut bytes_read = 0;
        loop {
            let bytes_max = if self.stage < Stage::Open { HANDSHAKE_READ_BYTES_MAX } else { READ_BYTES_MAX };
            if bytes_read >= bytes_max {
                return Ok(());
            }
            let room = scratch.len().min(bytes_max - bytes_read);
            match self.socket.read(&mut scratch[..room]) {
                Ok(0) => return Err(LinkEnd::Cut),
                Ok(count) => {
                    bytes_read += count;
                    progress.received_bytes += count as u64;
                    self.heard = true;
                    self.take(&scratch[..count], progress)?;
                    if count < room {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::Socket(error)),
            }
        }
    }

    /// Decrypts, and cuts into frames. Where the owner has closed the link, what comes is dropped.
    fn take(&mut self, mut encrypted: &[u8], progress: &mut LinkProgress) -> Result<(), LinkEnd> {
        if self.stage == Stage::Lingering {
            return Ok(());
        }
        while !encrypted.is_empty() {
            self.tls.read_tls(&mut encrypted).map_err(LinkEnd::Socket)?;
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The peer may learn why, if its socket takes these few bytes now.
                    progress.sent_bytes += self.tls.write_tls(&mut self.socket).unwrap_or(0) as u64;
                    return Err(LinkEnd::Tls(error));
                }
            };
            if self.stage == Stage::Handshake && !self.tls.is_handshaking() {
                self.stage = Stage::Open;
                progress.opened = true;
            }
            self.take_plaintext(progress)?;
            if state.peer_has_closed() {
                return Err(if self.decoder.is_within_frame() { LinkEnd::Cut } else { LinkEnd::Goodbye });
            }
        }
        Ok(())
    }

    fn take_plaintext(&mut self, progress: &mut LinkProgress) -> Result<(), LinkEnd> {
        let mut reader = self.tls.reader();
        // It is an error that nothing is left, and each round takes what is there.
        while let Ok(bytes) = reader.fill_buf() {
            let count = bytes.len();
            if count == 0 {
                break;
            }
            // H7: bytes come out of TLS only after the peer has proven the key.
            if self.stage == Stage::Open {
                self.decoder.take(bytes, &mut progress.bodies).map_err(LinkEnd::Frame)?;
            }
            reader.consume(count);
        }
        Ok(())
    }

    /// How many bytes the socket took.
    fn write(&mut self) -> Result<u64, LinkEnd> {
        let mut sent_bytes = 0;
        while sent_bytes < WRITE_BYTES_MAX {
            if !self.tls.wants_write() && !self.encrypt_more()? {
                break;
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(LinkEnd::Socket(io::ErrorKind::WriteZero.into())),
                Ok(count) => sent_bytes += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LinkEnd::Socket(error)),
            }
        }
        self.answered |= sent_bytes > 0;
        Ok(sent_bytes as u64)
    }

    /// Whether there is something more for the socket. At the end of a closed link this is our goodbye.
    fn encrypt_more(&mut self) -> Result<bool, LinkEnd> {
        let mut encrypted_bytes = 0;
        while self.stage >= Stage::Open && encrypted_bytes < ENCRYPT_BYTES_MAX {
            let front = self.queue.front();
            let front = &front[..front.len().min(ENCRYPT_BYTES_MAX - encrypted_bytes)];
            if front.is_empty() {
                break;
            }
            let count = self.tls.writer().write(front).map_err(LinkEnd::Socket)?;
            self.queue.consume(count);
            encrypted_bytes += count;
        }
        if encrypted_bytes == 0 && self.stage == Stage::Closing {
            if self.notified {
                self.stage = Stage::Lingering;
                self.socket.shutdown(Shutdown::Write).map_err(LinkEnd::Socket)?;
            } else {
                self.tls.send_close_notify();
                self.notified = true;
            }
        }
        Ok(self.tls.wants_write())
    }

    /// Takes a frame for the peer and begins to send it. False where the link is not open or the queue is full.
    pub(super) fn send(&mut self, class: Class, frame: Vec<u8>, queue_bytes_max: usize) -> Option<u64> {
        if self.stage != Stage::Open || self.broken.is_some() {
            return None;
        }
        let waits = self.wants_write();
        if !self.queue.push(class, frame, queue_bytes_max) {
            return None;
        }
        if waits {
            return Some(0);
        }
        Some(self.write().unwrap_or_else(|end| {
            // What the peer sent before is read first, in the next turn.
            self.broken = Some(end);
            0
        }))
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    pub(super) fn bulk_bytes(&self) -> usize {
        self.queue.bulk_bytes()
    }

    /// Something waits until the socket takes more.
    pub(super) fn wants_write(&self) -> bool {
        match self.stage {
            Stage::Connecting => true,
            Stage::Handshake => self.tls.wants_write(),
            Stage::Open => self.tls.wants_write() || self.queue.bytes() > 0,
            Stage::Closing => true,
            Stage::Lingering => false,
        }
    }

    /// What an end says about a peer that had not proven the key.
    pub(super) fn stranger(&self, end: &LinkEnd) -> Stranger {
        match end {
            LinkEnd::Tls(error) => Stranger::of_error(error),
            LinkEnd::Late if !self.heard => Stranger::Silent,
            LinkEnd::Late => Stranger::Slow,
            LinkEnd::CrowdedOut => Stranger::CrowdedOut,
            LinkEnd::Socket(_) | LinkEnd::Frame(_) | LinkEnd::Goodbye | LinkEnd::Cut => Stranger::Gone,
        }
    }

    /// What an end means to the owner of the link.
    pub(super) fn why(&self, end: &LinkEnd) -> String {
        let opened = self.stage >= Stage::Open;
        match end {
            LinkEnd::Tls(error) if !opened => match Stranger::of_error(error) {
                Stranger::OtherKey => OTHER_KEY.to_owned(),
                _ => format!("{OTHER_PROTOCOL}: {error}"),
            },
            LinkEnd::Tls(error) => format!("its bytes are damaged: {error}"),
            LinkEnd::Socket(error) => error.to_string(),
            LinkEnd::Frame(error) => error.to_string(),
            LinkEnd::Goodbye => "it closed the connection".to_owned(),
            LinkEnd::Cut if opened => "the connection was cut".to_owned(),
            LinkEnd::Cut => "it refused the connection".to_owned(),
            LinkEnd::Late | LinkEnd::CrowdedOut if self.stage == Stage::Connecting => {
                "nothing answers at its address".to_owned()
            }
            LinkEnd::Late | LinkEnd::CrowdedOut => SILENT.to_owned(),
        }
    }
}
