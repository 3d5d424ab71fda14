//! Processes in a pid namespace, real ones.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;

use penstock_process::error::ProcessError;
use penstock_process::launcher::isolation::{First, start};
use penstock_process::system::lineage::Process;

/// What a shell script wrote when it was the first process of a namespace, and what it exited with.
fn run(script: &str) -> (String, i32) {
    let mut log = tempfile::tempfile().expect("a file");
    let words = ["sh".to_owned(), "-c".to_owned(), format!("exec 1>&2; {script}")];
    let first = First { program: Path::new("/bin/sh"), words: &words, log: &log, passed: &[] };
    let pid = start(&first).expect("namespaces are allowed here");
    let mut status = 0;
    // SAFETY: our own child, and a valid place to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    let mut text = String::new();
    log.rewind().and_then(|()| log.read_to_string(&mut text)).expect("text");
    (text, libc::WEXITSTATUS(status))
}

#[test]
fn the_first_process_is_number_one_and_sees_only_its_own() {
    // SAFETY: asks for numbers.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let (text, code) = run("echo $$ $(id -u) $(id -g) $(cd /proc && echo [0-9]*); exit 7");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[..3], ["1", &user.to_string(), &group.to_string()]);
    assert!(words[3..].len() <= 3, "{text}");
    assert_eq!(code, 7);
}

#[test]
fn when_the_first_is_killed_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().display();
    let log = File::options().write(true).open("/dev/null").unwrap();
    let script = format!("(trap '' TERM; setsid sleep 600 & sleep 600) & touch {marks}/ready; sleep 600");
    let words = ["sh".to_owned(), "-c".to_owned(), script];
    let first = First { program: Path::new("/bin/sh"), words: &words, log: &log, passed: &[] };
    let pid = start(&first).unwrap();
    let space = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
    let inside = || {
        let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let same = fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|link| link == space);
            (same && Process::read(pid)?.is_alive()).then_some(pid)
        });
        numbers.count()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while inside() < 4 {
        assert!(std::time::Instant::now() < until, "a family of four");
        std::thread::yield_now();
    }

    // SAFETY: our own child, not reaped yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as before; the kernel ends a namespace before its first process can be reaped.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };

    assert_eq!(inside(), 0);
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let log = File::options().write(true).open("/dev/null").unwrap();
    let words = ["nothing".to_owned()];
    let first = First { program: Path::new("/no/such/program"), words: &words, log: &log, passed: &[] };
    let problem = start(&first).unwrap_err();
    assert!(matches!(&problem, ProcessError::Isolate { step: "start the keeper", .. }), "{problem}");
}
