//! Reading: one part of an object straight into the caller's memory, resumed where it broke off; large reads as parts that come at
//! the same time; and a second request for a part that is slow.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange};
use penstock_io::{StoreKind, StoreProblem};
use tokio::time::sleep;

use crate::asking::{Ask, Asking};
use crate::client::Client;
use crate::counts::{COUNTS, TIMES};
use crate::options::Stores;
use crate::runtime::block_on;
use crate::spreading::spread;
use crate::trouble::{Trouble, judge};
use crate::watched::with_note;

/// An object of more parts than this is not read in one go.
const PARTS_IN_ONE: u64 = 2;

/// One part of an object and how far it has come.
struct Part<'a> {
    name: &'a str,
    range: Range<u64>,
    /// What the object has to be.
    etag: Option<String>,
    into: &'a mut [u8],
    /// Bytes of `into` that are there.
    got: usize,
}

impl Client {
    /// Fills `into` with the bytes of an object from `offset` on, all of them or a problem. With an entity tag, only from that object.
    /// Returns the tag that the object had, where it has one.
    pub fn read_into(
        &self,
        name: &str,
        offset: u64,
        into: &mut [u8],
        etag: Option<&str>,
    ) -> Result<Option<String>, StoreProblem> {
        if into.is_empty() {
            return Ok(None);
        }
        let part_bytes = even(into.len(), self.limits().part_bytes);
        let parts = into.chunks_mut(part_bytes).enumerate().map(|(number, into)| {
            let start = offset + (number * part_bytes) as u64;
            let range = start..start + into.len() as u64;
            Part { name, range, etag: etag.map(str::to_owned), into, got: 0 }
        });
        let met = OnceLock::new();
        spread(parts.collect(), |share| self.read_parts(share, &met))?;
        Ok(met.into_inner())
    }

    /// Parts at the same time, on one thread; the tag of the object that was met is kept.
    fn read_parts(&self, parts: Vec<Part<'_>>, met: &OnceLock<String>) -> Result<(), StoreProblem> {
        // A part is begun when there may be a request for it, so that its time does not run before.
        let reads = stream::iter(parts.into_iter().map(|part| self.read_part(part)));
        let tags: Vec<Option<String>> =
            block_on(reads.buffer_unordered(self.limits().requests_max).try_collect())?;
        if let Some(tag) = tags.into_iter().flatten().next() {
            let _ = met.set(tag);
        }
        Ok(())
    }

    /// All bytes of an object whose length is not known. A large one is read in parts as soon as its length is.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, StoreProblem> {
        let mut asking = Asking::new(self, Ask::small("read", name, self));
        let mut whole = Whole { bytes: Vec::new(), etag: None };
        let large = block_on(asking.persist(async |asking, stores| whole.fetch(asking, stores, name).await))?;
        if let Some(bytes) = large {
            whole.bytes = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            self.read_into(name, 0, &mut whole.bytes, whole.etag.as_deref())?;
        }
        Ok(whole.bytes)
    }

    async fn read_part(&self, mut part: Part<'_>) -> Result<Option<String>, StoreProblem> {
        let (range, bytes) = (part.range.clone(), part.into.len() as u64);
        let ask =
            Ask { verb: "read", name: part.name, range: Some(range), bytes, total: self.limits().total };
        let mut asking = Asking::new(self, ask);
        asking
            .persist(async |asking, stores| {
                let begun = Instant::now();
                hedged(asking, stores, &mut part).await?;
                TIMES.read.add(begun.elapsed());
                asking.client.connection().hedges.finished(bytes, begun.elapsed());
                Ok(())
            })
            .await?;
        Ok(part.etag)
    }
}

/// An object that is read from its beginning to its end, and how far it has come.
struct Whole {
    bytes: Vec<u8>,
    etag: Option<String>,
}

impl Whole {
    /// One request for what is missing; the object's length if it is too large for that.
    async fn fetch(
        &mut self,
        asking: &Asking<'_>,
        stores: &Stores,
        name: &str,
    ) -> Result<Option<u64>, Trouble> {
        let key = asking.client.key(name)?;
        let range = (!self.bytes.is_empty()).then_some(GetRange::Offset(self.bytes.len() as u64));
        let options = GetOptions { range, if_match: self.etag.clone(), ..GetOptions::default() };
        let most = asking.client.limits().part_bytes as u64 * PARTS_IN_ONE;
        let answer = async {
            let answer = stores.objects.get_opts(&key, options).await?;
            asking.moving();
            let size = answer.meta.size;
            self.etag.clone_from(&answer.meta.e_tag);
            if size > most && self.etag.is_some() {
                return Ok((size, true));
            }
            let mut body = answer.into_stream();
            while let Some(bytes) = body.try_next().await? {
                COUNTS.bytes_read.add(bytes.len() as u64);
                self.bytes.extend_from_slice(&bytes);
            }
            Ok((size, false))
        };
        let (answer, note) = with_note(answer).await;
        let outcome = match answer {
            Ok((size, true)) => Ok(Some(size)),
            Ok((size, false)) if self.bytes.len() as u64 == size => Ok(None),
            Ok((size, false)) => Err(broken(self.bytes.len() as u64, size)),
            Err(error) => Err(judge(&error, note)),
        };
        if outcome.is_err() && self.etag.is_none() {
            // Nothing says that the rest would belong to the same object.
            self.bytes.clear();
        }
        outcome
    }
}

