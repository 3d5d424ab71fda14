//! A life that is made ready before it is ordered to begin, on each host of many: its slots are taken, its zygote gets warm, and where rank 0
//! will be a port is kept free.

use std::net::{IpAddr, TcpListener};

use crate::agent::Agent;
use crate::agent::resources::Start;
use crate::coordinator::messages::{Order, PreparedLife};
use crate::error::Result;
use crate::job::policy::Scope;
use crate::zygote::pool::Readiness;

/// Ports that are tried: another process may take one between a look and the next.
const PORTS_MAX: u32 = 16;

/// What is ready of a life to come.
pub(in crate::agent) struct Preparation {
    incarnation: u32,
    /// It has its slots, and a port where it needs one.
    is_placed: bool,
    /// Where its ranks can meet.
    port: Option<u16>,
    /// Keeps others from that port until the ranks begin.
    listener: Option<TcpListener>,
}

impl Agent {
    /// Makes a life ready. What was ready for another one is given up.
    pub(in crate::agent) fn prepare(&mut self, order: &Order, incarnation: u32) -> Result<()> {
        let gang = order.gang;
        let known = self.workers.tracked[gang].preparation.as_ref();
        if known.is_some_and(|known| known.incarnation == incarnation) {
            return Ok(());
        }
        self.workers.tracked[gang].preparation =
            Some(Preparation { incarnation, is_placed: false, port: None, listener: None });
        self.begin(Start { gang, incarnation, order: order.clone() })
    }

    /// The slots of a life to come are taken.
    pub(in crate::agent) fn note_placed(&mut self, start: &Start) {
        let known = self.workers.tracked[start.gang].preparation.as_ref();
        if known.is_none_or(|known| known.incarnation != start.incarnation || known.is_placed) {
            return;
        }
        let role = &self.job.spec.roles[self.job.plans[start.gang].role];
        // A role of one host has all of its ranks there.
        let is_first = |host_rank: u32| role.host.is_some() || host_rank == 0;
        let first = self.host.standing.as_ref().filter(|standing| is_first(standing.host_rank));
        let address = first.map(|standing| standing.address.clone());
        let kept = match &address {
            Some(address) => self.keep_port(start.gang, address).map(Some),
            None => Some(None),
        };
        let Some(preparation) = self.workers.tracked[start.gang].preparation.as_mut() else { return };
        if let Some(kept) = kept {
            preparation.is_placed = true;
            (preparation.port, preparation.listener) =
                kept.map_or((None, None), |(port, listener)| (Some(port), listener));
        }
    }

    /// A port of this host where nobody else listens, and what keeps it so. Without one the job cannot go on.
    fn keep_port(&mut self, gang: usize, address: &str) -> Option<(u16, Option<TcpListener>)> {
        let role = &self.job.spec.roles[self.job.plans[gang].role];
        let (alone, certain) = (role.policy.restart == Scope::One, role.master_port);
        let Ok(ip) = address.parse::<IpAddr>() else {
            self.fail_job(format!("{address} is no address that ranks can meet at"), 2);
            return None;
        };
        let mut problem = None;
        for _ in 0..PORTS_MAX {
            let port = self.meet(gang)?;
            match TcpListener::bind((ip, port)) {
                Ok(listener) => return Some((port, Some(listener))),
                // Ranks that come and go alone meet where the others are.
                Err(_) if alone => return Some((port, None)),
                Err(refused) => problem = Some(format!("port {port} of {address} is not free: {refused}")),
            }
            if certain.is_some() {
                break;
            }
        }
        self.fail_job(problem.unwrap_or_else(|| format!("{address} has no free port")), 2);
        None
    }

    /// What is ready of a gang's next life; nothing before all is, or while processes of an earlier one cannot be killed.
    pub(in crate::agent) fn prepared(&self, gang: usize) -> Option<PreparedLife> {
        if self.unkillable_processes() > 0 {
            return None;
        }
        let found = self.workers.tracked[gang].preparation.as_ref().filter(|known| known.is_placed)?;
        let number = self.zygotes.by_role.get(self.job.plans[gang].role).copied().flatten();
        let warming = number.is_some_and(|number| *self.zygotes.pool.readiness(number) == Readiness::Warming);
        (!warming).then_some(PreparedLife { incarnation: found.incarnation, port: found.port })
    }
}
