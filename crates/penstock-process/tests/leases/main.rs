//! Leases with real processes: keeper, agent and ranks are those of a job, and a coordinator that grants what a scene wants.
//!
//! The executable of this test plays all roles, because keeper and agent start others by executing themselves.

mod host;
mod script;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use penstock_process::error::Result;
use penstock_process::job::JobDirectory;
use penstock_process::launcher::inherited_fds::InheritedFds;
use penstock_process::system::now_ms;
use penstock_process::{agent, keeper};

use crate::host::{Host, Isolation, LEASE_MS};

/// How late the last instruction of a rank may be.
const LATE_MS: u64 = 50;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [role, place, rest @ ..] = &words[..] {
        if let Some(played) = play(role, Path::new(place), rest) {
            return played.map_or(ExitCode::from(2), |code| ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
    }
    let scenes: [(&str, fn()); 8] = [
        ("nothing_is_killed_while_renewals_come", nothing_is_killed_while_renewals_come),
        ("an_agent_ends_its_ranks_before_the_lease_does_and_lives_on", an_agent_ends_its_ranks),
        ("with_a_stopped_agent_no_rank_outlives_the_lease", with_a_stopped_agent),
        ("with_a_stopped_keeper_no_rank_outlives_the_lease", with_a_stopped_keeper),
        ("with_both_stopped_no_rank_outlives_the_lease", with_both_stopped),
        ("in_a_namespace_with_both_stopped_nobody_outlives_the_lease", in_a_namespace),
        ("a_host_without_its_keeper_leaves_and_the_job_does_not_fail", without_its_keeper),
        ("ranks_are_numbered_among_all_hosts_and_meet_where_they_are_told", ranks_are_numbered),
    ];
    let wanted = |name: &str| {
        let filters = words.iter().filter(|word| !word.starts_with("--"));
        filters.clone().count() == 0 || filters.into_iter().any(|filter| name.contains(filter.as_str()))
    };
    let mut failed = 0;
    for (name, scene) in scenes.into_iter().filter(|(name, _)| wanted(name)) {
        let fine = std::panic::catch_unwind(scene).is_ok();
        let outcome = if fine { "ok" } else { "FAILED" };
        writeln!(std::io::stdout(), "test {name} ... {outcome}").expect("somebody reads it");
        failed += i32::from(!fine);
    }
    ExitCode::from(u8::from(failed > 0))
}

/// A role of the job, if the words name one.
fn play(role: &str, place: &Path, rest: &[String]) -> Option<Result<i32>> {
    let fds = || InheritedFds::from_words(rest);
    let directory = || JobDirectory::open(place);
    match role {
        "keeper" => Some(directory().and_then(|directory| keeper::run(&directory, fds()?))),
        "agent" => Some(directory().and_then(|directory| agent::run(&directory, fds()?)).map(|()| 0)),
        "coordinator" => Some(fds().map(|fds| script::run(place, fds))),
        "rank" => Some(Ok(host::live(place))),
        _ => None,
    }
}

fn nothing_is_killed_while_renewals_come() {
    let host = Host::start(Isolation::None);
    let before = host.rank_pids();
    let until_ms = now_ms() + 3 * LEASE_MS;
    host.wait_for("three leases", || now_ms() > until_ms);
    assert_eq!(host.rank_pids(), before);
    assert!(host.all_live(), "nobody was touched");
}

fn an_agent_ends_its_ranks() {
    let host = Host::start(Isolation::None);
    let (keeper, agent) = host.guards();
    let end_ms = host.fall_silent();
    let gone_ms = host.wait_until_gone();
    assert!(gone_ms < end_ms, "{gone_ms} is not before {end_ms}");
    assert!(gone_ms + LEASE_MS / 2 > end_ms, "nothing ends before the last part of a lease");
    let told = host.wait_for_report(|report| {
        let gang = &report.gangs[0];
        gang.lease_ended_ms.is_some() && gang.workers.iter().all(|worker| !worker.running)
    });
    assert!(told.gangs[0].workers.iter().all(|worker| worker.asked) && told.unkillable == 0);
    assert!(host.journal().contains("lease-ended"), "{}", host.journal());
    // Well beyond the lease.
    host.wait_for("the end of the lease", || now_ms() > end_ms + LATE_MS);
    assert_eq!(host.guards(), (keeper, agent), "who has nobody to end is not ended");

    host.begin_again(1);
    host.wait_for("another life", || host.all_live() && host.state().gangs[0].incarnation == Some(1));
    assert_eq!(host.guards(), (keeper, agent));
}

fn with_a_stopped_agent() {
    let host = Host::start(Isolation::None);
    let (_, agent) = host.guards();
    let end_ms = host.fall_silent();
    host::signal(agent, libc::SIGSTOP);
    let gone_ms = host.wait_until_gone();
    assert!(gone_ms <= end_ms + LATE_MS, "{gone_ms} is too late for {end_ms}");
    host.wait_for("another agent", || host.state().agent != agent && host.state().coordinator != 0);
}

fn with_a_stopped_keeper() {
    let host = Host::start(Isolation::None);
    let (keeper, _) = host.guards();
    let end_ms = host.fall_silent();
    host::signal(keeper, libc::SIGSTOP);
    let gone_ms = host.wait_until_gone();
    assert!(gone_ms <= end_ms + LATE_MS, "{gone_ms} is too late for {end_ms}");
}

fn with_both_stopped() {
    let host = Host::start(Isolation::None);
    let (keeper, agent) = host.guards();
    let end_ms = host.fall_silent();
    host::signal(keeper, libc::SIGSTOP);
    host::signal(agent, libc::SIGSTOP);
    let gone_ms = host.wait_until_ranks_are_gone();
    assert!(gone_ms <= end_ms + LATE_MS, "{gone_ms} is too late for {end_ms}");
}

fn in_a_namespace() {
    let host = Host::start(Isolation::Own);
    let (keeper, agent) = host.guards();
    let end_ms = host.fall_silent();
    host::signal(keeper, libc::SIGSTOP);
    host::signal(agent, libc::SIGSTOP);
    let gone_ms = host.wait_until_gone();
    assert!(gone_ms <= end_ms + LATE_MS, "{gone_ms} is too late for {end_ms}");
    host.wait_for("the end of the namespace", || !host::is_alive(keeper) && !host::is_alive(agent));
}

fn without_its_keeper() {
    let host = Host::start(Isolation::None);
    let (keeper, agent) = host.guards();
    host::signal(keeper, libc::SIGKILL);
    host.wait_until_gone();
    host.wait_for("the agent's end", || !host::is_alive(agent));
    assert!(host.reports().iter().all(|report| report.stop.is_none()), "nobody asked the job to end");
    assert_eq!(host.state().reason, "the keeper was killed");
}

fn ranks_are_numbered() {
    let host = Host::start(Isolation::None);
    let told = host.wait_for_report(|report| report.gangs[0].prepared.is_some());
    let prepared = told.gangs[0].prepared.expect("just looked at");
    assert_eq!(prepared.incarnation, 0);
    let port = prepared.port.expect("host rank 0 keeps a port").to_string();
    for local in 0..2 {
        let seen = host.environment(local);
        let rank = local.to_string();
        for (name, value) in [
            ("RANK", rank.as_str()),
            ("LOCAL_RANK", rank.as_str()),
            ("WORLD_SIZE", "6"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "3"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", port.as_str()),
            ("GLOO_SOCKET_IFNAME", "lo"),
            ("SLURM_PROCID", rank.as_str()),
            ("SLURM_NTASKS", "6"),
        ] {
            assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(seen["JAX_COORDINATOR_ADDRESS"], format!("127.0.0.1:{port}"));
        assert!(!seen.contains_key("PMIX_RANK"), "a conversation with another task");
    }
    // As after the loss of a host: this one stands elsewhere in the next life.
    host.stand_at(2);
    host.end_ranks();
    host.begin_again(3);
    host.wait_for("another life", || host.all_live() && host.state().gangs[0].incarnation == Some(3));
    assert_eq!(host.environment(1)["RANK"], "5");
    assert_eq!(host.state().gangs[0].first_rank, 4);
}
