//! Packets with descriptors between the agent and a zygote. Sending never waits for the other side.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::error::{ProcessError, Result};

/// More descriptors do not fit into a packet.
pub const DESCRIPTORS_MAX: usize = 253;
const PACKET_BYTES_MAX: usize = 64 << 10;

fn failed(call: &'static str) -> ProcessError {
    ProcessError::System { call, source: io::Error::last_os_error() }
}

/// Two ends of a conversation in packets. Both are closed by `exec`.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two numbers.
    let made = unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())
    };
    if made < 0 {
        return Err(failed("socketpair"));
    }
    // SAFETY: the kernel just gave us both.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Sends one packet with copies of the descriptors. A full socket is an error: the other side does not read.
pub fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    assert!(
        fds.len() <= DESCRIPTORS_MAX,
        "a packet carries {DESCRIPTORS_MAX} descriptors, not {}",
        fds.len()
    );
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let payload_bytes = u32::try_from(numbers.len() * size_of::<RawFd>()).expect("few descriptors");
    // SAFETY: the kernel's own arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE(payload_bytes) } as usize;
    // Of words, because the header in it has to be aligned.
    let mut control = vec![0u64; space.div_ceil(size_of::<u64>())];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: zero is a valid header; all pointers in it live until the call returns, and the header of the descriptors
    // lies inside `control`, which is long enough for them.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        if !numbers.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = space as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload_bytes) as _;
            std::ptr::copy_nonoverlapping(
                numbers.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                payload_bytes as usize,
            );
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    if sent < 0 { Err(failed("sendmsg")) } else { Ok(()) }
}

/// One packet with its descriptors, if there is one. Fails when the other side is gone.
pub fn receive_fds(socket: &OwnedFd) -> Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0u8; PACKET_BYTES_MAX];
    let mut control = [0u64; 256];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut fds = Vec::new();
    // SAFETY: zero is a valid header; all pointers in it live until the call returns. Headers that the kernel wrote lie inside
    // `control`, and the descriptors in them are ours from then on.
    let count = unsafe {
        let mut message: libc::msghdr = zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let count =
            libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC);
        let mut header = if count > 0 { libc::CMSG_FIRSTHDR(&message) } else { std::ptr::null_mut() };
        while !header.is_null() {
            if (*header).cmsg_type == libc::SCM_RIGHTS {
                let many = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                fds.extend((0..many).map(|at| OwnedFd::from_raw_fd(first.add(at).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
        count
    };
    match usize::try_from(count) {
        Ok(0) => Err(ProcessError::System { call: "recvmsg", source: io::ErrorKind::UnexpectedEof.into() }),
        Ok(count) => {
            bytes.truncate(count);
            Ok(Some((bytes, fds)))
        }
        Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(failed("recvmsg")),
    }
}

/// One packet, if there is one. Fails when the other side is gone.
pub fn receive(socket: &OwnedFd) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0u8; PACKET_BYTES_MAX];
    // SAFETY: the descriptor is open, and the place has so much room.
    let count =
        unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    match usize::try_from(count) {
        Ok(0) => Err(ProcessError::System { call: "recv", source: io::ErrorKind::UnexpectedEof.into() }),
        Ok(count) => {
            bytes.truncate(count);
            Ok(Some(bytes))
        }
        Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(failed("recv")),
    }
}
