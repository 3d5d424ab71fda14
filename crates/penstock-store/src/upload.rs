//! Writing: whole objects on condition that there is none, and large ones in parts that travel at the same time.

use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{MultipartId, ObjectStoreExt, PutMode, PutOptions};
use penstock_io::{StoreKind, StoreProblem};

use crate::asking::{Ask, Asking};
use crate::body::Body;
use crate::client::Client;
use crate::counts::{COUNTS, TIMES};
use crate::options::Stores;
use crate::runtime::block_on;
use crate::trouble::{Trouble, judge};
use crate::watched::with_note;

/// Stores take no more parts than 10,000 of an object.
const PARTS_MAX: u64 = 9_000;
/// Parts that travel at the same time; each is held in memory.
const PARTS_AT_ONCE: usize = 8;

impl Client {
    /// Makes an object unless it exists; whether this call made it.
    pub fn put_if_absent(&self, name: &str, data: Bytes) -> Result<bool, StoreProblem> {
        let bytes = data.len() as u64;
        let mut asking = Asking::new(self, Ask { bytes, ..Ask::small("write", name, self) });
        block_on(asking.persist(async |asking, stores| {
            let key = self.key(name)?;
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let (outcome, note) =
                with_note(stores.objects.put_opts(&key, data.clone().into(), options)).await;
            match outcome.map_err(|error| judge(&error, note)) {
                Ok(_) => {
                    COUNTS.bytes_written.add(bytes);
                    Ok(true)
                }
                // Perhaps by an earlier try of ours whose answer was lost: then it holds our bytes.
                Err(trouble) if trouble.exists && asking.unsure => self.holds(stores, name, &data).await,
                Err(trouble) if trouble.exists => Ok(false),
                Err(trouble) => Err(trouble),
            }
        }))
    }

    /// Makes or replaces an object. What fits into one part goes in one request.
    pub fn put(&self, name: &str, body: &dyn Body) -> Result<(), StoreProblem> {
        let length = body.len();
        if length > self.limits().part_bytes as u64 {
            return block_on(self.put_parts(name, body));
        }
        let mut asking = Asking::new(self, Ask { bytes: length, ..Ask::small("write", name, self) });
        block_on(asking.persist(async |_, stores| {
            let key = self.key(name)?;
            let data = copied(body, 0..length)?;
            let (outcome, note) = with_note(stores.objects.put(&key, data.into())).await;
            outcome.map_err(|error| judge(&error, note))?;
            COUNTS.bytes_written.add(length);
            Ok(())
        }))
    }

    /// The same unless there is an object of that name already; whether this call made it. What is larger than a part cannot be made on
    /// condition, so of two that come at once both may write: for names that say what the bytes are.
    pub fn put_body_if_absent(&self, name: &str, body: &dyn Body) -> Result<bool, StoreProblem> {
        if body.len() <= self.limits().part_bytes as u64 {
            let data = body.copy(0..body.len()).map_err(|reason| self.unreadable(name, reason))?;
            return self.put_if_absent(name, data);
        }
        match self.describe(name) {
            Ok(_) => Ok(false),
            Err(problem) if problem.kind == StoreKind::Missing => self.put(name, body).map(|()| true),
            Err(problem) => Err(problem),
        }
    }

    fn unreadable(&self, name: &str, reason: String) -> StoreProblem {
        let (kind, url) = (StoreKind::Failed, self.url_of(name));
        StoreProblem { kind, verb: "write", url, range: None, tries: 1, waited_ms: 0, reason }
    }

    /// Whether an object has exactly these bytes.
    async fn holds(&self, stores: &Stores, name: &str, data: &Bytes) -> Result<bool, Trouble> {
        let key = self.key(name)?;
        let content = async { stores.objects.get(&key).await?.bytes().await };
        let (content, note) = with_note(content).await;
        content.map(|content| content == *data).map_err(|error| judge(&error, note))
    }

