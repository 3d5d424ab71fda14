//! How the workers of a gang come to be: forked from a zygote where that is possible, else executed; and the zygotes themselves.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};

use serde_json::json;

use crate::agent::Agent;
use crate::agent::places::Start;
use crate::error::Result;
use crate::job::exit::Exit;
use crate::logs::pump::Outputs;
use crate::spawn::{self, Life, Started, WorkerSlot};
use crate::system::{self, Reaped, now_ms};
use crate::zygote::pool::{News, Readiness, ZygotePool};
use crate::zygote::request::{ForkOutcome, Program, StartGate, WorkerFork};
use crate::zygote::{ZygoteSpec, variables};

/// Names of leases in a request: the port where the gang meets, and the slot.
const LEASES: [&str; 2] = ["lease-0", "lease-1"];

/// What a rank may say about why it is not to be forked.
const REFUSAL_BYTES_MAX: u64 = 400;

/// How a gang begins.
pub(super) enum Beginning {
    /// Its workers wait at the gate.
    Forked(Vec<Started>, StartGate),
    /// Each has to be executed.
    Executed,
    /// Not now; the coordinator will order it again.
    Later,
}

impl Agent {
    /// Says which zygotes the roles of the job can use.
    pub(super) fn choose_zygotes(&mut self) {
        let mut pool = ZygotePool::default();
        let mut by_role = Vec::new();
        for (index, role) in self.job.roles.iter().enumerate() {
            let spec = role.zygote.as_ref().map(|warm| {
                let early = |(name, _): &(String, String)| {
                    variables::is_read_early(name)
                        || role.environment.contains_key(name)
                        || name.starts_with("PENSTOCK_JOB")
                };
                let life = self.life(index, 0, 0);
                ZygoteSpec {
                    interpreter: warm.interpreter.clone(),
                    flags: warm.flags.clone(),
                    entry: warm.entry.clone(),
                    preload: warm.preload.clone(),
                    environment: spawn::environment(&life, 0).into_iter().filter(early).collect(),
                    directory: directory(&life),
                }
            });
            by_role.push(spec.and_then(|spec| pool.add(spec)));
        }
        (self.zygotes, self.by_role) = (pool, by_role);
    }

