//! `penstock-agent ROLE DIRECTORY`: one executable for the launcher, the keeper, the agent and the coordinator of a job.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use penstock_process::agent::places::check;
use penstock_process::cgroup::{Cgroup, name};
use penstock_process::error::{ProcessError, Result};
use penstock_process::job::Room;
use penstock_process::launch::{self, Wires};
use penstock_process::memory_limit::MemoryGroups;
use penstock_process::slots::report::report;
use penstock_process::state::State;
use penstock_process::{agent, coordinator, keeper, lineage, system};

const USAGE: &str =
    "usage: penstock-agent launch|sweep DIRECTORY (`penstock run` calls it; so do keeper and agent)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match play(&words) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

fn play(words: &[String]) -> Result<i32> {
    if words == ["slots"] {
        let text = report()?.to_string();
        return writeln!(std::io::stdout(), "{text}")
            .map(|()| 0)
            .map_err(|source| ProcessError::System { call: "write", source });
    }
    if words == ["check"] {
        let job = serde_json::from_reader(std::io::stdin())
            .map_err(|source| ProcessError::Format { path: "/dev/stdin".into(), source })?;
        return check(&job).map(|()| 0);
    }
    let [role, directory, rest @ ..] = words else { return Err(ProcessError::Usage(USAGE.to_owned())) };
    let room = Room::new(Path::new(directory))?;
    system::set_name(match role.as_str() {
        "coordinator" => "penstock-coord",
        "launch" => "penstock-run",
        "keeper" => "penstock-keeper",
        _ => "penstock-agent",
    });
    match role.as_str() {
        "launch" => launch::run(&room),
        "keeper" => keeper::run(&room, Wires::from_words(rest)?),
        "coordinator" => coordinator::run(&room, Wires::from_words(rest)?),
        "agent" => agent::run(&room, Wires::from_words(rest)?).map(|()| 0),
        "sweep" => Ok(sweep(&room)),
        _ => Err(ProcessError::Usage(USAGE.to_owned())),
    }
}

/// Kills what a job left behind whose keeper and agent were killed in the same instant.
fn sweep(room: &Room) -> i32 {
    let state = State::load(room).ok().flatten();
    let group = state.and_then(|state| Cgroup::at(state.cgroup.as_deref()?));
    group.iter().for_each(Cgroup::kill);
    let mark = room.path().display().to_string();
    for _ in 0..50 {
        let left = lineage::marked("PENSTOCK_JOB_DIRECTORY", &mark);
        if left.is_empty() {
            group.iter().for_each(Cgroup::remove);
            MemoryGroups::left(&name(room)).iter().for_each(MemoryGroups::remove);
            room.forget_secrets();
            return 0;
        }
        for process in &left {
            process.signal(libc::SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    1
}
