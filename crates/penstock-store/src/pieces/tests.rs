//! What a far object behind its pieces promises, with an origin that counts, fails, lies and waits.
#![allow(clippy::single_range_in_vec_init, reason = "a hint is a list of ranges, also of one")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};

use penstock_io::{MemoryFile, block_sum};

use super::*;
use crate::cache::{Claim, Options};

/// Two and a half pieces, and a last block that is short.
const FILE_BYTES: usize = (5 << 19) + 12_345;

fn contents(seed: u8) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

/// An origin that counts what it is asked for, fails when told to, and can be made to wait.
struct Origin {
    file: MemoryFile,
    requests: AtomicU64,
    bytes: AtomicU64,
    failing: AtomicBool,
    /// Wrong answers that are still to be given, each with one bit flipped at the byte below.
    lies: AtomicU64,
    lie_at: u64,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Origin {
    fn new(contents: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            file: MemoryFile::new("far/object", contents),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            lies: AtomicU64::new(0),
            lie_at: PIECE_BYTES + 70_000,
            open: Mutex::new(true),
            opened: Condvar::new(),
        })
    }

    fn hold(&self) -> MutexGuard<'_, bool> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        *self.hold() = false;
    }

    fn let_go(&self) {
        *self.hold() = true;
        self.opened.notify_all();
    }

    fn counted(&self) -> (u64, u64) {
        (self.requests.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst))
    }
}

impl ReadAt for Origin {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(into.len() as u64, Ordering::SeqCst);
        let mut open = self.hold();
        while !*open {
            open = self.opened.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        drop(open);
        if self.failing.load(Ordering::SeqCst) {
            return Err(IoError::Other {
                name: "far/object".into(),
                offset: Some(offset),
                reason: "no".into(),
            });
        }
        self.file.read_at(offset, into)?;
        let covers = (offset..offset + into.len() as u64).contains(&self.lie_at);
        let lies = |left: u64| left.checked_sub(1);
        if covers && self.lies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lies).is_ok() {
            into[(self.lie_at - offset) as usize] ^= 1;
        }
        Ok(())
    }
}

struct Scene {
    origin: Arc<Origin>,
    file: PieceFile,
    cache: Option<Arc<HostCache>>,
    contents: Vec<u8>,
    /// Removed at the end.
    folder: tempfile::TempDir,
}

/// Every scene has content of its own, because shelves are shared by content.
fn scene(seed: u8, cached: bool) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let contents = contents(seed);
    let origin = Origin::new(contents.clone());
    let cache = cached.then(|| HostCache::open(Options::new(folder.path().join("cache"), 1 << 30)).unwrap());
    let file = open(&origin, &contents, cache.clone());
    Scene { origin, file, cache, contents, folder }
}

fn open(origin: &Arc<Origin>, contents: &[u8], cache: Option<Arc<HostCache>>) -> PieceFile {
    let sums: Vec<u64> = contents.chunks(BLOCK_BYTES as usize).map(block_sum).collect();
    let key = Digest::of(contents);
    PieceFile::new(origin.clone(), key, Arc::new((contents.len() as u64, sums)), cache).unwrap()
}

impl Scene {
    fn read(&self, offset: usize, bytes: usize) -> Result<(), IoError> {
        let mut into = vec![0; bytes];
        self.file.read_at(offset as u64, &mut into)?;
        assert!(into == self.contents[offset..offset + bytes], "{offset}+{bytes}");
        Ok(())
    }

    /// The same object to another process: nothing is shared with `self` but the directory.
    fn elsewhere(&self) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let cache = HostCache::open(Options {
            patience: Duration::from_millis(30),
            ..Options::new(self.cache.as_ref().unwrap().root(), 1 << 30)
        });
        let cache = Some(cache.unwrap());
        let file = open(&self.origin, &self.contents, cache.clone());
        Scene { origin: self.origin.clone(), file, cache, contents: self.contents.clone(), folder }
    }

    fn piece_files(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.folder.path().join("cache/pieces")).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }
}

