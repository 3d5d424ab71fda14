//! The data service across the border: a server that makes batches for others, and the client's side of a feed.

use crate::error;
use crate::feed::FeedBatch;
use crate::plan::{FeedPlan, Growth, PartPlan};
use crate::source::Raised;
use crate::structure::structure;
use penstock_data::feed::{FeedError, MakeBatch, Maker, wire};
use penstock_service::{
    Ahead, BatchesOf, Body, Client, ClientError, ClientOptions, Credential, Fetched, Hosts, Lane, Line,
    MakeBodies, Options, PROTOCOL, Problem, Server, Token, body_of, client_config, server_config,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a wait goes on before signals are looked for.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// What makes the batches of a server, with the Python functions that it needs.
struct Makers {
    maker: Maker,
    growth: Growth,
    raised: Raised,
    /// Why a source does not grow any more.
    failures: Mutex<HashMap<usize, PyErr>>,
    /// `finish(made) -> bytes`, where Python has a hand in batches.
    finish: Option<Py<PyAny>>,
    /// `origin(source, sample) -> bytes`, as JSON.
    origin: Py<PyAny>,
    /// Blocks that are packed to say how often packs recur.
    recurrence_blocks: u64,
}

impl Makers {
    fn problem(&self, found: FeedError) -> Problem {
        if matches!(found, FeedError::Closed) {
            return Problem::busy("it is stopping");
        }
        Python::attach(|py| {
            let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            let failed = match &found {
                FeedError::Unmeasured { source_number, .. } => failures.get(source_number),
                _ => None,
            };
            let raised = failed.map(|failure| failure.clone_ref(py)).or_else(|| self.raised.take());
            told(py, raised.unwrap_or_else(|| error::from_feed(py, found)))
        })
    }

    fn for_lane(&self, lane: Lane) -> Maker {
        self.maker.for_lane((lane.number, lane.of))
    }

    fn has(&self, numbers: &[(String, u64)]) -> Result<Vec<u8>, Problem> {
        let number = |name: &str| numbers.iter().find(|(other, _)| other == name).map_or(0, |(_, n)| *n);
        let lane = self.for_lane(Lane { number: number("lane"), of: number("of") });
        let step = lane.first_from(number("step"));
        let known = lane.wait(step, SIGNAL_INTERVAL).map_err(|reason| self.problem(reason))?;
        if !known {
            return Err(Problem::busy("it has not measured so far yet"));
        }
        Ok(lane.has_step(step).map_err(|reason| self.problem(reason))?.to_string().into())
    }
}

/// An exception as it travels.
fn told(py: Python<'_>, problem: PyErr) -> Problem {
    let written = py
        .import("penstock.errors.transport")
        .and_then(|module| module.call_method1("to_json", (problem.value(py),)))
        .and_then(|text| text.extract::<Vec<u8>>());
    match written {
        Ok(document) => Problem::told(document),
        Err(problem) => Problem::new(500, "ServiceError", &problem.to_string(), serde_json::json!({})),
    }
}

impl MakeBodies for Makers {
    fn first_from(&self, step: u64) -> u64 {
        self.maker.first_from(step)
    }

    fn check(&self, lane: Lane, step: u64) -> Result<(), Problem> {
        self.for_lane(lane).batch_bytes(step).map(|_| ()).map_err(|reason| self.problem(reason))
    }

    fn wait(&self, step: u64, timeout: Duration) -> Result<bool, Problem> {
        self.maker.wait(step, timeout).map_err(|reason| self.problem(reason))
    }

    fn make(&self, lane: Lane, step: u64) -> Result<Option<Body>, Problem> {
        let outcome = self.for_lane(lane).make(step).map_err(|reason| self.problem(reason))?;
        let Some(batch) = outcome else { return Ok(None) };
        let Some(finish) = &self.finish else { return Ok(Some(body_of(batch))) };
        Python::attach(|py| {
            let finished = finish.call1(py, (FeedBatch::new(batch),));
            let bytes = finished.and_then(|bytes| Ok(bytes.extract::<PyBackedBytes>(py)?));
            bytes
                .map(|bytes| Some(Body::of(bytes::Bytes::from_owner(bytes))))
                .map_err(|reason| told(py, reason))
        })
    }

    fn answer(&self, question: &str, numbers: &[(String, u64)]) -> Result<Vec<u8>, Problem> {
        let number = |name: &str| numbers.iter().find(|(other, _)| other == name).map_or(0, |(_, n)| *n);
        let json = |found: Result<serde_json::Value, FeedError>| {
            found.map(|value| value.to_string().into()).map_err(|reason| self.problem(reason))
        };
        match question {
            "epochs" => {
                json(self.maker.epochs_before(number("step")).map(|epochs| serde_json::json!(epochs)))
            }
            "recurrence" => {
                let shares = self.maker.streams().iter().map(|each| each.recurrence(self.recurrence_blocks));
                json(shares.collect::<Result<Vec<_>, _>>().map(|shares| serde_json::json!(shares)))
            }
            "has" => self.has(numbers),
            _ => Python::attach(|py| {
                let found = self.origin.call1(py, (number("source"), number("sample")));
                found.and_then(|text| text.extract::<Vec<u8>>(py)).map_err(|reason| told(py, reason))
            }),
        }
    }

    fn stop(&self) {
        self.maker.stop();
    }
}

structure! {
    /// What bounds a server, as Python passes it.
    pub(crate) struct ServerPlan {
        threads: usize,
        memory_bytes: usize,
        forget_after_s: f64,
        requests_max: usize,
        token: Option<String>,
        /// The names under which it answers, and whether any literal address, and any name, will do.
        hosts: (Vec<String>, bool, bool),
        /// Certificate and key.
        tls: Option<(PathBuf, PathBuf)>,
        head_timeout_s: f64,
        write_timeout_s: f64,
    }
}

impl ServerPlan {
    fn options(self, py: Python<'_>) -> PyResult<Options> {
        let tls = self.tls.map(|(certificate, key)| server_config(&certificate, &key)).transpose();
        let (names, any_address, any_name) = self.hosts;
        Ok(Options {
            threads: self.threads,
            memory_bytes: self.memory_bytes,
            forget_after: Duration::from_secs_f64(self.forget_after_s),
            requests_max: self.requests_max,
            token: self.token.as_deref().map(Token::new),
            hosts: Some(Hosts { names, any_address, any_name }),
            tls: tls.map_err(|reason| error::from_serve(py, reason))?,
            head_timeout: Duration::from_secs_f64(self.head_timeout_s),
            write_timeout: Duration::from_secs_f64(self.write_timeout_s),
            ..Options::default()
        })
    }
}

/// Makes batches of a plan and serves them.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct BatchServer {
    server: Server,
    makers: Arc<Makers>,
}

