//! One connection to a server: a request out, an answer in, straight into the memory where it will stay.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::ClientOptions;
use super::pool::{Buffer, Pool};
use crate::CHECK;

/// Of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 32;
/// Of an answer; a server that promises more is not one of ours.
const BODY_BYTES_MAX: u64 = 4 << 30;

enum Stream {
    Plain(Socket),
    Secure(Box<StreamOwned<ClientConnection, Socket>>),
}

/// A socket that the client can shut while a thread reads from it.
struct Socket(Arc<TcpStream>);

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Secure(stream) => stream.read(into),
        }
    }
}

impl Stream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Secure(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

/// What came back.
pub(super) struct Received {
    pub(super) status: u16,
    pub(super) retry_after: bool,
    pub(super) check: Option<u64>,
    pub(super) body: Buffer,
    /// Whether the connection can be used again.
    pub(super) keep: bool,
}

/// Why nothing came back.
pub(super) struct Lost {
    pub(super) reason: String,
    /// Whether the connection was closed before anything of the answer came: it was idle for too long, or the server was restarted.
    pub(super) stale: bool,
}

impl Lost {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), stale: false }
    }
}

/// A stream to one server, and what is known about it.
pub(super) struct Connection {
    stream: Stream,
    /// Whether it has answered before.
    pub(super) used: bool,
}

impl Connection {
    /// Connects to a server, at whichever of its addresses answers; `register` learns of the socket before anything is said.
    pub(super) fn open(
        options: &ClientOptions,
        server: usize,
        register: &dyn Fn(&Arc<TcpStream>),
    ) -> Result<Self, Lost> {
        let (host, port) = &options.servers[server];
        let addresses = (host.as_str(), *port).to_socket_addrs();
        let addresses = addresses.map_err(|problem| Lost::new(format!("no such host: {problem}")))?;
        let mut last = Lost::new("the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, options.connect_timeout) {
                Ok(stream) => {
                    let stream = Arc::new(stream);
                    register(&stream);
                    return Self::prepared(stream, options, host).map_err(|problem| words(&problem, options));
                }
                Err(problem) => last = words(&problem, options),
            }
        }
        Err(last)
    }

    fn prepared(stream: Arc<TcpStream>, options: &ClientOptions, host: &str) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.silence_max))?;
        stream.set_write_timeout(Some(options.silence_max))?;
        let stream = match &options.tls {
            None => Stream::Plain(Socket(stream)),
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                let mut secured = StreamOwned::new(session, Socket(stream));
                secured.conn.complete_io(&mut secured.sock)?;
                Stream::Secure(Box::new(secured))
            }
        };
        Ok(Self { stream, used: false })
    }

    /// Sends a request and reads the answer, which must be there before `end`.
    pub(super) fn get(
        &mut self,
        request: &str,
        options: &ClientOptions,
        pool: &Arc<Pool>,
        end: Instant,
    ) -> Result<Received, Lost> {
        let stale = |problem: &io::Error| {
            matches!(problem.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        };
        let lost =
            |problem: io::Error, used| Lost { stale: used && stale(&problem), ..words(&problem, options) };
        self.stream.send(request.as_bytes()).map_err(|problem| lost(problem, self.used))?;
        let mut head = [0; HEAD_BYTES_MAX];
        let mut filled = 0;
        loop {
            let got = self.stream.read(&mut head[filled..]);
            let got = got.map_err(|problem| lost(problem, self.used && filled == 0))?;
            if got == 0 {
                let stale = self.used && filled == 0;
                return Err(Lost { reason: "the connection was closed before an answer came".into(), stale });
            }
            filled += got;
            if let Some((head_bytes, answer)) = Head::read(&head[..filled])? {
                self.used = true;
                return self.body(answer, &head[head_bytes..filled], options, (pool, end));
            }
            if filled == head.len() {
                return Err(Lost::new("the answer's head is too long"));
            }
        }
    }

    fn body(
        &mut self,
        head: Head,
        begun: &[u8],
        options: &ClientOptions,
        (pool, end): (&Arc<Pool>, Instant),
    ) -> Result<Received, Lost> {
        let mut body = pool.take(head.bytes as usize);
        let into = body.as_mut();
        if begun.len() > into.len() {
            return Err(Lost::new("there is more than the answer"));
        }
        into[..begun.len()].copy_from_slice(begun);
        let mut filled = begun.len();
        while filled < into.len() {
            let got = match self.stream.read(&mut into[filled..]) {
                Ok(got) => got,
                Err(problem) if problem.kind() == io::ErrorKind::Interrupted => continue,
                Err(problem) => return Err(words(&problem, options)),
            };
            if got == 0 {
                return Err(Lost::new(format!(
                    "the answer was cut off after {filled} of {} bytes",
                    head.bytes
                )));
            }
            filled += got;
            if Instant::now() >= end {
                return Err(Lost::new(format!("only {filled} of {} bytes came in time", head.bytes)));
            }
        }
        let Head { status, retry_after, check, keep, .. } = head;
        Ok(Received { status, retry_after, check, body, keep })
    }
}

/// What matters of an answer's head.
struct Head {
    status: u16,
    bytes: u64,
    retry_after: bool,
    check: Option<u64>,
    keep: bool,
}

impl Head {
    /// The head and its length, once all of it is there.
    fn read(bytes: &[u8]) -> Result<Option<(usize, Self)>, Lost> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(bytes);
        let parsed = parsed.map_err(|problem| Lost::new(format!("the answer is no HTTP: {problem}")))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let status = response.code.unwrap_or(0);
        let find = |name: &str| {
            let matching = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(matching.value).ok()
        };
        let number = |name| find(name).and_then(|text| text.trim().parse::<u64>().ok());
        let bytes = if status == 204 { Some(0) } else { number("content-length") };
        let Some(bytes) = bytes.filter(|bytes| *bytes <= BODY_BYTES_MAX) else {
            return Err(Lost::new("the answer does not say how long it is, or is too long"));
        };
        let keep = !find("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let retry_after = find("retry-after").is_some();
        Ok(Some((length, Self { status, bytes, retry_after, check: number(CHECK), keep })))
    }
}

fn words(problem: &io::Error, options: &ClientOptions) -> Lost {
    let reason = match problem.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no answer within {}", shown(options.silence_max))
        }
        io::ErrorKind::ConnectionRefused => "nobody listens there".into(),
        io::ErrorKind::ConnectionReset => "the connection was reset".into(),
        _ => problem.to_string(),
    };
    Lost::new(reason)
}

fn shown(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole_and_refused_when_it_makes_no_sense() {
        let text =
            b"HTTP/1.1 503 Busy\r\nContent-Length: 12\r\nRetry-After: 1\r\nConnection: close\r\n\r\nbody";
        for cut in 1..text.len() - 4 {
            assert!(Head::read(&text[..cut]).is_ok_and(|head| head.is_none()), "{cut}");
        }
        let Ok(Some((length, head))) = Head::read(text) else { panic!("it is whole") };
        assert_eq!((length, head.status, head.bytes), (text.len() - 4, 503, 12));
        assert!(head.retry_after && !head.keep && head.check.is_none());
        for bad in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n",
        ] {
            assert!(Head::read(bad).is_err());
        }
    }
}