/// Goal: the bits are those of the origin, however they are asked for. Method: reads that begin and end everywhere.
#[test]
fn all_reads_give_the_bytes_of_the_origin() {
    for (seed, cached) in [(1, false), (2, true)] {
        let scene = scene(seed, cached);
        let edge = PIECE_BYTES as usize;
        for (offset, bytes) in [
            (0, 1),
            (edge - 1, 2),
            (65_530, 20),
            (0, FILE_BYTES),
            (edge, edge),
            (3, 2 * edge),
            (FILE_BYTES - 1, 1),
            (2 * edge, FILE_BYTES - 2 * edge),
            (FILE_BYTES, 0),
            (edge + 7, 0),
        ] {
            scene.read(offset, bytes).unwrap();
        }
        let beyond = scene.file.read_at(FILE_BYTES as u64 - 1, &mut [0; 2]);
        assert_eq!(
            beyond,
            Err(IoError::Short {
                name: "far/object".into(),
                offset: FILE_BYTES as u64 - 1,
                wanted: 2,
                got: 1
            })
        );
        assert!(scene.file.read_at(u64::MAX, &mut [0; 2]).is_err());
    }
}

/// Goal: a byte is fetched once per process, and once per host with a cache. Method: eight threads, then another reader of the directory.
#[test]
fn many_threads_and_a_second_process_fetch_each_byte_once() {
    for (seed, cached) in [(3, false), (4, true)] {
        let scene = scene(seed, cached);
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let (scene, barrier) = (&scene, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for step in 0..300 {
                        scene.read((thread * 7_919 + step * 8_713) % (FILE_BYTES - 300), 300).unwrap();
                    }
                });
            }
        });
        assert_eq!(scene.origin.counted().1, FILE_BYTES as u64);
        if cached {
            scene.elsewhere().read(0, FILE_BYTES).unwrap();
            assert_eq!(scene.origin.counted().1, FILE_BYTES as u64);
        }
    }
}

/// Goal: a hint is one request for neighbours, and readers join it. Method: close the origin, hint, read in a thread, open it.
#[test]
fn what_will_be_needed_is_fetched_ahead_in_one_request() {
    for (seed, cached) in [(5, false), (6, true)] {
        let scene = scene(seed, cached);
        scene.origin.close();
        scene.file.will_need(&[
            100..200,
            2_500_000..2_500_001,
            1_500_000..1_500_010,
            50..60,
            1 << 40..1 << 41,
        ]);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| scene.read(0, FILE_BYTES));
            scene.origin.let_go();
            reading.join().unwrap().unwrap();
        });
        assert_eq!(scene.origin.counted(), (1, FILE_BYTES as u64));
        scene.file.will_need(&[0..FILE_BYTES as u64]);
        assert_eq!(scene.origin.counted(), (1, FILE_BYTES as u64));
    }
}

#[test]
fn an_error_reaches_all_who_wait_and_is_not_remembered() {
    for (seed, cached) in [(7, false), (8, true)] {
        let scene = scene(seed, cached);
        scene.origin.failing.store(true, Ordering::SeqCst);
        scene.origin.close();
        scene.file.will_need(&[0..10]);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| scene.read(5, 5))).collect();
            scene.origin.let_go();
            for reader in readers {
                assert!(matches!(reader.join().unwrap(), Err(IoError::Other { .. })));
            }
        });
        scene.origin.failing.store(false, Ordering::SeqCst);
        scene.read(0, FILE_BYTES).unwrap();
    }
}

