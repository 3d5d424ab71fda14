//! The server: accepts connections, answers requests, and stops in an orderly way.

mod listen;
mod paced;
mod reply;
mod request;
mod routes;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::counts::Counts;
use crate::error::ServeError;
use crate::options::Options;
use crate::shelf::{MakeBodies, Shelf};

/// What all requests share.
pub(crate) struct Serving {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) maker: Arc<dyn MakeBodies>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) options: Options,
    /// What a client needs to know, as JSON.
    pub(crate) plan: Bytes,
    /// What a client's plan must be called.
    pub(crate) identity: String,
    /// Requests of each client that are being answered.
    pub(crate) clients: Mutex<std::collections::HashMap<String, usize>>,
    /// True once the server stops.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A server that is running. Dropping it ends everything at once; [`Server::stop`] lets answers be finished.
pub struct Server {
    address: SocketAddr,
    serving: Arc<Serving>,
    stop: watch::Sender<bool>,
    runtime: Mutex<Option<Runtime>>,
    process: u32,
}

/// How often a stopping server looks whether everything was sent.
const LOOK: Duration = Duration::from_millis(5);
/// Threads that move bytes: a quarter of the cores, within these.
const IO_THREADS: (usize, usize) = (2, 8);
/// Threads for questions that Python answers.
const ANSWER_THREADS: usize = 4;

impl Server {
    /// Begins to serve. `plan` is what clients get as `/v1/plan`, `identity` what it is called.
    pub fn start(
        listener: TcpListener,
        maker: Arc<dyn MakeBodies>,
        (plan, identity): (Vec<u8>, String),
        options: Options,
    ) -> Result<Self, ServeError> {
        let failed = |problem: std::io::Error| ServeError::Start { reason: problem.to_string() };
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads((cores / 4).clamp(IO_THREADS.0, IO_THREADS.1))
            .max_blocking_threads(ANSWER_THREADS)
            .thread_name("penstock-serve")
            .enable_all()
            .build()
            .map_err(failed)?;
        let counts = Arc::new(Counts::default());
        let shelf = Shelf::start(Arc::clone(&maker), &options, Arc::clone(&counts))?;
        let (stop, stopping) = watch::channel(false);
        let (plan, clients) = (plan.into(), Mutex::default());
        let serving = Arc::new(Serving { shelf, maker, counts, options, plan, identity, clients, stopping });
        let guard = runtime.enter();
        let listening = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        drop(guard);
        runtime.spawn(listen::accept(listening, Arc::clone(&serving)));
        let process = std::process::id();
        Ok(Self { address, serving, stop, runtime: Mutex::new(Some(runtime)), process })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters since the start, as JSON.
    pub fn statistics(&self) -> String {
        self.serving.counts.to_json(self.serving.shelf.held()).to_string()
    }

    /// Refuses what is new, lets what is being sent be finished for at most `limit`, then ends; whether all was sent.
    pub fn stop(&self, limit: Duration) -> bool {
        if std::process::id() != self.process {
            return true;
        }
        let Some(runtime) = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return true;
        };
        let begun = Instant::now();
        // Nobody listens only when everything has ended already.
        let _ = self.stop.send(true);
        let open = || self.serving.counts.connections.load(Ordering::Acquire);
        while open() > 0 && begun.elapsed() < limit {
            std::thread::sleep(LOOK);
        }
        let sent = open() == 0;
        self.serving.shelf.close();
        runtime.shutdown_timeout(LOOK);
        sent
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