    /// What the workers of one life have in common.
    pub(super) fn life(&self, role: usize, incarnation: u32, master_port: u16) -> Life<'_> {
        Life {
            job: &self.job,
            role: &self.job.roles[role],
            job_directory: &self.directory,
            incarnation,
            master_port,
            input: self.input.as_ref(),
            cgroup: self.cgroup.as_ref(),
            file_limit: self.file_limit,
        }
    }

    /// Starts zygotes that are missing; when to look again.
    pub(super) fn keep_zygotes(&mut self) -> Option<u64> {
        let (news, again_ms) =
            self.zygotes.keep_up(&self.directory.file("zygote.log"), self.file_limit, now_ms());
        self.note_zygotes(news);
        let pid = self.zygotes.pids().next().unwrap_or(0);
        if self.state.zygote != pid {
            self.state.zygote = pid;
            self.told = None;
        }
        again_ms
    }

    /// Hears what zygotes say.
    pub(super) fn hear_zygotes(&mut self) {
        let news = self.zygotes.hear();
        self.note_zygotes(news);
    }

    /// Whether a child that ended was a zygote. Its forks are ours, and go on.
    pub(super) fn was_zygote(&mut self, reaped: &Reaped) -> bool {
        let exit = Exit::from_status(reaped.status, false);
        let Some(news) = self.zygotes.note_reaped(reaped.pid, &exit) else { return false };
        self.note_zygotes(news);
        true
    }

    /// Lives may wait for what a zygote says, so the coordinator is told again how things are.
    fn note_zygotes(&mut self, news: Vec<News>) {
        for News { pid, readiness } in news {
            let about = match readiness {
                Readiness::Warm(warmth) => json!({"pid": pid, "ready": warmth}),
                Readiness::Warming => json!({"pid": pid, "warming": true}),
                Readiness::Cold(why) => json!({"pid": pid, "unusable": why}),
            };
            self.journal.add_fact("zygote", about);
            self.told = None;
        }
    }

    /// Forks the workers of a gang, if their role has a warm zygote; what to do otherwise.
    pub(super) fn begin_gang(&mut self, start: &Start, port: u16) -> Result<Beginning> {
        let gang = start.gang;
        let plan = self.plans[gang].clone();
        let role = &self.job.roles[plan.role];
        let (Some(number), Some(warm)) = (self.by_role[plan.role], role.zygote.as_ref()) else {
            self.state.gangs[gang].zygote.clone_from(&role.zygote_why);
            return Ok(Beginning::Executed);
        };
        if let Some(why) = self.refusal_to_fork(&role.name) {
            self.state.gangs[gang].zygote = format!("executed: {why}");
            return Ok(Beginning::Executed);
        }
        let about = match self.zygotes.readiness(number) {
            Readiness::Warming => {
                self.state.gangs[gang].reason = format!("waits for {}", described(&warm.preload));
                return Ok(Beginning::Later);
            }
            Readiness::Cold(why) => {
                self.state.gangs[gang].zygote = format!("executed: {why}");
                return Ok(Beginning::Executed);
            }
            Readiness::Warm(warmth) => {
                format!("forked from {}, made in {} s", described(&warm.preload), warmth.took_s)
            }
        };
        let life = self.life(plan.role, start.incarnation, port);
        let limit = self.file_limit;
        let program = Program {
            command: role.command.clone(),
            argv: warm.argv.clone(),
            module: warm.module,
            directory: directory(&life),
            files_max: (limit.rlim_cur, limit.rlim_max),
        };
        let ranks = plan.ranks.zip(&start.order.placement);
        let places = ranks.map(|(rank, slot)| (rank, self.place(gang, rank, *slot)));
        let (forks, outputs) = worker_forks(&life, places)?;
        let different = forks
            .iter()
            .find_map(|worker| variables::different(self.zygotes.spec(number), &worker.environment));
        if let Some(name) = different {
            self.state.gangs[gang].zygote =
                format!("executed: {name} is read when Python starts, and is not the zygote's");
            return Ok(Beginning::Executed);
        }
        let urgent = self.urgent();
        let Some(zygote) = self.zygotes.warm(number) else { return Ok(Beginning::Executed) };
        match zygote.fork(&program, &forks, &urgent) {
            ForkOutcome::Forked { pids, gate } => {
                let forked = pids.into_iter().zip(outputs);
                let started = forked.map(|(pid, outputs)| Started { pid, outputs }).collect();
                self.state.gangs[gang].zygote = about;
                self.retire_zygote(number, gang);
                Ok(Beginning::Forked(started, gate))
            }
            ForkOutcome::Refused(why) => {
                self.state.gangs[gang].zygote = format!("executed: {why}");
                Ok(Beginning::Executed)
            }
            ForkOutcome::Interrupted => {
                self.told = None;
                Ok(Beginning::Later)
            }
        }
    }

    /// Why ranks of a role are not forked any more: one of them wrote that down, because it set what is read when something is imported.
    fn refusal_to_fork(&self, role: &str) -> Option<String> {
        let file = File::open(self.directory.file(&format!("executed-{role}"))).ok()?;
        let mut text = Vec::new();
        file.take(REFUSAL_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).collect())
    }

    /// Ends a zygote after its last fork: every gang that uses it has begun, and none may begin again.
    fn retire_zygote(&mut self, number: usize, begun: usize) {
        let needed = self.plans.iter().enumerate().any(|(gang, plan)| {
            let budget = &self.job.roles[plan.role].policy.budget;
            let again = budget.crash + budget.memory + budget.hang > 0;
            let waits = gang != begun && self.state.gangs[gang].incarnation.is_none();
            self.by_role[plan.role] == Some(number) && (again || waits)
        });
        if !needed {
            let news = self.zygotes.retire(number);
            self.note_zygotes(news.into_iter().collect());
        }
    }

    /// What a fork may not keep us from hearing: the keeper's end, the launcher, and `penstock stop`.
    fn urgent(&self) -> Vec<RawFd> {
        let watch = &self.watch;
        let files = [watch.keeper.as_ref(), watch.launcher.as_ref(), Some(&watch.woken)];
        files.into_iter().flatten().map(File::as_raw_fd).collect()
    }
}

/// The workers of a gang before they are forked, and our ends of their outputs.
fn worker_forks(
    life: &Life<'_>,
    places: impl Iterator<Item = (u32, WorkerSlot)>,
) -> Result<(Vec<WorkerFork>, Vec<Outputs>)> {
    let (mut workers, mut outputs) = (Vec::new(), Vec::new());
    for (rank, place) in places {
        let (ours, out_writer, err_writer) = spawn::outputs(life.role.terminal)?;
        let mut files = vec![("out", out_writer), ("err", err_writer)];
        let door = life.cgroup.and_then(|group| group.door(&life.role.name, rank));
        files.extend(door.map(|door| ("door", door.into())));
        files.extend(place.memory.map(|door| ("limit", door.into())));
        for (name, lease) in LEASES.into_iter().zip(place.kept) {
            files.push((name, system::duplicate(lease)?));
        }
        let mut environment = spawn::environment(life, rank);
        environment.extend(place.variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let mark = life.marking(rank).map(|limit| (limit.rlim_cur, limit.rlim_max));
        workers.push(WorkerFork { rank, environment, files, cpus: place.cpus, mark });
        outputs.push(ours);
    }
    Ok((workers, outputs))
}

fn directory(life: &Life<'_>) -> String {
    let asked = life.role.directory.as_ref().or(life.job.directory.as_ref());
    asked.cloned().unwrap_or_else(|| {
        std::env::current_dir().map_or_else(|_| "/".to_owned(), |path| path.display().to_string())
    })
}

fn described(preload: &[String]) -> String {
    match preload {
        [] => "a warm Python".to_owned(),
        names => format!("a warm Python with {}", names.join(", ")),
    }
}
