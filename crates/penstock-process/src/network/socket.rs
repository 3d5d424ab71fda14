//! Sockets of links: opened without waiting, and tuned so that the kernel notices a peer that vanished.

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Connections that the kernel may hold for us; it takes fewer where `net.core.somaxconn` says so.
const BACKLOG: i32 = 4096;
/// A silent peer is asked after this time.
const KEEPALIVE_IDLE_S: i32 = 10;
/// And again so often.
const KEEPALIVE_INTERVAL_S: i32 = 5;
/// And given up after so many questions.
const KEEPALIVE_COUNT: i32 = 4;
/// Bytes that were sent and not acknowledged for so long end the connection.
const UNACKNOWLEDGED_MS: i32 = 30_000;
/// So much waits in the kernel beyond what is on its way: what it has can no longer be overtaken by what is more urgent.
const UNSENT_BYTES_MAX: i32 = 256 << 10;

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the value is valid to read for its size.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Listens where other hosts are to find us.
pub(super) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    // SAFETY: the descriptor is open while it is borrowed; called again, this only changes the length of the queue.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(listener)
}

/// Begins to connect. Whether it came about is known when the socket can be written to, see [`TcpStream::take_error`].
pub(super) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain integers; the answer is checked before it is taken over.
    let socket = unsafe {
        let fd = libc::socket(family, kind, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let answer = match to {
        SocketAddr::V4(to) => {
            // SAFETY: zero is a valid address.
            let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            address.sin_family = libc::AF_INET as libc::sa_family_t;
            address.sin_port = to.port().to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            connect_to(&socket, &address)
        }
        SocketAddr::V6(to) => {
            // SAFETY: zero is a valid address.
            let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            address.sin6_port = to.port().to_be();
            address.sin6_flowinfo = to.flowinfo();
            address.sin6_scope_id = to.scope_id();
            address.sin6_addr.s6_addr = to.ip().octets();
            connect_to(&socket, &address)
        }
    };
    match answer {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from(socket)),
    }
}

fn connect_to<Address>(socket: &OwnedFd, address: &Address) -> io::Result<()> {
    let size = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed, and the address is valid to read for its size.
    let answer = unsafe { libc::connect(socket.as_raw_fd(), (&raw const *address).cast(), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Small frames leave at once, and a peer that vanished without a word is noticed.
pub(super) fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_COUNT)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)?;
    set(socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
}
