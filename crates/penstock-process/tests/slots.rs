//! Locks and the queue with real locks and real processes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use penstock_process::slots::inventory::Inventory;
use penstock_process::slots::lock_directory::{Holder, LockDirectory, SlotLock, hold_port};
use penstock_process::slots::queue::{Answer, Waiting, waiting};
use penstock_process::slots::{Need, Want};
use penstock_process::system::{interest, keep_over_exec, now_ms, poll};

fn machine() -> Inventory {
    Inventory {
        cpus: vec![0, 1, 2, 3],
        gpus: vec!["0".to_owned(), "1".to_owned()],
        memory_bytes: 8 << 30,
        ports: (21_000..21_400).collect(),
    }
}

fn holder(job: &str) -> Holder {
    let directory = format!("/jobs/{job}");
    Holder { job: job.to_owned(), directory, role: "rank".to_owned(), slot: None, rank: None, pid: 1 }
}

fn gpus(each: u32, places: u32) -> Vec<Want> {
    vec![Want { role: "rank".to_owned(), places, need: Need { gpus: each, ..Need::default() } }]
}

fn ask(locks: &LockDirectory, job: &str, wants: Vec<Want>) -> (Waiting, Answer) {
    let mut waiting = Waiting::join(locks, &machine(), holder(job), wants).expect("possible");
    let answer = waiting.look(&machine(), now_ms()).expect("a look");
    (waiting, answer)
}

fn granted(answer: Answer) -> Vec<SlotLock> {
    match answer {
        Answer::Granted(grant) => grant.into_iter().flatten().collect(),
        Answer::Wait(why) => panic!("has to wait for {why}"),
    }
}

fn why(answer: Answer) -> String {
    match answer {
        Answer::Granted(grant) => panic!("got {grant:?}"),
        Answer::Wait(why) => why,
    }
}

/// Waits as an agent does, woken by what the kernel tells.
fn wait_granted(waiting: &mut Waiting) -> Vec<SlotLock> {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let next_ms = waiting.next_look_ms(now_ms());
        if next_ms <= now_ms() {
            if let Answer::Granted(grant) = waiting.look(&machine(), now_ms()).expect("a look") {
                return grant.into_iter().flatten().collect();
            }
            continue;
        }
        let pause = Duration::from_millis(next_ms - now_ms());
        poll(&mut [interest(waiting.news_fd(), libc::POLLIN)], Some(pause));
    }
    panic!("nothing was granted in time");
}

/// A process that inherits a lock and does nothing else.
fn user_of(lock: &SlotLock) -> Child {
    let fd = lock.fd();
    let mut command = Command::new("sleep");
    command.arg("600");
    // SAFETY: the call is allowed between fork and exec.
    unsafe { command.pre_exec(move || keep_over_exec(fd)) };
    command.spawn().expect("sleep is there")
}

fn locks(folder: &Path) -> LockDirectory {
    LockDirectory::at(&folder.join("slots")).expect("a locks")
}

#[test]
fn a_lock_lasts_as_long_as_the_worker_that_inherited_it() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let lock = granted(ask(&locks, "first", gpus(2, 1)).1).pop().unwrap();
    let mut worker = user_of(&lock);
    // The agent is gone; its worker is not.
    drop(lock);
    let (mut second, answer) = ask(&locks, "second", gpus(1, 1));
    assert_eq!(why(answer), "1 GPU; 2 of 2 are held by first");

    worker.kill().unwrap();
    worker.wait().unwrap();

    let got = wait_granted(&mut second);
    assert_eq!(got[0].share().gpus, ["0"]);
    let guard = locks.enter().unwrap().unwrap();
    let jobs: Vec<String> = guard.entries().unwrap().into_iter().map(|entry| entry.holder.job).collect();
    assert_eq!(jobs, ["second"]);
}

#[test]
fn a_gang_gets_all_or_nothing_and_shares_do_not_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let first = granted(ask(&locks, "first", gpus(1, 1)).1);
    let (_second, answer) = ask(&locks, "second", gpus(1, 2));
    assert_eq!(why(answer), "2 GPUs; 1 of 2 are held by first");
    let guard = locks.enter().unwrap().unwrap();
    assert_eq!(guard.entries().unwrap().len(), first.len(), "nothing is half held");
}

