//! Failures as programs write them.

use super::*;

const PLAIN: &str = r#"Traceback (most recent call last):
  File "/srv/me/train.py", line 12, in <module>
    main()
  File "/srv/me/train.py", line 7, in main
    raise ValueError("no layer 0x7f3a11 in step 12")
ValueError: no layer 0x7f3a11 in step 12
"#;

#[test]
fn an_exception_is_its_last_line_and_its_frames() {
    let words = read(PLAIN).unwrap();
    assert_eq!(words.error, "ValueError: no layer 0x7f3a11 in step 12");
    assert_eq!(words.frames, ["me/train.py:12 <module>", "me/train.py:7 main"]);
    assert_eq!((words.of_connection, words.further_lines), (false, 0));
    assert_eq!(
        words.likeness().unwrap(),
        "ValueError: no layer # in step # at me/train.py:7 main < me/train.py:12 <module>"
    );
}

#[test]
fn numbers_of_a_message_do_not_matter_and_lines_of_the_program_do() {
    let likeness = |text: &str| read(text).unwrap().likeness();
    assert_eq!(
        likeness(PLAIN),
        likeness(&PLAIN.replace("0x7f3a11", "0x5500aa").replace("step 12", "step 13"))
    );
    assert_ne!(likeness(PLAIN), likeness(&PLAIN.replace("line 7", "line 8")));
    assert_ne!(likeness(PLAIN), likeness(&PLAIN.replace("ValueError", "KeyError")));
}

#[test]
fn the_last_exception_of_a_chain_counts_with_the_frames_of_all() {
    let chain = PLAIN.to_owned()
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + &PLAIN.replace("ValueError", "KeyError").replace("line 7", "line 9");
    let words = read(&chain).unwrap();
    assert!(words.error.starts_with("KeyError"));
    assert_eq!(words.frames.len(), 4);
    // What the end of the interpreter adds is not the cause.
    let noise = PLAIN.to_owned()
        + "Exception ignored in atexit callback: <function f>\n"
        + &PLAIN.replace("ValueError", "OSError");
    let words = read(&noise).unwrap();
    assert!(words.error.starts_with("ValueError") && words.further_lines > 4);
}

#[test]
fn dress_of_torch_of_groups_of_terminals_and_of_libraries_is_taken_off() {
    let ranked: String = PLAIN.lines().map(|line| format!("[rank1]: {line}\n")).collect();
    let barred: String = PLAIN.lines().map(|line| format!("  | {line}\n")).collect();
    let coloured = PLAIN.replace("ValueError", "\x1b[1;35mValueError\x1b[0m");
    for text in [ranked, barred, coloured] {
        assert_eq!(read(&text), read(PLAIN));
    }
    let rich = "╭──── Traceback (most recent call last) ────╮\n│ /me/train.py:7 in main    │\n│ ❱ 7 raise │\n╰───╯\nValueError: no\n";
    let words = read(rich).unwrap();
    assert_eq!(
        (words.error.as_str(), words.frames),
        ("ValueError: no", vec!["me/train.py:7 main".to_owned()])
    );
}

#[test]
fn broken_connections_are_told_apart_and_are_never_alike() {
    let raised =
        |error: &str| read(&PLAIN.replace("ValueError: no layer 0x7f3a11 in step 12", error)).unwrap();
    for error in [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:2011",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\nncclRemoteError: A call failed possibly due to a network error",
        "jax.errors.JaxRuntimeError: UNAVAILABLE: recvmsg: Connection reset by peer",
    ] {
        let words = raised(error);
        assert!(words.of_connection && words.likeness().is_none(), "{error}");
    }
    assert_eq!(raised("RuntimeError: Connection reset: recv from rank 3 failed").points_to, Some(3));
    assert_eq!(raised("ValueError: sent to rank 3").points_to, None);
}

#[test]
fn ends_of_the_machine_have_their_line_and_frames() {
    let text = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File \"/me/train.py\", line 3 in f\n  File \"/me/train.py\", line 9 in <module>\n";
    let words = read(text).unwrap();
    assert_eq!(words.error, "Fatal Python error: Segmentation fault");
    assert_eq!(words.frames, ["me/train.py:3 f", "me/train.py:9 <module>"]);
    let thrown =
        read("terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad 17\n")
            .unwrap();
    assert!(thrown.error.ends_with("what():  bad 17"));
    assert!(read("thread 'main' panicked at src/main.rs:2:5:\nno\n").unwrap().error.ends_with(": no"));
    assert_eq!(read(""), None);
    assert_eq!(read("what comes after a segment that was removed\n"), None);
}

#[test]
fn an_error_is_one_short_line_without_control() {
    let words = read(&PLAIN.replace("no layer", &format!("a\u{7}{}", "b".repeat(999)))).unwrap();
    assert!(!words.error.contains('\u{7}') && words.error.chars().count() == ERROR_CHARS_MAX + 1);
}
