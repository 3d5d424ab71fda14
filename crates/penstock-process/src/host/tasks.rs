//! Work that a question needs on this host: a process that belongs to the question and ends with it (P2).
//!
//! A task is a value that says what to `do`. `exec` without `ranks` is a command (`words`), which is run here; its output and how it
//! ended are the answer. All else needs Python: `python -m penstock.process.questions.task` gets the task as JSON on its standard input and
//! answers with parts, as JSON too. Each task has a thread, so the loop of the coordinator never waits.

mod work;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::Result;
use crate::host::Event;
use crate::host::questions::answer::Part;
use crate::host::tasks::work::{Ending, Program, Work};
pub(in crate::host) use crate::host::tasks::work::{MARK, wake};
use crate::job::state::wall_s;
use crate::job::{Job, JobDirectory};
use crate::system;

/// What a helper may say.
const HELPER_BYTES_MAX: usize = 2 << 20;
/// Output of a command that is kept; all of it is counted and compared.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// What a shell says when a command cannot be executed, is not there, or took too long.
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;
const TOO_LATE: i32 = 124;
/// A helper stops by itself so long before it is ended: this share of its time, and at most so long.
const HELPER_SHARE: u64 = 8;
const HELPER_MS: u64 = 250;
/// How long all of them may take to end with the job.
const END: Duration = Duration::from_secs(1);
/// What later jobs are to know of hosts is written within this; a job that ends meanwhile waits so long for it.
const REMEMBER_MS: u64 = 20_000;
const REMEMBER_END: Duration = Duration::from_secs(3);

/// Clocks of two hosts that agree so far agree.
const CLOCK_MS: i64 = 5;

type Found = std::result::Result<Vec<Part>, String>;

/// The tasks of this host.
pub(super) struct Tasks {
    directory: JobDirectory,
    python: Option<String>,
    folder: Option<String>,
    /// Everyone who reaches the endpoint is a host of this job, so nobody's commands are run.
    open: bool,
    /// Closed to end a task.
    under_way: BTreeMap<u64, OwnedFd>,
    /// How often failures of hosts were to be written down; the numbers up to it belong to that, as those of questions are large and random.
    remembered: u64,
    count: Arc<AtomicUsize>,
    done: Receiver<(u64, Found)>,
    sender: Sender<(u64, Found)>,
    woken: std::fs::File,
    wake: Arc<std::fs::File>,
}

impl Tasks {
    /// None yet.
    pub(super) fn new(directory: &JobDirectory, job: &Job, open: bool) -> Result<Self> {
        let (woken, wake) = system::pipe()?;
        system::set_nonblocking(&woken)?;
        system::set_nonblocking(&wake)?;
        let (sender, done) = channel();
        Ok(Self {
            directory: directory.clone(),
            python: job.python.clone(),
            folder: job.directory.clone(),
            open,
            under_way: BTreeMap::new(),
            remembered: 0,
            count: Arc::default(),
            done,
            sender,
            woken: woken.into(),
            wake: Arc::new(wake.into()),
        })
    }