    async fn put_parts(&self, name: &str, body: &dyn Body) -> Result<(), StoreProblem> {
        let length = body.len();
        let part_bytes = (self.limits().part_bytes as u64).max(length.div_ceil(PARTS_MAX));
        let mut beginning = Asking::new(self, Ask::small("write", name, self));
        let upload = beginning
            .persist(async |_, stores| {
                let key = self.key(name)?;
                let (begun, note) = with_note(parts(stores)?.create_multipart(&key)).await;
                begun.map_err(|error| judge(&error, note))
            })
            .await?;
        let ranges = (0..length.div_ceil(part_bytes))
            .map(|number| number * part_bytes..((number + 1) * part_bytes).min(length));
        let sent =
            ranges.enumerate().map(|(number, range)| self.put_part(name, &upload, number, range, body));
        let sent: Result<Vec<PartId>, StoreProblem> =
            stream::iter(sent).buffered(PARTS_AT_ONCE).try_collect().await;
        let finished = match sent {
            Ok(sent) => self.complete(name, &upload, sent).await,
            Err(problem) => Err(problem),
        };
        if finished.is_err() {
            self.abort(name, &upload).await;
        }
        finished
    }

    async fn put_part(
        &self,
        name: &str,
        upload: &MultipartId,
        number: usize,
        range: Range<u64>,
        body: &dyn Body,
    ) -> Result<PartId, StoreProblem> {
        let bytes = range.end - range.start;
        let ask = Ask { range: Some(range.clone()), bytes, ..Ask::small("write", name, self) };
        let mut asking = Asking::new(self, ask);
        asking
            .persist(async |asking, stores| {
                let begun = std::time::Instant::now();
                let key = self.key(name)?;
                let data = copied(body, range.clone())?;
                asking.moving();
                let (sent, note) =
                    with_note(parts(stores)?.put_part(&key, upload, number, data.into())).await;
                let sent = sent.map_err(|error| judge(&error, note))?;
                COUNTS.bytes_written.add(bytes);
                TIMES.write.add(begun.elapsed());
                Ok(sent)
            })
            .await
    }

    async fn complete(
        &self,
        name: &str,
        upload: &MultipartId,
        sent: Vec<PartId>,
    ) -> Result<(), StoreProblem> {
        let mut asking = Asking::new(self, Ask::small("write", name, self));
        asking
            .persist(async |asking, stores| {
                let key = self.key(name)?;
                let (done, note) =
                    with_note(parts(stores)?.complete_multipart(&key, upload, sent.clone())).await;
                match done.map_err(|error| judge(&error, note)) {
                    Ok(_) => Ok(()),
                    // An earlier try whose answer was lost may have completed it; then the upload is gone and the object is there.
                    Err(trouble) if trouble.kind == StoreKind::Missing && asking.unsure => {
                        let (outcome, note) = with_note(stores.objects.head(&key)).await;
                        outcome.map(|_| ()).map_err(|error| judge(&error, note))
                    }
                    Err(trouble) => Err(trouble),
                }
            })
            .await
    }

    /// Lets the store forget the parts. What cannot be aborted now is left to the bucket's rules.
    async fn abort(&self, name: &str, upload: &MultipartId) {
        let (Ok(key), Ok(stores)) = (self.key(name), self.stores()) else { return };
        if let Some(parts) = &stores.parts {
            let _ = tokio::time::timeout(self.limits().read, parts.abort_multipart(&key, upload)).await;
        }
    }
}

fn copied(body: &dyn Body, range: Range<u64>) -> Result<Bytes, Trouble> {
    body.copy(range).map_err(|reason| Trouble::lasting(StoreKind::Failed, reason))
}

fn parts(stores: &Stores) -> Result<&dyn MultipartStore, Trouble> {
    let none = || Trouble::lasting(StoreKind::Failed, "this store cannot be written to");
    stores.parts.as_deref().ok_or_else(none)
}
