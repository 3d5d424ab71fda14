//! Who asks on this host about the whole job: a unix socket of the job's owner, one question and one answer per connection. Who follows
//! says so and keeps the connection.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ProcessError, Result};
use crate::host::Event;
use crate::host::messages::Question;
use crate::host::questions::{OPEN_MAX, PATIENCE_MAX_MS, PATIENCE_MS};
use crate::job::JobDirectory;
use crate::system;

/// The socket, in the directory of a host.
pub(super) const SOCKET: &str = "host.sock";
/// How long a line may take, and an answer beyond the patience of who asked.
const PATIENCE: Duration = Duration::from_secs(4);
const QUESTION_BYTES_MAX: u64 = 64 << 10;
/// Askers at once: more than questions may be under way, so that who is too many gets an account.
const ASKERS_MAX: usize = OPEN_MAX + 16;
/// How often somebody who waits is looked at: who left needs no answer.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    ask: Option<Question>,
    #[serde(default = "usual_patience")]
    patience_ms: u64,
}

fn usual_patience() -> u64 {
    PATIENCE_MS
}

/// What comes from who asks, with its number.
enum Word {
    Asked(u64, Question, u64, SyncSender<Value>),
    Left(u64),
    Follows(UnixStream),
}

/// Everybody who asks.
pub(super) struct Askers {
    woken: std::fs::File,
    words: Receiver<Word>,
    waiting: BTreeMap<u64, SyncSender<Value>>,
    followers: Vec<UnixStream>,
}

impl Askers {
    /// Listens in a directory from now on.
    pub(super) fn listen(directory: &JobDirectory) -> Result<Self> {
        let path = directory.file(SOCKET);
        let _ = std::fs::remove_file(&path);
        let failed = |source| ProcessError::File { verb: "listen at", path: path.clone(), source };
        // Addresses of sockets are short; through its open descriptor the directory may lie as deep as it likes.
        let folder = std::fs::File::open(directory.path()).map_err(failed)?;
        let listener =
            UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd())).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let (sender, words) = channel();
        let wake = Arc::new(std::fs::File::from(wake));
        std::thread::Builder::new()
            .name("penstock-askers".to_owned())
            .spawn(move || attend(&listener, &sender, &wake))
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        Ok(Self { woken: woken.into(), words, waiting: BTreeMap::new(), followers: Vec::new() })
    }

    /// What to poll.
    pub(super) fn number(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// Questions that are new, and who has left.
    pub(super) fn take(&mut self) -> Vec<Event> {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let words: Vec<Word> = self.words.try_iter().collect();
        let event = |word| match word {
            Word::Asked(ask, question, patience_ms, reply) => {
                self.waiting.insert(ask, reply);
                Some(Event::Asked(ask, question, patience_ms))
            }
            Word::Left(ask) => self.waiting.remove(&ask).map(|_| Event::Left(ask)),
            Word::Follows(stream) => {
                self.followers.push(stream);
                None
            }
        };
        words.into_iter().filter_map(event).collect()
    }

    /// Connections of those who follow since the last look.
    pub(super) fn take_followers(&mut self) -> Vec<UnixStream> {
        std::mem::take(&mut self.followers)
    }

    /// Gives an asker its answer.
    pub(super) fn answer(&mut self, ask: u64, answer: Value) {
        if let Some(reply) = self.waiting.remove(&ask) {
            // Who left before the answer gets none.
            let _ = reply.try_send(answer);
        }
    }
}

fn attend(listener: &UnixListener, sender: &Sender<Word>, wake: &Arc<std::fs::File>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for (ask, stream) in (1..).zip(listener.incoming().flatten()) {
        let (sender, wake) = (sender.clone(), Arc::clone(wake));
        if busy.fetch_add(1, Ordering::SeqCst) >= ASKERS_MAX {
            let refusal =
                json!({"ok": false, "problem": format!("{ASKERS_MAX} others ask on this host already")});
            let _ = (&stream).write_all(format!("{refusal}\n").as_bytes());
            busy.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let count = Arc::clone(&busy);
        let attended = std::thread::Builder::new().name("penstock-asker".to_owned()).spawn(move || {
            let _ = converse(ask, &stream, &sender, &wake);
            count.fetch_sub(1, Ordering::SeqCst);
        });
        if attended.is_err() {
            busy.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn converse(
    ask: u64,
    stream: &UnixStream,
    sender: &Sender<Word>,
    wake: &std::fs::File,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Asked>(&line) {
        Ok(Asked { follow: true, .. }) => {
            let _ = sender.send(Word::Follows(stream.try_clone()?));
            let _ = (&*wake).write(b"!");
            return Ok(());
        }
        Ok(Asked { ask: None, .. }) => json!({"ok": false, "problem": "nothing is asked"}),
        Ok(Asked { ask: Some(question), patience_ms, .. }) => {
            let (reply, answers) = sync_channel(1);
            let patience_ms = patience_ms.min(PATIENCE_MAX_MS);
            let until = Instant::now() + Duration::from_millis(patience_ms) + PATIENCE;
            let _ = sender.send(Word::Asked(ask, question, patience_ms, reply));
            let _ = (&*wake).write(b"!");
            let answer = await_answer(stream, &answers, until);
            if answer.is_none() {
                let _ = sender.send(Word::Left(ask));
                let _ = (&*wake).write(b"!");
            }
            answer.unwrap_or_else(|| json!({"ok": false, "problem": "no answer in time"}))
        }
        Err(problem) => json!({"ok": false, "problem": format!("not a question: {problem}")}),
    };
    (&*stream).write_all(format!("{answer}\n").as_bytes())
}

/// The answer; nothing when it does not come, or nobody is there any more to get it.
fn await_answer(stream: &UnixStream, answers: &Receiver<Value>, until: Instant) -> Option<Value> {
    while Instant::now() < until {
        match answers.recv_timeout(LOOK) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Who has asked closes one half of the stream; who has left, both.
        let mut interests = [system::interest(stream.as_raw_fd(), 0)];
        system::poll(&mut interests, Some(Duration::ZERO));
        if interests[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
            return None;
        }
    }
    None
}
