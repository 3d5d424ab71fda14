//! One object of a store as a file that is read by position.

use std::sync::{Arc, OnceLock};

use penstock_io::{IoError, ReadAt};

use crate::Client;

/// An object that is read by position. Reads are pinned to one object, where the store has entity tags: the one that was described, or the
/// one that the first read met.
pub struct RemoteFile {
    client: Arc<Client>,
    /// Below the client's root.
    object: String,
    /// What errors call it.
    url: String,
    bytes: u64,
    etag: OnceLock<String>,
}

impl RemoteFile {
    /// Nothing is contacted. `etag` is what the object has to be; without it, it is what the first answer says.
    pub fn open(client: &Arc<Client>, name: &str, bytes: u64, etag: Option<String>) -> Self {
        let etag = etag.map(OnceLock::from).unwrap_or_default();
        Self { client: Arc::clone(client), object: name.to_owned(), url: client.url_of(name), bytes, etag }
    }

    /// The same for what a manifest has noted of an object: its stamp is an entity tag where the store had them.
    pub fn open_stamped(client: &Arc<Client>, name: &str, bytes: u64, stamp: &str) -> Self {
        Self::open(client, name, bytes, tag_of(stamp))
    }
}

/// The entity tag that a stamp is, where a read can be pinned to it; other stamps are times, tags that say "about the same", or several.
fn tag_of(stamp: &str) -> Option<String> {
    let tag = stamp.strip_prefix('"')?.strip_suffix('"')?;
    (!tag.contains('"')).then(|| stamp.to_owned())
}

impl ReadAt for RemoteFile {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn name(&self) -> &str {
        self.url.as_str()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let wanted = into.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.bytes) {
            let got = self.bytes.saturating_sub(offset).min(wanted);
            return Err(IoError::Short { name: self.url.clone(), offset, wanted, got });
        }
        let tag = self
            .client
            .read_into(&self.object, offset, into, self.etag.get().map(String::as_str))
            .map_err(|problem| IoError::Store(Box::new(problem)))?;
        // Weak tags say "about the same", which no read can be pinned to.
        if let Some(tag) = tag.filter(|tag| tag.starts_with('"')) {
            let _ = self.etag.set(tag);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Options};
    use penstock_io::{StoreKind, StoreProblem};

    fn client(name: &str) -> Arc<Client> {
        let limits = Limits { part_bytes: 1000, ..Limits::default() };
        Client::open(&format!("memory://{name}/below"), Options::default(), limits).unwrap()
    }

    /// Goal: the far file keeps the contract of a near one. Method: ask it and the twin in memory the same questions.
    #[test]
    fn a_far_file_answers_like_a_near_one() {
        let client = client("remote-alike");
        let content: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
        client.put_if_absent("a", content.clone().into()).unwrap();
        let described = client.describe("a").unwrap();
        let far = RemoteFile::open(&client, "a", described.bytes, described.etag);
        let near = penstock_io::MemoryFile::new(far.name(), content);
        for (offset, wanted) in
            [(0, 10_000), (3, 4), (9_999, 1), (10_000, 0), (9_998, 4), (10_001, 1), (u64::MAX, 1)]
        {
            let (mut a, mut b) = (vec![0; wanted], vec![0; wanted]);
            let (one, other) = (far.read_at(offset, &mut a), near.read_at(offset, &mut b));
            assert_eq!(one, other, "{offset}+{wanted}");
            assert!(one.is_err() || a == b);
        }
    }

    #[test]
    fn only_a_strong_tag_can_be_pinned_to() {
        assert_eq!(tag_of("\"abc\""), Some("\"abc\"".to_owned()));
        for stamp in ["", "\"", "W/\"abc\"", "1700000000.5", "\"a\" \"b\""] {
            assert_eq!(tag_of(stamp), None, "{stamp}");
        }
    }

    #[test]
    fn another_object_of_the_same_name_is_refused() {
        let client = client("remote-changed");
        client.put_if_absent("a", vec![1; 2500].into()).unwrap();
        let described = client.describe("a").unwrap();
        let far = RemoteFile::open(&client, "a", described.bytes, described.etag);
        client.delete("a").unwrap();
        client.put_if_absent("a", vec![2; 2500].into()).unwrap();
        let kind = |outcome: Result<(), IoError>| match outcome {
            Err(IoError::Store(problem)) => problem,
            other => panic!("{other:?}"),
        };
        let problem = kind(far.read_at(7, &mut [0; 10]));
        assert_eq!((problem.kind, problem.range.clone()), (StoreKind::Changed, Some(7..17)));
        client.delete("a").unwrap();
        let StoreProblem { kind, url, tries, .. } = *kind(far.read_at(0, &mut [0; 10]));
        assert_eq!((kind, url.as_str(), tries), (StoreKind::Missing, "memory://remote-changed/below/a", 1));
    }
}
