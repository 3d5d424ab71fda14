//! A whole small object, named by its content: from the cache of the host, or fetched and kept there.

use std::sync::Arc;

use penstock_io::{Digest, DigestParseError, IoError, LocalFile, MemoryFile, ReadAt};

use crate::{Client, HostCache};

/// Opens an object whose content has the digest; what is fetched and has another is an error.
pub fn open_whole(
    client: &Client,
    cache: Option<&HostCache>,
    name: &str,
    digest: &str,
) -> Result<Arc<dyn ReadAt>, IoError> {
    let url = client.url_of(name);
    let wrong = |reason: String| IoError::Other { name: url.clone(), offset: None, reason };
    let key: Digest = digest.parse().map_err(|reason: DigestParseError| wrong(reason.to_string()))?;
    // A file that is evicted between finding and opening it is fetched like one that was not there.
    let cached = cache.and_then(|cache| cache.object(&key)).and_then(|path| LocalFile::open(path).ok());
    if let Some(file) = cached {
        return Ok(Arc::new(file));
    }
    let data = client.get(name).map_err(|problem| IoError::Store(Box::new(problem)))?;
    let actual = Digest::of(&data);
    if actual != key {
        return Err(wrong(format!("expected digest {key}, found {actual}")));
    }
    let kept =
        cache.and_then(|cache| cache.keep_object(&key, &data)).and_then(|path| LocalFile::open(path).ok());
    Ok(kept.map_or_else(|| Arc::new(MemoryFile::new(url, data)) as Arc<dyn ReadAt>, |file| Arc::new(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Options as CacheOptions;
    use crate::{Limits, Options};

    fn content(file: &dyn ReadAt) -> Vec<u8> {
        let mut data = vec![0; file.len() as usize];
        file.read_at(0, &mut data).unwrap();
        data
    }

    #[test]
    fn an_object_is_fetched_once_and_then_comes_from_the_cache() {
        let client =
            Client::open("memory://whole-once/below", Options::default(), Limits::default()).unwrap();
        client.put_if_absent("a", b"an index".to_vec().into()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = HostCache::open(CacheOptions::new(folder.path().join("cache"), 1 << 20)).unwrap();
        let digest = Digest::of(b"an index").to_string();
        for cache in [None, Some(&*cache), Some(&*cache)] {
            assert_eq!(content(&*open_whole(&client, cache, "a", &digest).unwrap()), b"an index");
        }
        client.delete("a").unwrap();
        assert_eq!(content(&*open_whole(&client, Some(&cache), "a", &digest).unwrap()), b"an index");
        assert!(matches!(open_whole(&client, None, "a", &digest), Err(IoError::Store(_))));
    }

    #[test]
    fn an_object_with_another_content_is_refused_and_not_kept() {
        let client =
            Client::open("memory://whole-other/below", Options::default(), Limits::default()).unwrap();
        client.put_if_absent("a", b"another".to_vec().into()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = HostCache::open(CacheOptions::new(folder.path().join("cache"), 1 << 20)).unwrap();
        let key = Digest::of(b"an index");
        let refused = open_whole(&client, Some(&cache), "a", &key.to_string());
        assert!(matches!(refused, Err(IoError::Other { reason, .. }) if reason.contains("expected digest")));
        assert!(cache.object(&key).is_none());
        assert!(matches!(open_whole(&client, None, "a", "b3:12"), Err(IoError::Other { .. })));
    }
}
