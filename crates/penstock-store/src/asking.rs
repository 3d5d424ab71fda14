//! One call to a store: turns, tries, pauses, and the problem when all of them are spent.

use std::ops::Range;
use std::time::{Duration, Instant};

use penstock_io::{StoreKind, StoreProblem};
use tokio::sync::SemaphorePermit;
use tokio::time::{sleep, timeout, timeout_at};

use crate::client::Client;
use crate::counts::{COUNTS, TIMES};
use crate::flying::{self, Stage};
use crate::options::Stores;
use crate::retry;
use crate::trouble::Trouble;

/// A request waits for its turn for at most so many times its own deadline.
const QUEUE: u32 = 10;

/// What is wanted.
pub(crate) struct Ask<'a> {
    pub(crate) verb: &'static str,
    pub(crate) name: &'a str,
    pub(crate) range: Option<Range<u64>>,
    /// Bytes that will move, for the limit of bandwidth.
    pub(crate) bytes: u64,
    /// Longest time for everything.
    pub(crate) total: Duration,
}

impl<'a> Ask<'a> {
    /// For something small.
    pub(crate) fn small(verb: &'static str, name: &'a str, client: &Client) -> Self {
        Self { verb, name, range: None, bytes: 0, total: client.limits().total }
    }
}

/// One call on its way.
pub(crate) struct Asking<'a> {
    pub(crate) client: &'a Client,
    ask: Ask<'a>,
    flight: flying::Entry,
    begun: Instant,
    /// Time spent waiting for turns. It is not the store's, so the deadline moves by it.
    queued: Duration,
    tries: u32,
    /// Whether an earlier try may have done what was asked.
    pub(crate) unsure: bool,
    reread: bool,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(client: &'a Client, ask: Ask<'a>) -> Self {
        let flight = flying::begin(ask.verb, client.url_of(ask.name), ask.range.clone());
        Self {
            client,
            ask,
            flight,
            begun: Instant::now(),
            queued: Duration::ZERO,
            tries: 0,
            unsure: false,
            reread: false,
        }
    }

    /// Says that bytes are moving.
    pub(crate) fn moving(&self) {
        self.flight.enter(Stage::Bytes);
    }

    /// Tries until it works, or a limit is reached, or the trouble is one that stays.
    pub(crate) async fn persist<T>(
        &mut self,
        mut once: impl AsyncFnMut(&Self, &Stores) -> Result<T, Trouble>,
    ) -> Result<T, StoreProblem> {
        // Every turn spends a try, of which there is a limit, or the one reading of credentials.
        loop {
            self.tries += 1;
            let turn = self.turn().await;
            let deadline = (self.begun + self.queued + self.ask.total).into();
            let outcome = timeout_at(deadline, async {
                let _turn = turn.map_err(|trouble| (trouble, None))?;
                let stores = self.client.stores()?;
                self.flight.enter(Stage::Answer);
                (once(self, &stores).await).map_err(|trouble| (trouble, Some(stores)))
            });
            let (trouble, stores) = match outcome.await {
                Ok(Ok(done)) => {
                    self.client.connection().succeeded();
                    return Ok(done);
                }
                Ok(Err(failed)) => failed,
                Err(_) => {
                    let reason = format!("it was not done within {:.1} s", self.ask.total.as_secs_f64());
                    (Trouble::lasting(StoreKind::TimedOut, reason), None)
                }
            };
            self.note(&trouble);
            if trouble.kind == StoreKind::Denied && !self.reread {
                self.reread = true;
                if stores.is_some_and(|refused| self.client.reread(&refused)) {
                    continue;
                }
            }
            self.unsure |= trouble.unsure;
            match self.next_pause(&trouble) {
                Ok(pause) => self.rest(pause).await,
                Err(spent) => return Err(self.problem(&trouble, spent)),
            }
        }
    }

    /// Waits until this client may make one more request. Others hold their turns within limits, and so does the queue.
    async fn turn(&mut self) -> Result<SemaphorePermit<'a>, Trouble> {
        self.flight.enter(Stage::Turn);
        let asked = Instant::now();
        let connection = self.client.connection();
        let late = || {
            Trouble::lasting(StoreKind::TimedOut, "it did not get its turn: too many requests are waiting")
        };
        let permit = timeout(self.ask.total.saturating_mul(QUEUE), connection.gate.acquire()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(late)?;
        let wait = connection.pace(self.ask.bytes, Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        self.queued += asked.elapsed();
        TIMES.turn.add(asked.elapsed());
        Ok(permit)
    }

    fn note(&self, trouble: &Trouble) {
        match trouble.kind {
            StoreKind::Throttled => COUNTS.throttled.add(1),
            StoreKind::TimedOut => COUNTS.timeouts.add(1),
            StoreKind::Changed => COUNTS.changed.add(1),
            StoreKind::Missing | StoreKind::NoBucket | StoreKind::Denied | StoreKind::Failed => {}
        }
    }

    /// How long to pause before the next try, or which limit forbids it.
    fn next_pause(&self, trouble: &Trouble) -> Result<Duration, &'static str> {
        let limits = self.client.limits();
        if !trouble.again {
            return Err("");
        }
        if self.tries >= limits.tries {
            return Err("");
        }
        let left = (self.ask.total + self.queued).saturating_sub(self.begun.elapsed());
        let pause = retry::pause(limits, self.tries, trouble.retry_after, retry::draw());
        let budget = self.client.connection().spend(left, Instant::now());
        match budget {
            None => Err("; the budget of retries is spent"),
            Some(wait) if pause.max(wait) >= left => Err("; no time is left for another try"),
            Some(wait) => Ok(pause.max(wait)),
        }
    }

    async fn rest(&self, pause: Duration) {
        COUNTS.retries.add(1);
        TIMES.pause.add(pause);
        self.flight.enter(Stage::Pause);
        sleep(pause).await;
    }

    /// The trouble, told with everything that is known.
    fn problem(&self, trouble: &Trouble, spent: &str) -> StoreProblem {
        StoreProblem {
            kind: trouble.kind,
            verb: self.ask.verb,
            url: self.client.url_of(self.ask.name),
            range: self.ask.range.clone(),
            tries: self.tries,
            waited_ms: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            reason: format!("{}{spent}", trouble.reason),
        }
    }
}