/// Goal: D4, wrong bytes are never handed out. Method: an origin that lies twice, and one that lies for ever.
#[test]
fn wrong_bytes_of_the_origin_are_fetched_again_at_most_twice() {
    for (seed, cached) in [(9, false), (10, true)] {
        let scene = scene(seed, cached);
        scene.origin.lies.store(2, Ordering::SeqCst);
        scene.read(0, FILE_BYTES).unwrap();
        assert_eq!(scene.origin.counted().0, 3);
    }
    for (seed, cached) in [(11, false), (12, true)] {
        let scene = scene(seed, cached);
        scene.origin.lies.store(u64::MAX, Ordering::SeqCst);
        scene.file.will_need(&[0..FILE_BYTES as u64]);
        let corrupt = scene.read(PIECE_BYTES as usize, 10).unwrap_err();
        assert!(
            matches!(&corrupt, IoError::Corrupt { name, offset, .. }
            if name == "far/object" && *offset == PIECE_BYTES + BLOCK_BYTES),
            "{corrupt}"
        );
        scene.read(0, PIECE_BYTES as usize).unwrap();
        scene.read(2 << 20, 10).unwrap();
        scene.origin.lies.store(0, Ordering::SeqCst);
        scene.read(0, FILE_BYTES).unwrap();
    }
}

/// Goal: what rots in the cache is dropped and fetched again. Method: flip a bit, cut a file, empty one; read as another process.
#[test]
fn rotten_pieces_are_dropped_and_fetched_again() {
    let scene = scene(13, true);
    scene.read(0, FILE_BYTES).unwrap();
    let fetched = scene.origin.counted().1;
    let before = COUNTS.cache_rotten.get();
    let files = scene.piece_files();
    assert_eq!(files.len(), 3);
    let mut content = std::fs::read(&files[0]).unwrap();
    content[70_001] ^= 4;
    std::fs::write(&files[0], &content).unwrap();
    std::fs::write(&files[1], &content[..5_000]).unwrap();
    std::fs::write(&files[2], b"").unwrap();
    scene.elsewhere().read(0, FILE_BYTES).unwrap();
    assert_eq!(scene.origin.counted().1, 2 * fetched);
    assert!(COUNTS.cache_rotten.get() >= before + 3);
    let cache = scene.cache.as_ref().unwrap();
    assert!(cache.verify(&mut |_| true).rotten.is_empty());
    scene.elsewhere().read(0, FILE_BYTES).unwrap();
    assert_eq!(scene.origin.counted().1, 2 * fetched);
}

/// Goal: a fetch of another process that does not come to an end holds nobody up. Method: its lock is held; patience is 30 ms.
#[test]
fn a_fetch_of_another_process_is_waited_for_and_then_done_oneself() {
    let scene = scene(14, true);
    let key = Digest::of(&scene.contents);
    let held = scene.cache.as_ref().unwrap().claim(&key, 0);
    assert!(matches!(held, Claim::Ours(Some(_))));
    let other = scene.elsewhere();
    assert!(matches!(other.cache.as_ref().unwrap().claim(&key, 0), Claim::Theirs));
    let before = COUNTS.flights_impatient.get();
    other.read(0, FILE_BYTES).unwrap();
    assert!(COUNTS.flights_impatient.get() > before);
    drop(held);
    scene.read(0, FILE_BYTES).unwrap();
    assert_eq!(scene.origin.counted().1, FILE_BYTES as u64);
}

#[test]
fn a_directory_that_is_removed_is_made_again_and_nobody_notices() {
    let scene = scene(15, true);
    scene.read(0, 2 << 20).unwrap();
    let root = scene.folder.path().join("cache");
    std::fs::remove_dir_all(&root).unwrap();
    scene.read(0, FILE_BYTES).unwrap();
    assert_eq!(scene.piece_files().len(), 1, "what came after the removal is kept");
    // A file where the directory was: nothing can be made there.
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::write(&root, b"in the way").unwrap();
    let other = contents(16);
    let origin = Origin::new(other.clone());
    let file = open(&origin, &other, scene.cache.clone());
    let mut into = vec![0; FILE_BYTES];
    file.read_at(0, &mut into).unwrap();
    assert_eq!(into, other);
}

