//! Who asks on this host about the whole job: a unix socket of the job's owner, one question and one answer per connection.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ProcessError, Result};
use crate::host::messages::Question;
use crate::job::JobDirectory;
use crate::system;

/// The socket, in the directory of a host.
pub(super) const SOCKET: &str = "host.sock";
const PATIENCE: Duration = Duration::from_secs(4);
const QUESTION_BYTES_MAX: u64 = 4 << 10;
/// Askers at once; more wait until one has its answer.
const ASKERS_MAX: usize = 16;

#[derive(Deserialize)]
struct Asked {
    ask: Question,
}

type Waiting = (Question, SyncSender<Value>);

/// Everybody who asks.
pub(super) struct Askers {
    woken: std::fs::File,
    questions: Receiver<Waiting>,
    waiting: BTreeMap<u64, SyncSender<Value>>,
    next: u64,
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
        let (sender, questions) = channel();
        let wake = Arc::new(std::fs::File::from(wake));
        std::thread::Builder::new()
            .name("penstock-askers".to_owned())
            .spawn(move || attend(&listener, &sender, &wake))
            .map_err(|source| ProcessError::System { call: "thread", source })?;
        Ok(Self { woken: woken.into(), questions, waiting: BTreeMap::new(), next: 0 })
    }

    /// What to poll.
    pub(super) fn number(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// Questions that are new.
    pub(super) fn take(&mut self) -> Vec<(u64, Question)> {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let mut found = Vec::new();
        while let Ok((question, reply)) = self.questions.try_recv() {
            self.next += 1;
            self.waiting.insert(self.next, reply);
            found.push((self.next, question));
        }
        found
    }

    /// Gives an asker its answer.
    pub(super) fn answer(&mut self, ask: u64, answer: Value) {
        if let Some(reply) = self.waiting.remove(&ask) {
            // Who left before the answer gets none.
            let _ = reply.try_send(answer);
        }
    }
}

fn attend(listener: &UnixListener, sender: &Sender<Waiting>, wake: &Arc<std::fs::File>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming().flatten() {
        let (sender, wake) = (sender.clone(), Arc::clone(wake));
        if busy.fetch_add(1, Ordering::SeqCst) >= ASKERS_MAX {
            let _ = converse(&stream, &sender, &wake);
            busy.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let count = Arc::clone(&busy);
        let attended = std::thread::Builder::new().name("penstock-asker".to_owned()).spawn(move || {
            let _ = converse(&stream, &sender, &wake);
            count.fetch_sub(1, Ordering::SeqCst);
        });
        if attended.is_err() {
            busy.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn converse(stream: &UnixStream, sender: &Sender<Waiting>, wake: &std::fs::File) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Asked>(&line) {
        Ok(asked) => {
            let (reply, answers) = sync_channel(1);
            let sent = sender.send((asked.ask, reply)).is_ok();
            let _ = (&*wake).write(b"!");
            let late = json!({"ok": false, "problem": "no answer in time"});
            if sent { answers.recv_timeout(PATIENCE).unwrap_or(late) } else { late }
        }
        Err(problem) => json!({"ok": false, "problem": format!("not a question: {problem}")}),
    };
    (&*stream).write_all(format!("{answer}\n").as_bytes())
}
