//! Asking until somebody answers: another server, another time, within a limit.
//!
//! Because any server answers for any step, whom to ask is a matter of speed alone, and asking twice does no harm.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::ClientOptions;
use super::connection::{Connection, Lost, Received};
use super::credential::Credential;
use super::pool::{Buffer, Pool};
use super::standing::Standings;
use crate::PROTOCOL;
use crate::body::check_of;
use crate::error::ClientError;

/// A good answer: the status is 200, or 204 where there is nothing.
pub struct Answer {
    /// See above.
    pub status: u16,
    /// What came.
    pub body: Buffer,
    /// Which server it came from.
    pub server: usize,
}

/// A thread's own connection, kept from one request to the next.
#[derive(Default)]
pub struct Line(Option<(usize, Connection)>);

/// Asks servers for steps until one answers or the limit is over.
pub struct Client {
    options: ClientOptions,
    /// What it calls itself, so that servers can give each client its share.
    name: String,
    standings: Mutex<Standings>,
    closed: AtomicBool,
    /// Wakes those who wait for a server to be asked again.
    closing: (Mutex<()>, Condvar),
    /// Open sockets, to be shut when the client closes, so that no thread waits for bytes any more.
    sockets: Mutex<Vec<Weak<TcpStream>>>,
    pool: Arc<Pool>,
    requests: AtomicU64,
    failures: AtomicU64,
    corrupt: AtomicU64,
}

/// What to do after one try.
enum Next {
    Done(Answer),
    /// Something is wrong that another try may mend.
    Again,
    /// The server is alive and says that it takes longer.
    Patience,
    /// This server says no; others may say something else.
    Refused(Bytes),
    /// All servers would say no.
    Final(Bytes),
}

impl Client {
    /// A client of some servers; nothing is asked yet.
    pub fn new(options: ClientOptions) -> Self {
        let standings = Mutex::new(Standings::new(options.servers.len(), options.first));
        Self {
            options,
            name: format!("{:016x}", fastrand::u64(..)),
            standings,
            closed: AtomicBool::new(false),
            closing: Default::default(),
            sockets: Mutex::default(),
            pool: Arc::default(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }
    }

    /// Asks until a server gives an answer that `turn` accepts; what it does not accept was damaged on the way.
    pub fn ask<T>(
        &self,
        line: &mut Line,
        path: &str,
        turn: &dyn Fn(Answer) -> Result<T, String>,
    ) -> Result<T, ClientError> {
        let (begun, count) = (Instant::now(), self.options.servers.len());
        let mut refused: Vec<Option<Bytes>> = vec![None; count];
        let mut tries = 0;
        loop {
            let left_out: Vec<bool> = refused.iter().map(Option::is_some).collect();
            let chosen = self.standings().choose(Instant::now(), &left_out);
            let all_down = (0..count).all(|server| left_out[server] || self.standings().is_down(server));
            let refusal = refused.iter().enumerate().find_map(|(server, said)| Some((server, said.clone()?)));
            if let Some((server, document)) = refusal.filter(|_| all_down) {
                return Err(ClientError::Refused { server: self.server_name(server), document });
            }
            let Some((server, when)) = chosen else { return Err(self.unavailable(tries, begun)) };
            if begun.elapsed() >= self.options.limit {
                return Err(self.unavailable(tries, begun));
            }
            self.wait_until(when.min(begun + self.options.limit))?;
            tries += 1;
            match self.once(line, server, path, begun + self.options.limit) {
                Next::Done(answer) => match turn(answer) {
                    Ok(turned) => {
                        self.standings().good(server);
                        return Ok(turned);
                    }
                    Err(reason) => {
                        *line = Line(None);
                        self.corrupt.fetch_add(1, Ordering::Relaxed);
                        self.bad(server, format!("what came was damaged on the way: {reason}"));
                    }
                },
                Next::Again | Next::Patience => {}
                Next::Refused(document) => refused[server] = Some(document),
                Next::Final(document) => {
                    return Err(ClientError::Refused { server: self.server_name(server), document });
                }
            }
        }
    }

    /// Asks one server once: for what must be known of each.
    pub fn ask_one(&self, server: usize, path: &str) -> Result<Answer, ClientError> {
        let begun = Instant::now();
        match self.once(&mut Line(None), server, path, begun + self.options.silence_max * 2) {
            Next::Done(answer) => Ok(answer),
            Next::Again | Next::Patience => Err(self.unavailable(1, begun)),
            Next::Refused(document) | Next::Final(document) => {
                Err(ClientError::Refused { server: self.server_name(server), document })
            }
        }
    }

    fn once(&self, line: &mut Line, server: usize, path: &str, end: Instant) -> Next {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.received(line, server, path, end) {
            Ok(received) => self.judged(server, received),
            Err(lost) => {
                *line = Line(None);
                self.bad(server, lost.reason);
                Next::Again
            }
        }
    }

    fn received(&self, line: &mut Line, server: usize, path: &str, end: Instant) -> Result<Received, Lost> {
        let request = self.request(server, path);
        if let Some((_, mut kept)) = line.0.take().filter(|(other, _)| *other == server) {
            match kept.get(&request, &self.options, &self.pool, end) {
                Ok(received) => return Ok(self.keep(line, server, kept, received)),
                // A connection that was idle for too long says nothing about the server.
                Err(lost) if !lost.stale => return Err(lost),
                Err(_) => {}
            }
        }
        let mut fresh = Connection::open(&self.options, server, &|socket| self.register(socket))?;
        let received = fresh.get(&request, &self.options, &self.pool, end)?;
        Ok(self.keep(line, server, fresh, received))
    }

    fn keep(&self, line: &mut Line, server: usize, connection: Connection, received: Received) -> Received {
        if received.keep {
            line.0 = Some((server, connection));
        }
        received
    }

    fn judged(&self, server: usize, received: Received) -> Next {
        let Received { status, retry_after, check, body, .. } = received;
        match status {
            200 | 204 if check.is_none_or(|check| check == check_of(body.as_ref())) => {
                Next::Done(Answer { status, body, server })
            }
            200 | 204 => {
                self.corrupt.fetch_add(1, Ordering::Relaxed);
                self.bad(server, "what came was damaged on the way".into());
                Next::Again
            }
            503 if !retry_after => Next::Patience,
            503 | 500 | 502 | 504 => {
                self.bad(server, said(body.as_ref()));
                Next::Again
            }
            401 | 403 | 422 => {
                self.standings().servers[server].words = Some(said(body.as_ref()));
                Next::Refused(Bytes::copy_from_slice(body.as_ref()))
            }
            _ => Next::Final(Bytes::copy_from_slice(body.as_ref())),
        }
    }

    fn request(&self, server: usize, path: &str) -> String {
        let host = self.server_name(server);
        // A live server answers in half the time after which it counts as dead, even if it has no batch yet.
        let patience_ms = self.options.silence_max.as_millis() / 2;
        let credential = self.options.credentials.get(server).and_then(Option::as_ref);
        let token = credential.and_then(Credential::token);
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\npenstock-protocol: {PROTOCOL}\r\npenstock-client: {}\r\npenstock-patience-ms: {patience_ms}\r\n{token}\r\n",
            self.name
        )
    }