#[pymethods]
impl BatchServer {
    #[new]
    fn new(
        py: Python<'_>,
        plan: FeedPlan,
        bind: (String, u16),
        told: (Vec<u8>, String),
        functions: (Option<Py<PyAny>>, Py<PyAny>, Py<PyAny>),
        recurrence_blocks: u64,
        options: ServerPlan,
    ) -> PyResult<Self> {
        let options = options.options(py)?;
        let raised = Raised::default();
        let fail = |found: FeedError| raised.take().unwrap_or_else(|| error::from_feed(py, found));
        let (maker, growth) = py.detach(|| plan.maker((0, 1), &raised))?.map_err(fail)?;
        let (finish, origin, bound) = functions;
        let failures = Mutex::default();
        let makers = Makers { maker, growth, raised, failures, finish, origin, recurrence_blocks };
        let makers = Arc::new(makers);
        let making = Arc::clone(&makers) as Arc<dyn MakeBodies>;
        let (host, port) = bind;
        let listener = py.detach(|| TcpListener::bind((host.as_str(), port)))?;
        // Before anything is answered: what a client needs to be let in is then in its place.
        bound.call1(py, (listener.local_addr()?.port(),))?;
        let started = py.detach(|| Server::start(listener, making, told, options));
        Ok(Self { server: started.map_err(|reason| error::from_serve(py, reason))?, makers })
    }

