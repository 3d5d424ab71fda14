//! `penstock-agent ROLE DIRECTORY`: one executable for the launcher, the keeper, the agent and the coordinator of a job.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use penstock_process::error::{ProcessError, Result};
use penstock_process::job::JobDirectory;
use penstock_process::keeper::sweep;
use penstock_process::launcher::inherited_fds::InheritedFds;
use penstock_process::slots::feasibility::check;
use penstock_process::slots::report::report;
use penstock_process::{agent, coordinator, keeper, launcher, system};

const USAGE: &str =
    "usage: penstock-agent launch|sweep|end DIRECTORY (`penstock run` calls it; so do keeper and agent)";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run_role(&words) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run_role(words: &[String]) -> Result<i32> {
    if words == ["slots"] {
        return print(&report()?).map(|()| 0);
    }
    if words == ["check"] {
        let job = serde_json::from_reader(std::io::stdin())
            .map_err(|source| ProcessError::Format { path: "/dev/stdin".into(), source })?;
        return check(&job).map(|()| 0);
    }
    let [role, directory, rest @ ..] = words else { return Err(ProcessError::Usage(USAGE.to_owned())) };
    if matches!(role.as_str(), "sweep" | "end") {
        return sweep(role, Path::new(directory));
    }
    let directory = JobDirectory::open(Path::new(directory))?;
    system::set_name(match role.as_str() {
        "coordinator" => "penstock-coord",
        "launch" => "penstock-run",
        "keeper" => "penstock-keeper",
        _ => "penstock-agent",
    });
    match role.as_str() {
        "launch" => launcher::run(&directory),
        "keeper" => keeper::run(&directory, InheritedFds::from_words(rest)?),
        "coordinator" => {
            system::spare_this();
            coordinator::run(&directory, InheritedFds::from_words(rest)?)
        }
        "agent" => agent::run(&directory, InheritedFds::from_words(rest)?).map(|()| 0),
        _ => Err(ProcessError::Usage(USAGE.to_owned())),
    }
}

fn print(answer: &serde_json::Value) -> Result<()> {
    writeln!(std::io::stdout(), "{answer}").map_err(|source| ProcessError::System { call: "write", source })
}

/// Ends what is left of a job without its agent; of one that somebody wants to end, that is written down.
fn sweep(role: &str, directory: &Path) -> Result<i32> {
    let whole = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let (answer, clean) = sweep::sweep(&whole);
    if clean && role == "end" {
        sweep::conclude(&whole, "stopped by `penstock stop --force`; its agent did not answer")?;
    }
    print(&answer)?;
    Ok(i32::from(!clean))
}
