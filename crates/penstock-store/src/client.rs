//! One process's connection to a root in a store: what may be asked of it, and what all that ask share.
//!
//! A client outlives forks: what is shared (connections, budget, turns) is made anew by every process that uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};
use penstock_io::{StoreKind, StoreProblem};
use tokio::sync::Semaphore;

use crate::asking::{Ask, Asking};
use crate::counts::COUNTS;
use crate::hedge::Hedges;
use crate::options::{self, Stores};
use crate::retry::Budget;
use crate::runtime::{PerProcess, block_on};
use crate::throttle::Pace;
use crate::trouble::{Trouble, judge};
use crate::watched::with_note;
use crate::{Limits, Options, Place};

/// How much of a second a limit of rate may be ahead.
const BURST_S: f64 = 0.25;

/// What a store says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Below the client's root.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Changes whenever the object does.
    pub stamp: String,
    /// The entity tag, to which reads can be pinned; where the store has them.
    pub etag: Option<String>,
}

/// A root in a store, with the connections, budget and limits of this process.
pub struct Client {
    place: Place,
    /// The root, without a slash at the end.
    url: String,
    options: Options,
    limits: Limits,
    connection: PerProcess<Connection>,
}

/// What all calls of one client in one process share.
pub(crate) struct Connection {
    /// Made when first asked for; replaced when credentials are read again.
    stores: RwLock<Option<Arc<Stores>>>,
    /// Requests that may still be begun.
    pub(crate) gate: Semaphore,
    pub(crate) hedges: Hedges,
    budget: Mutex<Budget>,
    requests: Option<Mutex<Pace>>,
    bytes: Option<Mutex<Pace>>,
}

impl Connection {
    fn new(limits: &Limits) -> Self {
        let now = Instant::now();
        let pace = |rate: f64| Mutex::new(Pace::new(rate, (rate * BURST_S).max(1.0), now));
        Self {
            stores: RwLock::new(None),
            gate: Semaphore::new(limits.requests_max),
            hedges: Hedges::new(),
            budget: Mutex::new(Budget::new(limits, now)),
            requests: limits.request_rate.map(pace),
            bytes: limits.byte_rate.map(pace),
        }
    }

    pub(crate) fn succeeded(&self) {
        lock(&self.budget).succeeded();
    }

    pub(crate) fn spend(&self, patience: Duration, now: Instant) -> Option<Duration> {
        lock(&self.budget).spend(patience, now)
    }

