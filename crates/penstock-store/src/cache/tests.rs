//! What the cache promises, on real directories.

use super::*;

fn small(root: &Path) -> Arc<HostCache> {
    HostCache::open(Options::new(root, 1 << 20)).unwrap()
}

#[test]
fn objects_come_back_as_files_and_only_if_they_are_what_they_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let cache = small(dir.path());
    let key = Digest::of(b"an index");
    assert_eq!(cache.object(&key), None);
    assert_eq!(cache.keep_object(&key, b"another"), None);
    let path = cache.keep_object(&key, b"an index").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"an index");
    assert_eq!(cache.object(&key), Some(path.clone()));
    std::fs::write(&path, b"AN index").unwrap();
    // Whoever reads it finds out, and says so.
    cache.drop_object(&key);
    assert_eq!(cache.object(&key), None);
    let other = Digest::of(b"other");
    let rotten = names::object_path(dir.path(), &other);
    std::fs::create_dir_all(rotten.parent().unwrap()).unwrap();
    std::fs::write(&rotten, b"not it").unwrap();
    assert_eq!(cache.object(&other), None);
    assert!(!rotten.exists());
}

#[test]
fn verify_drops_what_is_rotten_and_the_ledger_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = small(dir.path());
    let key = Digest::of(b"far");
    let data = vec![3; 100_000];
    let sums: Vec<u64> = data.chunks(65_536).map(penstock_io::block_sum).collect();
    for piece in 0..5 {
        assert!(cache.keep(&key, piece, &data, &sums).is_some());
    }
    cache.keep_object(&Digest::of(b"o"), b"o").unwrap();
    let shown = cache.show();
    assert_eq!((shown.pieces, shown.objects), (5, 1));
    assert_eq!(shown.bytes, cache.ledger(Entry::Bytes));
    let path = piece_path(dir.path(), &key, 2);
    let mut content = std::fs::read(&path).unwrap();
    content[99_999] ^= 1;
    std::fs::write(&path, content).unwrap();
    let mut progress = 0;
    let verified = cache.verify(&mut |bytes| {
        progress += bytes;
        true
    });
    assert_eq!((verified.files, verified.rotten.as_slice(), progress), (6, &[path][..], shown.bytes));
    std::fs::remove_file(dir.path().join("ledger")).unwrap();
    let again = small(dir.path());
    assert_eq!(again.ledger(Entry::Bytes), again.show().bytes);
    assert_eq!(again.trim(250_000), Some(2 * file_bytes(100_000)));
    assert!(again.show().bytes <= 250_000);
    again.clear();
    assert_eq!(again.show(), Shown::default());
}

/// Goal: approximate LRU. Method: files of known ages, one of which is used again; the limit is passed.
#[test]
fn what_was_not_used_for_longest_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let cache = small(dir.path());
    let (key, data) = (Digest::of(b"far"), vec![1; 100_000]);
    let sums: Vec<u64> = data.chunks(65_536).map(penstock_io::block_sum).collect();
    let path = |piece| piece_path(dir.path(), &key, piece);
    for piece in 0..10 {
        cache.keep(&key, piece, &data, &sums).unwrap();
        let old = SystemTime::now() - Duration::from_secs(10_000 - piece * 100);
        open_to_read(&path(piece)).unwrap().set_modified(old).unwrap();
    }
    assert!(cache.find(&key, 0, 100_000).is_some(), "finding it makes it young");
    cache.keep(&key, 10, &data, &sums).unwrap();
    let left: Vec<u64> = (0..11).filter(|piece| path(*piece).exists()).collect();
    assert_eq!(left, [0, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(cache.ledger(Entry::Evicted), 2);
}

/// Goal: a cache that outgrows one look at all of it still keeps its limit. Method: the ledger says that there are many files.
#[test]
fn a_large_cache_is_evicted_folder_by_folder() {
    let dir = tempfile::tempdir().unwrap();
    let cache = small(dir.path());
    let (key, data) = (Digest::of(b"far"), vec![1; 500]);
    let sums = [penstock_io::block_sum(&data)];
    for piece in 0..1_800 {
        cache.keep(&key, piece, &data, &sums).unwrap();
    }
    cache.ground().ledger.add(Entry::Files, 1 << 20);
    for piece in 1_800..2_600 {
        cache.keep(&key, piece, &data, &sums).unwrap();
        assert!(cache.ledger(Entry::Bytes) <= 1 << 20);
    }
    let turned = cache.ledger(Entry::Turn);
    assert!(turned > 0, "folders were looked at one by one");
    assert!(cache.show().bytes <= 1 << 20);
}

#[test]
fn a_directory_of_another_user_is_refused_unless_it_was_named() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { is_explicit: false, ..Options::new(dir.path(), 1 << 20) };
    assert!(HostCache::open(options.clone()).is_ok());
    // SAFETY: only asks.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
        let refused = HostCache::open(options).err().unwrap();
        assert!(refused.reason.contains("12345"), "{refused}");
        assert!(HostCache::open(Options::new(dir.path(), 1 << 20)).is_ok());
    }
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(HostCache::open(Options::new(&file, 1 << 20)).is_err());
}

#[test]
fn a_full_disk_pauses_writing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { reserve_bytes: u64::MAX / 2, ..Options::new(dir.path(), 1 << 20) };
    let cache = HostCache::open(options).unwrap();
    assert!(cache.keep(&Digest::of(b"far"), 0, &[1; 10], &[0]).is_none());
    assert!(cache.keep(&Digest::of(b"far"), 1, &[1; 10], &[0]).is_none());
    assert_eq!(cache.ledger(Entry::Skipped), 2);
    assert_eq!(cache.show(), Shown::default());
}