    /// Host and port that it listens on.
    fn address(&self) -> (String, u16) {
        let address = self.server.address();
        (address.ip().to_string(), address.port())
    }

    /// Counters since the start, as JSON.
    fn statistics(&self) -> String {
        self.server.statistics()
    }

    /// Refuses what is new, lets what is being sent be finished, and ends; whether all was sent in time.
    fn stop(&self, py: Python<'_>, limit_s: f64) -> bool {
        py.detach(|| self.server.stop(Duration::from_secs_f64(limit_s)))
    }

    /// Adds the next part of a source that grows.
    fn add_part(&self, py: Python<'_>, source: usize, part: PartPlan) -> PyResult<()> {
        let makers = &self.makers;
        let added = makers
            .growth
            .part(source, part)?
            .and_then(|(part, epochs)| py.detach(|| makers.maker.add_part(source, part, epochs)));
        added.map_err(|reason| error::from_feed(py, reason))
    }

    /// Says that no more parts of a source will come; steps that need more get the exception.
    fn fail_source(&self, source: usize, problem: Bound<'_, PyAny>) {
        let reason = problem.to_string();
        let failure = PyErr::from_value(problem);
        self.makers.failures.lock().unwrap_or_else(PoisonError::into_inner).insert(source, failure);
        self.makers.maker.fail(source, FeedError::Unmeasured { source_number: source, reason });
    }

    /// How many rows of each source the furthest step that was begun needs.
    fn wanted(&self) -> Vec<u64> {
        self.makers.maker.wanted()
    }
}

structure! {
    /// Whom a client asks, as Python passes it.
    pub(crate) struct ClientPlan {
        servers: Vec<(String, u16)>,
        /// What each server is shown.
        credentials: Vec<Option<CredentialPlan>>,
        tls: bool,
        authorities: Option<PathBuf>,
        first: usize,
        connect_timeout_s: f64,
        silence_max_s: f64,
        limit_s: f64,
    }
}

impl ClientPlan {
    fn client(self, py: Python<'_>) -> PyResult<Arc<Client>> {
        let tls = self.tls.then(|| client_config(self.authorities.as_deref())).transpose();
        Ok(Arc::new(Client::new(ClientOptions {
            servers: self.servers,
            credentials: self
                .credentials
                .into_iter()
                .map(|each| each.map(CredentialPlan::credential))
                .collect(),
            tls: tls.map_err(|reason| error::from_serve(py, reason))?,
            first: self.first,
            connect_timeout: Duration::from_secs_f64(self.connect_timeout_s),
            silence_max: Duration::from_secs_f64(self.silence_max_s),
            limit: Duration::from_secs_f64(self.limit_s),
        })))
    }
}

/// A token as text, or the path of the file that has it.
#[derive(FromPyObject)]
enum CredentialPlan {
    Text(String),
    File(PathBuf),
}

impl CredentialPlan {
    fn credential(self) -> Credential {
        match self {
            Self::Text(text) => Credential::Text(text),
            Self::File(path) => Credential::File(path),
        }
    }
}

/// Asks servers questions.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct ServiceClient {
    client: Arc<Client>,
}

#[pymethods]
impl ServiceClient {
    #[new]
    fn new(py: Python<'_>, options: ClientPlan) -> PyResult<Self> {
        Ok(Self { client: options.client(py)? })
    }

    /// The protocol that is spoken, and the layout of batches.
    #[staticmethod]
    fn protocol() -> (u32, u32) {
        (PROTOCOL, wire::VERSION)
    }