    fn bad(&self, server: usize, words: String) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.standings().bad(server, words, Instant::now(), fastrand::f64());
    }

    fn unavailable(&self, tries: u32, begun: Instant) -> ClientError {
        let words = |(server, words): (usize, Option<String>)| {
            (self.server_name(server), words.unwrap_or_else(|| "was not asked".into()))
        };
        let last: Vec<_> = self.standings().servers.iter().map(|standing| standing.words.clone()).collect();
        let servers = last.into_iter().enumerate().map(words).collect();
        ClientError::Unavailable { servers, tries, waited: begun.elapsed() }
    }

    /// Waits until a moment, or until the client is closed.
    fn wait_until(&self, when: Instant) -> Result<(), ClientError> {
        let mut held = self.closing.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(ClientError::Closed);
            }
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            held = self.closing.1.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends waits, now and later.
    pub fn close(&self) {
        let held = self.closing.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::Release);
        drop(held);
        self.closing.1.notify_all();
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        // A socket that cannot be shut is closed already.
        sockets.drain(..).filter_map(|socket| socket.upgrade()).for_each(|socket| {
            let _ = socket.shutdown(Shutdown::Both);
        });
    }

    fn register(&self, socket: &Arc<TcpStream>) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
        if self.closed.load(Ordering::Acquire) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Host and port of a server.
    pub fn server_name(&self, server: usize) -> String {
        match self.options.servers.get(server) {
            Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
            Some((host, port)) => format!("{host}:{port}"),
            None => String::new(),
        }
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.options.servers.len()
    }

    /// Requests, failures, damaged answers, and how often another server took over.
    pub fn counts(&self) -> [u64; 4] {
        let [requests, failures, corrupt] =
            [&self.requests, &self.failures, &self.corrupt].map(|count| count.load(Ordering::Relaxed));
        [requests, failures, corrupt, self.standings().moved]
    }

    fn standings(&self) -> MutexGuard<'_, Standings> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a server may say nothing.
    pub fn silence_max(&self) -> Duration {
        self.options.silence_max
    }
}

/// The message of a problem, or the beginning of what came instead.
fn said(document: &[u8]) -> String {
    let read = serde_json::from_slice::<Value>(document).ok();
    let message = read.as_ref().and_then(|value| value.get("message")?.as_str());
    let shown = || String::from_utf8_lossy(&document[..document.len().min(120)]).into_owned();
    message.map_or_else(shown, str::to_owned)
}