    /// What to poll.
    pub(super) fn number(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// How many processes there are for questions; others of this host are counted there too.
    pub(super) fn processes(&self) -> &Arc<AtomicUsize> {
        &self.count
    }

    /// Those that are done.
    pub(super) fn take(&mut self) -> Vec<Event> {
        while (&self.woken).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let done: Vec<(u64, Found)> = self.done.try_iter().collect();
        done.iter().for_each(|(question, _)| drop(self.under_way.remove(question)));
        done.into_iter().map(|(question, found)| Event::Done(question, found)).collect()
    }

    /// Begins one. What cannot be begun is done at once, and says why.
    pub(super) fn begin(&mut self, question: u64, task: Value, limit_ms: u64) {
        if let Err(why) = self.try_begin(question, task, limit_ms) {
            let _ = self.sender.send((question, Err(why)));
            wake(&self.wake);
        }
    }

    fn try_begin(&mut self, question: u64, task: Value, limit_ms: u64) -> std::result::Result<(), String> {
        if !task.is_object() {
            return Err("there is nothing to do; whoever asks has another version".to_owned());
        }
        let is_command = task["do"] == "exec";
        if is_command && self.open {
            return Err("the job was joined with --no-key, so its hosts take no commands".to_owned());
        }
        let is_plain = is_command && task["ranks"].is_null();
        let program = if is_plain { self.command(&task)? } else { self.helper(task, limit_ms)? };
        let failed = |problem: std::io::Error| format!("no thread for it: {problem}");
        let (cancel, end) = system::pipe().map_err(|problem| problem.to_string())?;
        self.count.fetch_add(1, Ordering::SeqCst);
        let work = Work {
            question,
            until: Instant::now() + Duration::from_millis(limit_ms),
            cancel,
            count: Arc::clone(&self.count),
        };
        let (sender, waker) = (self.sender.clone(), Arc::clone(&self.wake));
        let run = move || {
            let ending = work.run(program);
            let found =
                if is_plain { Ok(vec![command_part(ending, limit_ms)]) } else { helper_parts(ending) };
            let _ = sender.send((question, found));
            wake(&waker);
        };
        let started = std::thread::Builder::new().name("penstock-task".to_owned()).spawn(run);
        if let Err(problem) = started {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(failed(problem));
        }
        self.under_way.insert(question, end);
        Ok(())
    }

    fn command(&self, task: &Value) -> std::result::Result<Program, String> {
        let words = task["words"].as_array().into_iter().flatten();
        let words: Vec<String> = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
        if words.is_empty() || words.iter().any(|word| word.contains('\0')) {
            return Err("there is no command".to_owned());
        }
        let folder = self.folder.clone().filter(|folder| std::path::Path::new(folder).is_dir());
        Ok(Program { words, folder, input: None, output_bytes_max: OUTPUT_BYTES_MAX })
    }

    fn helper(&self, mut task: Value, limit_ms: u64) -> std::result::Result<Program, String> {
        let python = self.python.clone().ok_or("the job knows no Python there")?;
        let own_ms = limit_ms - (limit_ms / HELPER_SHARE).min(HELPER_MS);
        task["limit_s"] = json!(own_ms as f64 / 1000.0);
        note_clock(&mut task);
        let place = self.directory.path().to_string_lossy().into_owned();
        let words = ["-m", "penstock.process.questions.task"].map(str::to_owned);
        let words = [python].into_iter().chain(words).chain([place]).collect();
        let input = Some(task.to_string().into_bytes());
        Ok(Program { words, folder: None, input, output_bytes_max: HELPER_BYTES_MAX })
    }

    /// Has failures of hosts written down where later jobs look.
    pub(super) fn remember(&mut self, failures: Vec<Value>) {
        self.remembered += 1;
        let task = json!({"do": "failures", "failures": failures});
        self.begin(self.remembered, task, REMEMBER_MS);
    }

    fn remembers(&self) -> bool {
        self.under_way.range(..=self.remembered).next().is_some()
    }

    /// Nobody waits for it any more. It is forgotten when it has said that it is done.
    pub(super) fn end(&mut self, question: u64) {
        self.under_way.remove(&question);
    }

    /// The job ends, and so do all tasks.
    pub(super) fn end_all(&mut self) {
        let until = Instant::now() + REMEMBER_END;
        while self.remembers() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            // What questions wanted is of no use any more; what is remembered is done.
            drop(self.take());
        }
        self.under_way.clear();
        let until = Instant::now() + END;
        while self.count.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Where the leader's clock is told, what to add to this host's to get it; less than a message takes is no difference that can be told.
pub(super) fn note_clock(told: &mut Value) {
    if let Some(leader_ms) = told["leader_wall_ms"].as_i64() {
        let clock_ms = leader_ms - (wall_s() * 1000.0) as i64;
        told["clock_ms"] = json!(if clock_ms.abs() < CLOCK_MS { 0 } else { clock_ms });
    }
}

/// How a command ended and what it wrote.
fn command_part(ending: Ending, limit_ms: u64) -> Part {
    let Ending { code, unstarted, late, output, digest, cut, .. } = ending;
    let (mut head, mut about) = (json!({"code": code}), Value::Null);
    if let Some(problem) = unstarted {
        let missing = problem.kind() == std::io::ErrorKind::NotFound;
        let why = if missing { "not found".to_owned() } else { problem.to_string() };
        head = json!({"code": if missing { NOT_FOUND } else { CANNOT_EXECUTE }, "unstarted": why});
    } else if late {
        // How long it had is another time on each level of the tree, and no difference.
        (head, about) = (json!({"code": TOO_LATE, "late": true}), json!({"limit_ms": limit_ms}));
    }
    let digest = work::digest_of(&[head.to_string().as_bytes(), &digest]);
    Part { digest, head, about, body: String::from_utf8_lossy(&output).into_owned(), cut, ..Part::default() }
}

/// What a helper answered.
fn helper_parts(ending: Ending) -> Found {
    let Ending { code, unstarted, late, output, cut, said, .. } = ending;
    if let Some(problem) = unstarted {
        return Err(format!("its Python cannot be started: {problem}"));
    }
    if late {
        return Err("what was to be done there took too long".to_owned());
    }
    if cut > 0 {
        return Err(format!("its helper said more than {HELPER_BYTES_MAX} bytes"));
    }
    let answer: Value = serde_json::from_slice(&output).unwrap_or_default();
    if let Some(why) = answer["refused"].as_str() {
        return Err(why.to_owned());
    }
    match serde_json::from_value::<Vec<Part>>(answer["parts"].clone()) {
        Ok(parts) => Ok(parts),
        Err(_) => Err(format!("its helper ended with {code}: {}", said.lines().last().unwrap_or("no words"))),
    }
}
