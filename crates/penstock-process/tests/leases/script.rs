//! A coordinator that grants leases and begins lives as files in the job's directory say.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use penstock_process::coordinator::messages::{Order, Orders, Report, Standing};
use penstock_process::coordinator::verdict::Action;
use penstock_process::job::state::{Phase, write_whole};
use penstock_process::launcher::inherited_fds::InheritedFds;
use penstock_process::system::now_ms;

use crate::host::{GRANTED, HOST_RANK, LEASE_MS, LIFE, REPORTS, SILENT, number_in};

/// Renewals come so often.
const RENEWAL_MS: u64 = LEASE_MS / 30;
const RANKS: u32 = 2;

/// Runs until the agent ends the conversation.
pub(crate) fn run(place: &Path, fds: InheritedFds) -> i32 {
    let Some(link) = fds.link.map(UnixStream::from) else { return 2 };
    link.set_read_timeout(Some(Duration::from_millis(RENEWAL_MS / 2))).expect("a short wait");
    let (mut heard, mut newest, mut due_ms) = (Vec::new(), None::<Report>, 0);
    loop {
        let mut piece = [0; 64 << 10];
        match (&link).read(&mut piece) {
            Ok(0) => return 0,
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(_) => {}
        }
        while let Some(end) = heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = heard.drain(..=end).collect();
            newest = Some(serde_json::from_slice(&line).expect("a report"));
            let path = place.join(REPORTS);
            let mut file = std::fs::File::options().create(true).append(true).open(path).expect("a file");
            file.write_all(&line).expect("room");
            due_ms = 0;
        }
        if let Some(report) = newest.as_ref().filter(|_| now_ms() >= due_ms) {
            due_ms = now_ms() + RENEWAL_MS;
            let mut line = serde_json::to_vec(&orders(place, report)).expect("plain values");
            line.push(b'\n');
            if (&link).write_all(&line).is_err() {
                return 0;
            }
        }
    }
}

fn orders(place: &Path, report: &Report) -> Orders {
    let lease_until_ms = (!place.join(SILENT).exists()).then(|| now_ms() + LEASE_MS);
    if let Some(until_ms) = lease_until_ms {
        write_whole(&place.join(GRANTED), until_ms.to_string().as_bytes()).expect("room");
    }
    let host_rank = number_in(&place.join(HOST_RANK)).map_or(0, |rank| rank as u32);
    let standing = Standing {
        host_rank,
        hosts: 3,
        first_ranks: vec![host_rank * RANKS],
        worlds: vec![3 * RANKS],
        of_one_host: Vec::new(),
        sizes: Vec::new(),
        address: "127.0.0.1".to_owned(),
        interface: None,
    };
    let (number, reason) = (report.number, "as the scene wants".to_owned());
    Orders {
        number,
        phase: Phase::Running,
        gangs: vec![order(place, report, &reason)],
        reason,
        look_at_ms: None,
        over: None,
        standing: Some(standing),
        lease_until_ms,
    }
}

fn order(place: &Path, report: &Report, reason: &str) -> Order {
    let life = number_in(&place.join(LIFE)).map_or(0, |life| life as u32);
    let gang = &report.gangs[0];
    let prepared = gang.prepared.as_ref().filter(|prepared| prepared.incarnation == life);
    let action = match prepared {
        _ if gang.incarnation >= Some(life) => Action::Wait { until_ms: None },
        Some(_) => Action::Start { incarnation: life },
        None => Action::Prepare { incarnation: life },
    };
    // Where another host is the first, it says where ranks meet.
    let port = prepared.and_then(|prepared| prepared.port).unwrap_or(29_400);
    let meeting = matches!(action, Action::Start { .. }).then(|| SocketAddr::from(([127, 0, 0, 1], port)));
    Order {
        gang: 0,
        incarnation: if meeting.is_some() { Some(life) } else { gang.incarnation },
        action,
        reason: reason.to_owned(),
        phase: Phase::Running,
        failures: Vec::new(),
        placement: Vec::new(),
        incident: false,
        suspicion: None,
        meeting,
        past: Some(Default::default()),
    }
}