    /// What the first server that answers says.
    fn ask<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyBytes>> {
        let (client, path) = (Arc::clone(&self.client), path.to_owned());
        let asking = std::thread::Builder::new()
            .name("penstock-ask".into())
            .spawn(move || client.ask(&mut Line::default(), &path, &|answer| Ok(answer.body)))?;
        while !py.detach(|| {
            std::thread::park_timeout(Duration::from_millis(1));
            asking.is_finished()
        }) {
            if let Err(signal) = py.check_signals() {
                self.client.close();
                return Err(signal);
            }
        }
        match asking.join() {
            Ok(answer) => {
                let body = answer.map_err(|reason| error::from_client(py, reason))?;
                Ok(PyBytes::new(py, body.as_ref()))
            }
            Err(_) => Err(error::from_client(py, ClientError::Closed)),
        }
    }

    /// What one server says, asked once.
    fn ask_one<'py>(&self, py: Python<'py>, server: usize, path: &str) -> PyResult<Bound<'py, PyBytes>> {
        let answer = py.detach(|| self.client.ask_one(server, path));
        let answer = answer.map_err(|reason| error::from_client(py, reason))?;
        Ok(PyBytes::new(py, answer.body.as_ref()))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }
}

structure! {
    /// What a feed wants of servers.
    pub(crate) struct LaneRequest {
        /// Its number, and how many lanes there are.
        lane: (u64, u64),
        /// The name of the plan.
        plan: String,
        /// Steps that are left out.
        skips: Vec<(u64, u64)>,
        /// Whether Python reads the batches.
        finished: bool,
    }
}

/// Batches of one lane, read ahead from servers.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct ServiceFeed {
    ahead: Ahead<BatchesOf>,
    client: Arc<Client>,
}

#[pymethods]
impl ServiceFeed {
    #[new]
    fn new(
        py: Python<'_>,
        options: ClientPlan,
        wanted: LaneRequest,
        step: u64,
        threads: usize,
        memory_bytes: usize,
    ) -> PyResult<Self> {
        let client = options.client(py)?;
        let batches = BatchesOf {
            lane: Lane { number: wanted.lane.0, of: wanted.lane.1 },
            plan: wanted.plan,
            skips: wanted.skips.into_iter().map(|(first, stop)| first..stop).collect(),
            finished: wanted.finished,
        };
        let ahead = Ahead::start(Arc::clone(&client), batches, step, threads, memory_bytes);
        Ok(Self { ahead: ahead.map_err(|reason| error::from_client(py, reason))?, client })
    }

    /// The next batch, or its bytes where Python reads them; None at the end of the stream.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            match py.detach(|| self.ahead.next(SIGNAL_INTERVAL)) {
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(Fetched::Tokens(batch)))) => {
                    return Ok(Some(Bound::new(py, FeedBatch::new(batch))?.into_any()));
                }
                Ok(Ok(Some(Fetched::Finished(body)))) => {
                    return Ok(Some(PyBytes::new(py, body.as_ref()).into_any()));
                }
                Ok(Err(())) => py.check_signals()?,
                Err(reason) => return Err(error::from_client(py, reason)),
            }
        }
    }

    /// Batches that have arrived and wait.
    fn ready(&self) -> usize {
        self.ahead.ready()
    }

    /// Batches delivered, batches ready, and the last waits in seconds (f64, as bytes).
    fn waits<'py>(&self, py: Python<'py>) -> (u64, usize, Bound<'py, PyBytes>) {
        let waits = self.ahead.waits();
        let bytes: Vec<u8> = waits.waits_s.iter().flat_map(|wait| wait.to_le_bytes()).collect();
        (waits.batches, waits.ready, PyBytes::new(py, &bytes))
    }

    /// Requests, failures, damaged answers, and how often another server took over.
    fn counts(&self) -> [u64; 4] {
        self.client.counts()
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.ahead.close());
    }
}