    /// How long to wait before a request that moves so many bytes.
    pub(crate) fn pace(&self, bytes: u64, now: Instant) -> Duration {
        let wait = |pace: &Option<Mutex<Pace>>, amount: f64| {
            pace.as_ref().map_or(Duration::ZERO, |pace| lock(pace).take(amount, now))
        };
        wait(&self.requests, 1.0).max(wait(&self.bytes, bytes as f64))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes clients equal that are asked for alike.
type Key = (Place, BTreeMap<String, String>, String);

impl Client {
    /// The client of a root. Of one process, all with the same root, settings and limits share one. Nothing is contacted.
    pub fn open(url: &str, options: Options, limits: Limits) -> Result<Arc<Self>, StoreProblem> {
        static CLIENTS: PerProcess<Mutex<BTreeMap<Key, Arc<Client>>>> = PerProcess::new();
        let url = url.trim_end_matches('/').to_owned();
        let refused = |reason: String| StoreProblem {
            kind: StoreKind::Failed,
            verb: "open",
            url: url.clone(),
            range: None,
            tries: 1,
            waited_ms: 0,
            reason,
        };
        let place = Place::parse(&url).ok_or_else(|| refused("it is no URL of a bucket or host".into()))?;
        if let Some((name, reason)) = limits.fault() {
            return Err(refused(format!("the limit `{name}`: {reason}")));
        }
        let settings = options
            .resolve(&place.scheme)
            .map_err(|reason| StoreProblem { kind: StoreKind::Denied, ..refused(reason) })?;
        let key = (place.clone(), settings, format!("{limits:?}"));
        let mut clients = lock(CLIENTS.get_or_make(Mutex::default));
        if let Some(known) = clients.get(&key) {
            return Ok(Arc::clone(known));
        }
        let client = Self { place, url: url.clone(), options, limits, connection: PerProcess::new() };
        // A mistake in the settings is said now and not at the first read.
        client
            .stores()
            .map_err(|(trouble, _)| StoreProblem { kind: trouble.kind, ..refused(trouble.reason) })?;
        let client = Arc::new(client);
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    /// Where the root is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it keeps to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The whole URL of a name.
    pub fn url_of(&self, name: &str) -> String {
        if name.is_empty() { self.url.clone() } else { format!("{}/{name}", self.url) }
    }

    /// What keys begin with; empty, or without a slash at its end.
    pub(crate) fn prefix(&self) -> &str {
        &self.place.prefix
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.connection.get_or_make(|| Connection::new(&self.limits))
    }

    /// What the store calls a name.
    pub(crate) fn key(&self, name: &str) -> Result<Path, Trouble> {
        Path::parse(self.place.key(name))
            .map_err(|error| Trouble::lasting(StoreKind::Failed, error.to_string()))
    }

    /// The store as it is now.
    pub(crate) fn stores(&self) -> Result<Arc<Stores>, (Trouble, Option<Arc<Stores>>)> {
        let shared = &self.connection().stores;
        if let Some(stores) = shared.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Ok(Arc::clone(stores));
        }
        let mut shared = shared.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(stores) = shared.as_ref() {
            return Ok(Arc::clone(stores));
        }
        let new_stores = self
            .options
            .resolve(&self.place.scheme)
            .map_err(|reason| (Trouble::lasting(StoreKind::Denied, reason), None))
            .and_then(|settings| {
                options::make(&self.place, settings, &self.limits)
                    .map_err(|reason| (Trouble::lasting(StoreKind::Failed, reason), None))
            })?;
        Ok(Arc::clone(shared.insert(Arc::new(new_stores))))
    }

    /// Reads the settings again because a store was refused; whether there is now another one to try.
    pub(crate) fn reread(&self, refused: &Arc<Stores>) -> bool {
        let mut shared = self.connection().stores.write().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_some_and(|now| !Arc::ptr_eq(now, refused)) {
            // Somebody else did so in the meantime.
            return true;
        }
        COUNTS.credentials_reread.add(1);
        let Ok(settings) = self.options.resolve(&self.place.scheme) else { return false };
        if settings == refused.settings {
            return false;
        }
        match options::make(&self.place, settings, &self.limits) {
            Ok(new_stores) => {
                *shared = Some(Arc::new(new_stores));
                true
            }
            Err(_) => false,
        }
    }

    /// Length and stamp of an object.
    pub fn describe(&self, name: &str) -> Result<Described, StoreProblem> {
        let mut asking = Asking::new(self, Ask::small("describe", name, self));
        let meta = block_on(asking.persist(async |_, stores| {
            let key = self.key(name)?;
            let (meta, note) = with_note(stores.objects.head(&key)).await;
            meta.map_err(|error| judge(&error, note))
        }))?;
        Ok(Described::of(name.to_owned(), meta))
    }

    /// Removes an object; it is no error if it is gone already.
    pub fn delete(&self, name: &str) -> Result<(), StoreProblem> {
        let mut asking = Asking::new(self, Ask::small("delete", name, self));
        let outcome = block_on(asking.persist(async |_, stores| {
            let key = self.key(name)?;
            let (gone, note) = with_note(stores.objects.delete(&key)).await;
            gone.map_err(|error| judge(&error, note))
        }));
        match outcome {
            Err(problem) if problem.kind == StoreKind::Missing => Ok(()),
            other => other,
        }
    }
}

impl Described {
    pub(crate) fn of(name: String, meta: ObjectMeta) -> Self {
        let stamp = meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_rfc3339());
        Self { name, bytes: meta.size, stamp, etag: meta.e_tag }
    }
}