/// Goal: the limit holds, and nobody's bytes go away under him. Method: a cache of two pieces, read through by two readers in turn.
#[test]
fn evicted_pieces_stay_readable_to_those_who_read_them() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 5 << 19;
    let cache = HostCache::open(Options::new(folder.path(), limit)).unwrap();
    let readers: Vec<(Vec<u8>, Arc<Origin>, PieceFile)> = (20..24)
        .map(|seed| {
            let content = contents(seed);
            let origin = Origin::new(content.clone());
            let file = open(&origin, &content, Some(cache.clone()));
            (content, origin, file)
        })
        .collect();
    for _ in 0..2 {
        for (content, _, file) in &readers {
            let mut into = vec![0; FILE_BYTES];
            file.read_at(0, &mut into).unwrap();
            assert_eq!(&into, content);
            assert!(cache.show().bytes <= limit);
        }
    }
    assert!(readers.iter().all(|(_, origin, _)| origin.counted().1 == FILE_BYTES as u64));
}

#[test]
fn memory_is_bounded_without_a_cache() {
    let content: Vec<u8> =
        contents(30).into_iter().cycle().take(budget::MEMORY_BYTES_MAX + (40 << 20)).collect();
    let origin = Origin::new(content.clone());
    let file = open(&origin, &content, None);
    let pieces = content.len() as u64 / PIECE_BYTES;
    for piece in 0..pieces {
        let mut into = [0; 100];
        file.read_at(piece * PIECE_BYTES + 17, &mut into).unwrap();
        assert_eq!(into, content[(piece * PIECE_BYTES) as usize + 17..][..100]);
    }
    let here = (0..pieces).filter(|piece| file.far.shelf.has(*piece)).count();
    assert!(here > 60 && here <= budget::MEMORY_BYTES_MAX >> 20, "{here}");
}

/// Goal: of joined files one is read without the others, space is neither fetched nor kept, and rot costs a fetch. Method: files of
/// all lengths around the borders; read one, then all, then all again with a bit of each kept piece flipped.
#[test]
fn files_that_are_joined_are_fetched_and_kept_one_by_one() {
    let lengths = [40, BLOCK_BYTES, 3, (5 << 19) + 9, 0, PIECE_BYTES, 100_000];
    let (mut content, mut starts) = (Vec::new(), Vec::new());
    for (number, length) in lengths.into_iter().enumerate() {
        starts.push(content.len());
        content.extend((0..length).map(|at| (at.wrapping_mul(40_503) >> 3) as u8 ^ number as u8));
        content.resize(content.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    }
    let sums: Vec<u64> = content.chunks(BLOCK_BYTES as usize).map(block_sum).collect();
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new(content.clone());
    let open = || {
        let cache = HostCache::open(Options::new(folder.path(), 1 << 30)).unwrap();
        let sums = Arc::new((content.len() as u64, sums.clone()));
        let key = Digest::of(&content);
        (PieceFile::of_files(origin.clone(), key, sums, Some(cache.clone()), &lengths).unwrap(), cache)
    };
    let all = |file: &PieceFile| {
        let mut into = vec![7; content.len()];
        file.read_at(0, &mut into).unwrap();
        assert!(into == content);
    };
    let (file, cache) = open();
    let mut one = [0; 3];
    file.read_at(starts[2] as u64, &mut one).unwrap();
    assert_eq!((one[..] == content[starts[2]..starts[2] + 3], origin.counted()), (true, (1, 3)));
    all(&file);
    let bytes: u64 = lengths.iter().sum();
    assert_eq!(origin.counted().1, bytes);
    file.will_need(&[0..content.len() as u64]);
    all(&open().0);
    assert_eq!(origin.counted().1, bytes, "another process fetches nothing");
    assert!(cache.verify(&mut |_| true).rotten.is_empty());
    let pieces = std::fs::read_dir(folder.path().join("pieces")).unwrap();
    for folder in pieces {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let mut kept = std::fs::read(&path).unwrap();
            kept[2] ^= 1;
            std::fs::write(&path, &kept).unwrap();
        }
    }
    all(&open().0);
    assert_eq!(origin.counted().1, 2 * bytes);
    all(&open().0);
    assert_eq!(origin.counted().1, 2 * bytes);
    assert!(cache.verify(&mut |_| true).rotten.is_empty());
}
