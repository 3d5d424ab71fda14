//! Whole small objects: indexes, plan tables, manifests. Named by their content, checked by it, and handed out as files to be mapped.

use std::collections::HashSet;
use std::path::PathBuf;

use penstock_io::Digest;

use super::HostCache;
use super::forks::Forked;
use super::names::object_path;
use super::{SystemTime, TOUCH_AFTER};

/// Objects that this process has found good; a path in another cache is another object.
static GOOD: std::sync::LazyLock<Forked<HashSet<PathBuf>>> = std::sync::LazyLock::new(Forked::default);

impl HostCache {
    /// The file of an object, if the cache has it and it is what its name says. It may be evicted at any time: open it at once, and do
    /// without if it is gone.
    pub fn object(&self, key: &Digest) -> Option<PathBuf> {
        let path = object_path(self.root(), key);
        let valid = self.good_object(key, &path);
        self.count_found(valid.is_some());
        valid.map(|()| path)
    }

    fn good_object(&self, key: &Digest, path: &PathBuf) -> Option<()> {
        let age = std::fs::metadata(path).ok()?.modified().ok()?;
        if SystemTime::now().duration_since(age).is_ok_and(|age| age > TOUCH_AFTER) {
            if let Ok(file) = super::open_to_read(path) {
                let _ = file.set_modified(SystemTime::now());
            }
        }
        if GOOD.with(|good| good.contains(path)) {
            return Some(());
        }
        if Digest::of(&std::fs::read(path).ok()?) != *key {
            self.drop_file(path);
            return None;
        }
        GOOD.with(|good| good.insert(path.clone()));
        Some(())
    }

    /// Keeps an object. What is not the content of its name is not kept.
    pub fn keep_object(&self, key: &Digest, data: &[u8]) -> Option<PathBuf> {
        if Digest::of(data) != *key {
            return None;
        }
        let path = object_path(self.root(), key);
        self.write(&path, &[data])?;
        GOOD.with(|good| good.insert(path.clone()));
        Some(path)
    }

    /// An object was not what it should be after all.
    pub fn drop_object(&self, key: &Digest) {
        let path = object_path(self.root(), key);
        GOOD.with(|good| good.remove(&path));
        self.drop_file(&path);
    }
}