/// Parts of about the same length, none longer than `most`.
fn even(length: usize, most: usize) -> usize {
    length.div_ceil(length.div_ceil(most).max(1))
}

fn broken(got: u64, wanted: u64) -> Trouble {
    Trouble::passing(StoreKind::Failed, format!("the answer broke off after {got} of {wanted} bytes"))
}

/// One try of a part; if it is slow, a second request runs beside it and the first to be done counts.
async fn hedged(asking: &Asking<'_>, stores: &Stores, part: &mut Part<'_>) -> Result<(), Trouble> {
    let (limits, connection) = (asking.client.limits(), asking.client.connection());
    let Some(patience) = connection.hedges.patience(part.into.len() as u64, limits) else {
        return fetch(asking, stores, part).await;
    };
    let rest =
        Part { name: part.name, range: part.range.clone(), etag: part.etag.clone(), into: &mut [], got: 0 };
    let mut spare = Vec::new();
    let won = {
        let first = std::pin::pin!(fetch(asking, stores, part));
        let first = match select(first, std::pin::pin!(sleep(patience))).await {
            Either::Left((outcome, _)) => return outcome,
            Either::Right(((), first)) => first,
        };
        // The second request needs a turn like any other; when all are taken the store has enough to do.
        let turn = connection.gate.try_acquire();
        if turn.is_err() || !connection.hedges.allow(limits) {
            return first.await;
        }
        COUNTS.hedges.add(1);
        spare.resize((rest.range.end - rest.range.start) as usize, 0);
        let mut second = Part { into: &mut spare, ..rest };
        let second = std::pin::pin!(fetch(asking, stores, &mut second));
        match select(first, second).await {
            Either::Left((Ok(()), _)) => return Ok(()),
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => return first.await,
            Either::Right((Ok(()), _)) => Ok(()),
        }
    };
    won?;
    COUNTS.hedge_wins.add(1);
    part.into.copy_from_slice(&spare);
    part.got = part.into.len();
    Ok(())
}

/// One request for what is missing of a part.
async fn fetch(asking: &Asking<'_>, stores: &Stores, part: &mut Part<'_>) -> Result<(), Trouble> {
    let key = asking.client.key(part.name)?;
    let from = part.range.start + part.got as u64;
    let range = Some(GetRange::Bounded(from..part.range.end));
    let options = GetOptions { range, if_match: part.etag.clone(), ..GetOptions::default() };
    let (outcome, note) = with_note(async {
        let answer = stores.objects.get_opts(&key, options).await.map_err(Failure::Store)?;
        asking.moving();
        if let Some(expected) = &part.etag
            && answer.meta.e_tag.as_ref().is_some_and(|etag| etag != expected)
        {
            // A store that does not know the condition answers all the same.
            let reason =
                format!("its entity tag is {}, not {expected}", answer.meta.e_tag.unwrap_or_default());
            return Err(Failure::Ours(Trouble::lasting(StoreKind::Changed, reason)));
        }
        if answer.range.end < part.range.end {
            let reason = format!("it ends before byte {}", part.range.end);
            return Err(Failure::Ours(Trouble::lasting(StoreKind::Failed, reason)));
        }
        let pinned = part.etag.is_some() || answer.meta.e_tag.is_some();
        part.etag = part.etag.take().or(answer.meta.e_tag.clone());
        let mut body = answer.into_stream();
        let outcome = loop {
            match body.next().await {
                Some(Ok(bytes)) => take(part, &bytes)?,
                Some(Err(error)) => break Err(Failure::Store(error)),
                None if part.got == part.into.len() => break Ok(()),
                None => break Err(Failure::Ours(broken(part.got as u64, part.into.len() as u64))),
            }
        };
        if outcome.is_err() && !pinned {
            // Nothing says that the rest would belong to the same object.
            part.got = 0;
        }
        outcome
    })
    .await;
    outcome.map_err(|failure| match failure {
        Failure::Store(error) => judge(&error, note),
        Failure::Ours(trouble) => trouble,
    })
}

/// What ended a request: the store's error, or what we found ourselves.
enum Failure {
    Store(object_store::Error),
    Ours(Trouble),
}

fn take(part: &mut Part<'_>, bytes: &Bytes) -> Result<(), Failure> {
    let end = part.got + bytes.len();
    let Some(place) = part.into.get_mut(part.got..end) else {
        return Err(Failure::Ours(Trouble::lasting(
            StoreKind::Failed,
            "the answer is longer than what was asked for",
        )));
    };
    place.copy_from_slice(bytes);
    part.got = end;
    COUNTS.bytes_read.add(bytes.len() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_not_too_long() {
        assert_eq!(even(10, 100), 10);
        assert_eq!(even(100, 100), 100);
        assert_eq!(even(101, 100), 51);
        assert_eq!(even(1000, 300), 250);
    }
}
