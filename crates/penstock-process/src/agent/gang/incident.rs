//! What is known about a failure, in one file: the first cause, how every rank ended, its last lines, and what was decided.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::coordinator::first_failure::{Account, Part, moment_ms, ordered};
use crate::coordinator::hang::Pulse;
use crate::coordinator::history::Suspicion;
use crate::coordinator::verdict::Action;
use crate::error::Result;
use crate::job::policy::Cause;
use crate::job::state::{GangState, WorkerState, wall_s, write_whole};
use crate::job::{JobDirectory, Role, Stream};
use crate::logs::last_words::without_numbers;
use crate::logs::pump::Listing;
use crate::logs::tail::last_lines;

/// What a failure without a known error has in common with the same one at another time: how the rank ended, and its last line.
pub(in crate::agent) fn likeness(there: &Listing, role: &Role, worker: &WorkerState) -> Option<String> {
    let exit = worker.exit.as_ref()?;
    // On a terminal the last words come with everything else.
    let stream = if role.terminal { Stream::Out } else { Stream::Err };
    let lines = last_lines(there, &role.name, worker, stream);
    let last = lines.iter().rev().find(|line| !line.trim().is_empty())?;
    exit.code.map(|code| format!("rank {} code {code}: {}", worker.rank, without_numbers(last)))
}

/// What is written about a failure beside what the state says.
pub(in crate::agent) struct Evidence<'a> {
    /// The gang that failed.
    pub(in crate::agent) gang: &'a GangState,
    /// How its workers ended, and what they said last.
    pub(in crate::agent) accounts: &'a [Account],
    /// What was decided.
    pub(in crate::agent) action: &'a Action,
    /// Why.
    pub(in crate::agent) reason: &'a str,
    /// What is suspected, where nothing failed.
    pub(in crate::agent) suspicion: Option<&'a Suspicion>,
    /// What workers last said about their progress, by rank.
    pub(in crate::agent) pulses: BTreeMap<u32, Pulse>,
    /// Stacks of the workers, as the collector gave them.
    pub(in crate::agent) stacks: Option<Value>,
    /// What the kernel said about memory, and who cannot be killed.
    pub(in crate::agent) kernel: Vec<String>,
}

/// Stacks under the ranks that workers have among all hosts.
fn of_all_hosts(mut stacks: Value, first_rank: u32) -> Value {
    let looks = stacks.get_mut("looks").and_then(Value::as_array_mut);
    for rank in looks.into_iter().flatten().filter_map(|look| look.get_mut("rank")) {
        if let Some(local) = rank.as_u64() {
            *rank = (local + u64::from(first_rank)).into();
        }
    }
    stacks
}

/// Writes the incident of the life that just failed; its name in the directory.
pub(in crate::agent) fn write(
    directory: &JobDirectory,
    role: &Role,
    number: usize,
    evidence: Evidence<'_>,
) -> Result<String> {
    let secrets = directory.secrets();
    let there = Listing::read(&directory.file("logs"));
    let shown = |lines: Vec<String>| -> Vec<String> { lines.iter().map(|line| secrets.text(line)).collect() };
    let gang = evidence.gang;
    let ranks: Vec<_> = ordered(evidence.accounts)
        .into_iter()
        .filter_map(|(account, part)| {
            let worker = gang.workers.iter().find(|worker| gang.first_rank + worker.rank == account.rank)?;
            let error = account.words.as_ref().filter(|_| part != Part::Bystander);
            Some(json!({
                "rank": account.rank, "pid": worker.pid, "exit": worker.exit, "asked_to_end": worker.asked, "held": worker.held,
                "ended": worker.exit.as_ref().map(ToString::to_string), "exit_ms": worker.exit_ms,
                "part": part, "error": error.map(|(_, words)| secrets.text(&words.error)),
                "failed_ms": (part != Part::Bystander).then(|| moment_ms(account, part)),
                "pulse": evidence.pulses.get(&worker.rank), "cpu_s": worker.cpu_s, "rss_max_bytes": worker.rss_max_bytes,
                "stdout": shown(last_lines(&there, &role.name, worker, Stream::Out)),
                "stderr": shown(last_lines(&there, &role.name, worker, Stream::Err)),
            }))
        })
        .collect();
    let cause = gang.failures.iter().find(|failure| Some(failure.incarnation) == gang.incarnation);
    let suspected = evidence.suspicion;
    let what = cause.map(|cause| &cause.what).or(suspected.map(|suspicion| &suspicion.what));
    let kind = cause.map(|cause| cause.cause).or(suspected.map(|_| Cause::Hang));
    let rank = cause.map_or(suspected.and_then(|suspicion| suspicion.rank), |cause| cause.rank);
    let step = cause.map_or(suspected.and_then(|suspicion| suspicion.step), |cause| cause.step);
    let command = secrets.command(&role.command);
    let stacks = evidence.stacks.map(|stacks| secrets.value(of_all_hosts(stacks, gang.first_rank)));
    let document = json!({
        "number": number, "role": role.name, "incarnation": gang.incarnation, "at": wall_s(), "command": command,
        "first_cause": what.map(|what| secrets.text(what)), "cause": kind, "rank": rank, "step": step,
        "verdict": evidence.action, "reason": secrets.text(evidence.reason),
        "ranks": ranks, "stacks": stacks, "kernel": evidence.kernel,
    });
    let name = format!("incidents/{number}.json");
    write_whole(&directory.file(&name), &serde_json::to_vec_pretty(&document).expect("plain values"))?;
    Ok(name)
}