#[test]
fn who_came_first_is_served_first_but_only_among_those_who_compete() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let first = granted(ask(&locks, "first", gpus(1, 1)).1);
    let (mut large, answer) = ask(&locks, "large", gpus(2, 1));
    assert_eq!(why(answer), "2 GPUs; 1 of 2 are held by first");
    let (mut small, answer) = ask(&locks, "small", gpus(1, 1));
    assert_eq!(why(answer), "1 GPU; large waits before it");
    let cpus = Need { cpus: 4, ..Need::default() };
    let wants = vec![Want { role: "rank".to_owned(), places: 1, need: cpus }];
    assert_eq!(granted(ask(&locks, "other", wants).1)[0].share().cpus, [0, 1, 2, 3]);

    drop(first);
    let taken = wait_granted(&mut large);
    assert_eq!(why(small.look(&machine(), now_ms()).unwrap()), "1 GPU; 2 of 2 are held by large");
    drop(taken);
    assert_eq!(wait_granted(&mut small)[0].share().gpus, ["0"]);
}

#[test]
fn who_leaves_the_queue_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let _first = granted(ask(&locks, "first", gpus(1, 1)).1);
    let (large, _) = ask(&locks, "large", gpus(2, 1));
    let (mut small, answer) = ask(&locks, "small", gpus(1, 1));
    assert_eq!(why(answer), "1 GPU; large waits before it");
    let names = |locks: &LockDirectory| -> Vec<String> {
        let guard = locks.enter().unwrap().unwrap();
        waiting(&guard).unwrap().into_iter().map(|ticket| ticket.holder.job).collect()
    };
    assert_eq!(names(&locks), ["large", "small"]);

    drop(large);

    assert_eq!(wait_granted(&mut small)[0].share().gpus, ["1"]);
    assert!(names(&locks).is_empty());
}

#[test]
fn what_can_never_be_met_is_refused_and_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let problem =
        Waiting::join(&locks(folder.path()), &machine(), holder("first"), gpus(3, 1)).err().unwrap();
    assert_eq!(problem.to_string(), "role rank: 3 GPUs are wanted, and this machine has 2");
}

#[test]
fn ports_are_held_once_and_never_one_that_is_bound() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let mut ports = Vec::new();
    let mut locks_held = Vec::new();
    let stranger =
        (21_000..21_400).find_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok()).unwrap();
    for _ in 0..20 {
        let lock = hold_port(&locks, &machine(), None, holder("first")).unwrap();
        ports.extend(lock.share().ports.clone());
        locks_held.push(lock);
    }
    ports.push(stranger.local_addr().unwrap().port());
    let many = ports.len();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!((ports.len(), many), (21, 21));
}

#[test]
fn many_processes_at_the_gate_at_once_get_disjoint_shares() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let threads: Vec<_> = (0..4)
        .map(|at| {
            let locks = locks.clone();
            std::thread::spawn(move || {
                let need = Need { cpus: 1, ..Need::default() };
                let wants = vec![Want { role: "rank".to_owned(), places: 1, need }];
                granted(ask(&locks, &format!("job-{at}"), wants).1)
            })
        })
        .collect();
    let locks_held: Vec<SlotLock> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let mut cpus: Vec<u32> = locks_held.iter().flat_map(|lock| lock.share().cpus.clone()).collect();
    cpus.sort_unstable();
    assert_eq!(cpus, [0, 1, 2, 3]);
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slots");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    let problem = LockDirectory::at(&path).err().unwrap().to_string();
    assert!(problem.contains("not a directory that only user"), "{problem}");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert!(LockDirectory::at(&link).is_err());
}

#[test]
fn a_lock_says_who_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let locks = locks(folder.path());
    let mut lock = granted(ask(&locks, "first", gpus(1, 1)).1).pop().unwrap();
    let guard = locks.enter().unwrap().unwrap();
    lock.note(&guard, Some(3), 4_000_000);
    lock.note(&guard, Some(3), 4);
    let entry = guard.entries().unwrap().pop().unwrap();
    assert_eq!((entry.holder.rank, entry.holder.pid, entry.holder.slot), (Some(3), 4, Some(0)));
}
