//! What a failing worker said last: the error, where in the program it was, and whether it only tells of somebody else's end.
//!
//! Read from the log, beginning with the line that the pump found ([`crate::logs::pump::Distress`]). Pure: text in, values out.

use std::sync::LazyLock;

use regex_lite::Regex;

/// Frames that are compared, the innermost ones.
const FRAMES_MAX: usize = 24;
/// Lines of a message that are looked at; libraries of collectives say several.
const MESSAGE_LINES: usize = 24;
/// What is shown of an error.
const ERROR_CHARS_MAX: usize = 300;

static ESCAPES: LazyLock<Regex> = LazyLock::new(|| rule(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b[@-Z\\-_]"));
/// What stands before a line: the rank, as torch says it.
static PREFIX: LazyLock<Regex> = LazyLock::new(|| rule(r"^\[rank ?\d+\]: ?"));
/// `File "x.py", line 3, in f`, and as `faulthandler` has it.
static FRAME: LazyLock<Regex> = LazyLock::new(|| rule(r#"^\s+File "([^"]+)", line (\d+)(?:,? in (.+))?$"#));
/// `│ /x/y.py:3 in f`, of libraries that dress tracebacks up.
static DRESSED: LazyLock<Regex> = LazyLock::new(|| rule(r"^│ (\S+):(\d+) in (\S+)"));
/// Words with a digit in them: numbers, addresses, names of temporary files.
static NUMBERED: LazyLock<Regex> = LazyLock::new(|| rule(r"[A-Za-z_]*\d\w*"));
/// A rank that an error about a connection points to.
static POINTED_TO: LazyLock<Regex> =
    LazyLock::new(|| rule(r"(?i)\b(?:peer|remote|from|to|with|of) rank[ :=]*(\d+)"));

const TRACEBACK: &str = "Traceback (most recent call last)";
const OF_THE_MACHINE: [&str; 6] = [
    "Fatal Python error: ",
    "terminate called ",
    "*** SIG",
    "' panicked at ",
    "Assertion `",
    "*** stack smashing detected",
];
const LINKS: [&str; 2] = [
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
];
/// Errors that somebody else's end looks like, in lower case: sockets, gloo, NCCL, torch's store, gRPC and JAX.
const OF_CONNECTIONS: [&str; 24] = [
    "connection closed by peer",
    "connection reset",
    "connection refused",
    "connection aborted",
    "connectionreseterror",
    "connectionrefusederror",
    "connectionabortederror",
    "connectionerror",
    "brokenpipeerror",
    "broken pipe",
    "remote end closed connection",
    "socket closed",
    "failed to recv",
    "recvvalue failed",
    "sendbytes failed",
    "distnetworkerror",
    "gloo/transport",
    "ncclremoteerror",
    "remote process exited",
    "remote process exiting",
    "collective operation timeout",
    "stopped sending heartbeats",
    "coordination service",
    "timed out waiting",
];

fn rule(text: &str) -> Regex {
    Regex::new(text).expect("a rule that the tests have compiled")
}

/// The last words of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastWords {
    /// `ValueError: no such layer`; in one line, without what a terminal would act upon.
    pub error: String,
    /// `folder/file.py:12 function`, from the outermost to the innermost, of all exceptions that led to it.
    pub frames: Vec<String>,
    /// It tells of a connection that broke: likely somebody else's end.
    pub of_connection: bool,
    /// The rank at the other end, where it says so.
    pub points_to: Option<u32>,
    /// How many lines came after it.
    pub further_lines: usize,
}

impl LastWords {
    /// What it has in common with the same failure at another time. A broken connection says nothing about the program.
    pub fn likeness(&self) -> Option<String> {
        if self.of_connection {
            return None;
        }
        let frames: Vec<&str> = self.frames.iter().rev().map(String::as_str).collect();
        let place = if frames.is_empty() { String::new() } else { format!(" at {}", frames.join(" < ")) };
        Some(format!("{}{place}", without_numbers(&self.error)))
    }
}

/// A line with `#` for whatever has digits: the same error has another address, another count, another file each time.
pub fn without_numbers(line: &str) -> String {
    NUMBERED.replace_all(line, "#").into_owned()
}

/// The first failure in a text that begins with the line that it begins with.
pub fn read(text: &str) -> Option<LastWords> {
    let plain = ESCAPES.replace_all(text, "");
    let lines: Vec<String> = plain.lines().map(|line| undressed(line.trim_end())).collect();
    let first = lines.first()?;
    let mut found = match first.contains(TRACEBACK) {
        true => of_python(&lines),
        false if OF_THE_MACHINE.iter().any(|mark| first.contains(mark)) => of_the_machine(&lines),
        // What was noted is not there any more: old segments are removed, and a disk may have been full.
        false => return None,
    };
    let told = found.message.join("\n").to_lowercase();
    found.words.of_connection = OF_CONNECTIONS.iter().any(|sign| told.contains(sign));
    let pointed = POINTED_TO.captures(&told).and_then(|parts| parts[1].parse().ok());
    found.words.points_to = pointed.filter(|_| found.words.of_connection);
    found.words.further_lines = lines[found.end..].iter().filter(|line| !line.is_empty()).count();
    found.words.error = shown(&found.words.error);
    let surplus = found.words.frames.len().saturating_sub(FRAMES_MAX);
    found.words.frames.drain(..surplus);
    (!found.words.error.is_empty()).then_some(found.words)
}

/// What is read so far, and where it ended.
#[derive(Default)]
struct Found {
    words: LastWords,
    message: Vec<String>,
    end: usize,
}

/// A traceback, and those that it is linked with.
fn of_python(lines: &[String]) -> Found {
    let mut found = Found::default();
    let mut at = 0;
    while at < lines.len() && lines[at].contains(TRACEBACK) {
        at += 1;
        while at < lines.len() && is_inside(&lines[at]) {
            found.words.frames.extend(frame(&lines[at]));
            at += 1;
        }
        let begun = at;
        while at < lines.len() && at - begun < MESSAGE_LINES && !ends_message(&lines[at], begun == at) {
            at += 1;
        }
        found.words.error = lines.get(begun).cloned().unwrap_or_default();
        found.message = lines[begun..at].to_vec();
        found.end = at;
        let link =
            (at..lines.len().min(at + 3)).find(|line| LINKS.iter().any(|link| lines[*line].contains(link)));
        let Some(link) = link else { break };
        let next = (link..lines.len().min(link + 4)).find(|line| lines[*line].contains(TRACEBACK));
        at = next.unwrap_or(lines.len());
    }
    found
}

/// Of the interpreter itself, of C, C++ or Rust: the line, what it was about, and frames where they are told.
fn of_the_machine(lines: &[String]) -> Found {
    let end = lines.len().min(MESSAGE_LINES);
    let about = lines[1..end].iter().find(|line| line.trim_start().starts_with("what():"));
    let panicked = lines[0].contains("' panicked at ").then(|| lines.get(1)).flatten();
    let more = about.or(panicked).map(|line| format!(": {}", line.trim())).unwrap_or_default();
    let frames = lines.iter().filter_map(|line| frame(line)).collect();
    let words = LastWords { error: lines[0].clone() + &more, frames, ..LastWords::default() };
    Found { words, message: lines[..end].to_vec(), end: lines.len() }
}

/// A line without what others put before it: the rank, or the bars of an exception group.
fn undressed(line: &str) -> String {
    let line = PREFIX.replace(line, "");
    let inner = line.trim_start();
    match inner.strip_prefix(['|', '+']) {
        Some(rest) => rest.strip_prefix(' ').unwrap_or(rest).to_owned(),
        None => line.into_owned(),
    }
}

/// Whether a line stands between the first and the last one of a traceback.
fn is_inside(line: &str) -> bool {
    line.is_empty() || line.starts_with([' ', '\t', '│', '╭', '╰'])
}

fn ends_message(line: &str, first: bool) -> bool {
    (line.is_empty() && !first) || line.contains(TRACEBACK) || line.starts_with("Exception ignored ")
}

fn frame(line: &str) -> Option<String> {
    let parts = FRAME.captures(line).or_else(|| DRESSED.captures(line))?;
    let function = parts.get(3).map_or("", |function| function.as_str());
    let path = &parts[1];
    let from = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    Some(format!("{}:{} {function}", without_numbers(&path[from..]), &parts[2]).trim_end().to_owned())
}

/// As one line that no terminal acts upon.
fn shown(line: &str) -> String {
    let clean = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let clean: String = clean.collect::<String>().trim().to_owned();
    match clean.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

#[cfg(test)]
mod tests;
