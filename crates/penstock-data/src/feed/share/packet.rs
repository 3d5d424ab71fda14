//! What members of a host say to each other: packets of 32 bytes, some with a descriptor, over a socket without a file.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, shutdown, socket_with,
};

const PACKET_BYTES: usize = 32;
/// Of the words below; others are not understood.
const VERSION: u32 = 1;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// What a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Word {
    /// Who I am; `step` is the member. The first of both sides.
    Hello = 1,
    /// Is there this step?
    Ask = 2,
    /// Here it is, so many bytes in the memory that comes along; from the reader or to it.
    Batch = 3,
    /// Make it.
    Make = 4,
    /// Somebody makes it; wait for the next packet.
    Wait = 5,
    /// I will not make it after all.
    Release = 6,
}

impl Word {
    fn of(number: u32) -> Option<Self> {
        [Self::Hello, Self::Ask, Self::Batch, Self::Make, Self::Wait, Self::Release]
            .into_iter()
            .find(|word| *word as u32 == number)
    }
}

/// One packet.
pub(super) struct Packet {
    pub(super) word: Word,
    pub(super) step: u64,
    pub(super) bytes: u64,
    pub(super) file: Option<Arc<OwnedFd>>,
}

impl Packet {
    /// A packet about a step.
    pub(super) fn new(word: Word, step: u64) -> Self {
        Self { word, step, bytes: 0, file: None }
    }
}

/// One end of a connection.
#[derive(Clone)]
pub(super) struct Line(Arc<OwnedFd>);

impl Line {
    /// Sends a packet; an error when the other end is gone, or does not read for longer than it may.
    pub(super) fn send(&self, packet: &Packet) -> io::Result<()> {
        let mut bytes = [0; PACKET_BYTES];
        bytes[..4].copy_from_slice(b"PSH\0");
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&(packet.word as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&packet.step.to_le_bytes());
        bytes[24..].copy_from_slice(&packet.bytes.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let files = packet.file.as_ref().map(|file| [file.as_fd()]);
        if let Some(files) = &files {
            beside.push(SendAncillaryMessage::ScmRights(files));
        }
        sendmsg(&*self.0, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next packet; `UnexpectedEof` when the other end is gone, `WouldBlock` when it says nothing, `InvalidData` when it is
    /// none of us.
    pub(super) fn receive(&self) -> io::Result<Packet> {
        let mut bytes = [0; PACKET_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(&*self.0, &mut [IoSliceMut::new(&mut bytes)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
        // Taken first, so that whatever came along is closed even if the packet is refused.
        let files: Vec<OwnedFd> = beside
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [word, version] = [8, 4].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte])));
        let foreign = || io::Error::from(io::ErrorKind::InvalidData);
        if received.bytes != PACKET_BYTES || bytes[..4] != *b"PSH\0" || version != VERSION {
            return Err(foreign());
        }
        let [step, bytes] =
            [16, 24].map(|at| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte])));
        let word = Word::of(word).ok_or_else(foreign)?;
        Ok(Packet { word, step, bytes, file: files.into_iter().next().map(Arc::new) })
    }

    /// How long sending and receiving may take.
    pub(super) fn limit(&self, receiving: Option<Duration>, sending: Duration) -> io::Result<()> {
        set_socket_timeout(&*self.0, Timeout::Recv, receiving)?;
        Ok(set_socket_timeout(&*self.0, Timeout::Send, Some(sending))?)
    }

    /// Whether the other end belongs to the same user.
    pub(super) fn is_own(&self) -> bool {
        // SAFETY: a struct of numbers, for which zeros are as good as any.
        let mut credentials: libc::ucred = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let place = (&raw mut credentials).cast();
        // SAFETY: the place and its length are those of a `ucred`, which is what this option fills.
        let failed = unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length)
        };
        failed == 0 && credentials.uid == user()
    }

    /// Ends the connection for both, also for a thread that waits for a packet.
    pub(super) fn end(&self) {
        // It may have ended already.
        let _ = shutdown(&*self.0, Shutdown::Both);
    }

    /// Whether two are the same end of the same connection.
    pub(super) fn is(&self, other: &Line) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The next to connect.
    pub(super) fn accept(&self) -> io::Result<Line> {
        Ok(Line(Arc::new(accept_with(&*self.0, SocketFlags::CLOEXEC)?)))
    }
}

/// Takes a name for this process, if nobody has it. The name exists in the kernel only, and goes with the process.
pub(super) fn take_name(name: &str) -> io::Result<Line> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok(Line(Arc::new(socket)))
}

/// Connects to whoever has a name.
pub(super) fn call(name: &str, limit: Duration) -> io::Result<Line> {
    let line = Line(Arc::new(new_socket()?));
    line.limit(Some(limit), limit)?;
    connect(&*line.0, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(line)
}

/// The number of the user whose rights this process has.
pub(super) fn user() -> u32 {
    // SAFETY: asks for a number and cannot fail.
    unsafe { libc::geteuid() }
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}
