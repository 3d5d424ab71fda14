//! From a request to its answer. Nothing about the client is remembered, but for how many requests it has under way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request};

use super::Serving;
use super::reply::{self, Reply};
use super::request::{Query, patience};
use crate::PROTOCOL;
use crate::counts::add;
use crate::problem::Problem;
use crate::shelf::Asked;

/// Of an answer from Python.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Clients that are told apart; further ones share a place.
const CLIENTS_MAX: usize = 4096;

/// The answer to a request.
pub(super) async fn respond(serving: Arc<Serving>, peer: SocketAddr, request: Request<Incoming>) -> Reply {
    add(&serving.counts.requests, 1);
    match answer(&serving, peer, &request).await {
        Ok(reply) => reply,
        Err(refusal) => reply::problem(&serving, refusal),
    }
}

async fn answer(
    serving: &Arc<Serving>,
    peer: SocketAddr,
    request: &Request<Incoming>,
) -> Result<Reply, Problem> {
    if request.method() != Method::GET {
        return Err(Problem::invalid(405, "only GET is answered"));
    }
    let path = request.uri().path();
    if path == "/healthz" {
        return Ok(match *serving.stopping.borrow() {
            true => reply::plain(503, "text/plain", "stopping\n"),
            false => reply::plain(200, "text/plain", "ok\n"),
        });
    }
    check_caller(serving, request)?;
    let shown = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
    if serving.options.token.as_ref().is_some_and(|token| !token.opens(shown)) {
        let reason = if shown.is_some() { "the token is wrong" } else { "it wants a token" };
        return Err(Problem::denied(reason));
    }
    check_protocol(request)?;
    let _place = Place::take(serving, client_of(peer, request))?;
    let query = request.uri().query();
    match path {
        "/v1/plan" => Ok(reply::json(serving.plan.clone())),
        "/v1/batch" => batch(serving, request).await,
        "/v1/statistics" => Ok(reply::json(serving.counts.to_json(serving.shelf.held()).to_string())),
        "/metrics" => {
            let text = serving.counts.to_text(serving.shelf.held());
            Ok(reply::plain(200, "text/plain; version=0.0.4", text))
        }
        "/v1/origin" => asked(serving, "origin", Query::read(query, &["source", "sample"])?).await,
        "/v1/epochs" => asked(serving, "epochs", Query::read(query, &["step"])?).await,
        "/v1/recurrence" => asked(serving, "recurrence", Query::read(query, &[])?).await,
        "/v1/has" => asked(serving, "has", Query::read(query, &["lane", "of", "step"])?).await,
        _ => Err(Problem::invalid(404, &format!("there is no {path:.64}"))),
    }
}

/// That the request was meant for this server, and not made by a page of another site.
fn check_caller(serving: &Serving, request: &Request<Incoming>) -> Result<(), Problem> {
    let named = request.headers().get(HOST).map(|value| value.as_bytes());
    if serving.options.hosts.as_ref().is_some_and(|hosts| !hosts.knows(named)) {
        return Err(Problem::refused("it does not go by that name (--allow-host adds one)"));
    }
    match request.headers().get("sec-fetch-site").map(|value| value.as_bytes()) {
        None | Some(b"none" | b"same-origin") => Ok(()),
        Some(_) => Err(Problem::refused("a page of another site asks")),
    }
}

fn check_protocol(request: &Request<Incoming>) -> Result<(), Problem> {
    match request.headers().get("penstock-protocol").map(|value| value.to_str().unwrap_or_default()) {
        Some(spoken) if spoken != PROTOCOL.to_string() => {
            Err(Problem::incompatible(&format!("{spoken:.32}"), PROTOCOL))
        }
        _ => Ok(()),
    }
}

/// What a client calls itself, or where it is.
fn client_of(peer: SocketAddr, request: &Request<Incoming>) -> String {
    let named = request.headers().get("penstock-client").and_then(|value| value.to_str().ok());
    format!("{} {:.64}", peer.ip(), named.unwrap_or_default())
}

async fn batch(serving: &Arc<Serving>, request: &Request<Incoming>) -> Result<Reply, Problem> {
    let begun = Instant::now();
    let query = Query::read(request.uri().query(), &["lane", "of", "step", "plan"])?;
    let (lane, step) = (query.lane()?, query.number("step")?);
    if let Some(wanted) = query.text("plan").filter(|wanted| *wanted != serving.identity) {
        return Err(Problem::mismatch(&format!("{wanted:.80}"), &serving.identity));
    }
    let sending = serving.counts.sending_bytes.load(Ordering::Acquire);
    if sending > 0 && sending + serving.shelf.held().bytes > 2 * serving.options.memory_bytes {
        return Err(Problem::busy("its memory is full of batches that are being sent"));
    }
    serving.maker.check(lane, step)?;
    let outcome = match serving.shelf.ask(lane, step) {
        Asked::Ready(outcome) => outcome,
        Asked::Later(receiver) => {
            let _waiting = Waiting::new(serving);
            let limit = patience(request.headers(), serving.options.patience_max);
            match tokio::time::timeout(limit, receiver).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => return Err(Problem::busy("it has dropped the lane, or is stopping")),
                Err(_) => return Err(Problem::unfinished(step)),
            }
        }
    };
    serving.counts.wait.add(begun.elapsed());
    outcome.map(|body| reply::batch(serving, body))
}

/// A question that whoever makes the batches answers, on a thread of its own.
async fn asked(serving: &Arc<Serving>, question: &'static str, query: Query<'_>) -> Result<Reply, Problem> {
    let names: &[&str] = match question {
        "origin" => &["source", "sample"],
        "epochs" => &["step"],
        "has" => &["lane", "of", "step"],
        _ => &[],
    };
    let numbers = names.iter().map(|name| Ok(((*name).to_owned(), query.number(name)?)));
    let numbers = numbers.collect::<Result<Vec<_>, Problem>>()?;
    if question == "has" {
        query.lane()?;
    }
    let maker = Arc::clone(&serving.maker);
    let answering = tokio::task::spawn_blocking(move || maker.answer(question, &numbers));
    match tokio::time::timeout(ANSWER_TIMEOUT, answering).await {
        Ok(Ok(answer)) => answer.map(reply::json),
        _ => Err(Problem::busy("the answer takes too long")),
    }
}

/// A request that waits for its batch.
struct Waiting<'a>(&'a Serving);

impl<'a> Waiting<'a> {
    fn new(serving: &'a Serving) -> Self {
        serving.counts.waiting.fetch_add(1, Ordering::AcqRel);
        Self(serving)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.counts.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A client's place in the queue, of which each has a few.
struct Place {
    serving: Arc<Serving>,
    client: String,
}

impl Place {
    fn take(serving: &Arc<Serving>, client: String) -> Result<Self, Problem> {
        let mut clients = serving.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = clients.values().sum();
        if all >= serving.options.requests_max {
            return Err(Problem::busy(&format!("{all} requests are under way")));
        }
        let client = if clients.len() < CLIENTS_MAX { client } else { String::new() };
        let mine = clients.entry(client.clone()).or_default();
        if *mine >= serving.options.requests_per_client_max {
            return Err(Problem::busy(&format!("{mine} requests of this client are under way")));
        }
        *mine += 1;
        Ok(Self { serving: Arc::clone(serving), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.serving.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let left = clients.get(&self.client).copied().unwrap_or(0).saturating_sub(1);
        if left == 0 {
            clients.remove(&self.client);
        } else {
            clients.insert(self.client.clone(), left);
        }
    }
}
