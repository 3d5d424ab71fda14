//! How the workers of a gang come to be: forked from a zygote where that is possible, else executed; and the zygotes themselves.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use serde_json::json;

use crate::agent::Agent;
use crate::agent::gang::spawn::{self, Life, Started, WorkerSlot};
use crate::agent::resources::Start;
use crate::error::Result;
use crate::job::exit::Exit;
use crate::logs::pump::Outputs;
use crate::system::{self, Reaped, now_ms};
use crate::zygote::pool::{News, Readiness, ZygotePool};
use crate::zygote::request::{ForkOutcome, Program, StartGate, WorkerFork};
use crate::zygote::{ZygoteSpec, variables};

/// Names of locks in a request: of the port where the gang meets, and of the slot.
const LOCKS: [&str; 2] = ["lock-0", "lock-1"];

/// What a rank may say about why it is not to be forked.
const REFUSAL_BYTES_MAX: u64 = 400;

/// The zygotes of the job.
#[derive(Default)]
pub(in crate::agent) struct JobZygotes {
    /// All of them.
    pub(in crate::agent) pool: ZygotePool,
    /// Which of them each role uses.
    pub(in crate::agent) by_role: Vec<Option<usize>>,
}

/// How a gang begins.
pub(in crate::agent) enum Beginning {
    /// Its workers wait at the gate.
    Forked(Vec<Started>, StartGate),
    /// Each has to be executed.
    Executed,
    /// Not now; the coordinator will order it again.
    Later,
}

impl Agent {
    /// Says which zygotes the roles of the job can use.
    pub(in crate::agent) fn choose_zygotes(&mut self) {
        let mut pool = ZygotePool::default();
        let mut by_role = Vec::new();
        for (index, role) in self.job.spec.roles.iter().enumerate() {
            let spec = role.zygote.as_ref().map(|warm| {
                let early = |(name, _): &(String, String)| {
                    variables::is_read_early(name)
                        || role.environment.contains_key(name)
                        || name.starts_with("PENSTOCK_JOB")
                };
                let life = self.life(index, 0, 0, None);
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
        self.zygotes = JobZygotes { pool, by_role };
    }

    /// What the workers of one life have in common.
    pub(in crate::agent) fn life(
        &self,
        role: usize,
        incarnation: u32,
        master_port: u16,
        meeting: Option<SocketAddr>,
    ) -> Life<'_> {
        Life {
            job: &self.job.spec,
            role: &self.job.spec.roles[role],
            job_directory: &self.job.directory,
            incarnation,
            master_port,
            input: self.launcher.input.as_ref(),
            cgroup: self.resources.cgroup.as_ref(),
            file_limit: self.resources.file_limit,
            host: self.host.life(meeting),
        }
    }

    /// Starts zygotes that are missing; when to look again.
    pub(in crate::agent) fn keep_zygotes(&mut self) -> Option<u64> {
        let (news, again_ms) = self.zygotes.pool.keep_up(
            &self.job.directory.file("zygote.log"),
            self.resources.file_limit,
            now_ms(),
        );
        self.note_zygotes(news);
        let pid = self.zygotes.pool.pids().next().unwrap_or(0);
        if self.view.state.zygote != pid {
            self.view.state.zygote = pid;
            self.coordinator.told = None;
        }
        again_ms
    }

    /// Hears what zygotes say.
    pub(in crate::agent) fn hear_zygotes(&mut self) {
        let news = self.zygotes.pool.hear();
        self.note_zygotes(news);
    }

    /// Whether a child that ended was a zygote. Its forks are ours, and go on.
    pub(in crate::agent) fn was_zygote(&mut self, reaped: &Reaped) -> bool {
        let exit = Exit::from_status(reaped.status, false);
        let Some(news) = self.zygotes.pool.note_reaped(reaped.pid, &exit) else { return false };
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
            self.coordinator.told = None;
        }
    }

    /// Forks the workers of a gang, if their role has a warm zygote; what to do otherwise.
    pub(in crate::agent) fn begin_gang(&mut self, start: &Start, port: u16) -> Result<Beginning> {
        let gang = start.gang;
        let plan = self.job.plans[gang].clone();
        let role = &self.job.spec.roles[plan.role];
        let (Some(number), Some(warm)) = (self.zygotes.by_role[plan.role], role.zygote.as_ref()) else {
            self.view.state.gangs[gang].zygote.clone_from(&role.zygote_why);
            return Ok(Beginning::Executed);
        };
        if let Some(why) = self.refusal_to_fork(&role.name) {
            self.view.state.gangs[gang].zygote = format!("executed: {why}");
            return Ok(Beginning::Executed);
        }
        let about = match self.zygotes.pool.readiness(number) {
            Readiness::Warming => {
                self.view.state.gangs[gang].reason = format!("waits for {}", described(&warm.preload));
                return Ok(Beginning::Later);
            }
            Readiness::Cold(why) => {
                self.view.state.gangs[gang].zygote = format!("executed: {why}");
                return Ok(Beginning::Executed);
            }
            Readiness::Warm(warmth) => {
                format!("forked from {}, made in {} s", described(&warm.preload), warmth.took_s)
            }
        };
        let life = self.life(plan.role, start.incarnation, port, start.order.meeting);
        let limit = self.resources.file_limit;
        let program = Program {
            command: role.command.clone(),
            argv: warm.argv.clone(),
            module: warm.module,
            directory: directory(&life),
            files_max: (limit.rlim_cur, limit.rlim_max),
        };
        let places = start.places(&plan).into_iter().map(|(rank, slot)| (rank, self.place(gang, rank, slot)));
        let (forks, outputs) = worker_forks(&life, places)?;
        let different = forks
            .iter()
            .find_map(|worker| variables::different(self.zygotes.pool.spec(number), &worker.environment));
        if let Some(name) = different {
            self.view.state.gangs[gang].zygote =
                format!("executed: {name} is read when Python starts, and is not the zygote's");
            return Ok(Beginning::Executed);
        }
        let urgent = self.urgent();
        let Some(zygote) = self.zygotes.pool.warm(number) else { return Ok(Beginning::Executed) };
        match zygote.fork(&program, &forks, &urgent) {
            ForkOutcome::Forked { pids, gate } => {
                let forked = pids.into_iter().zip(outputs);
                let started = forked.map(|(pid, outputs)| Started { pid, outputs }).collect();
                self.view.state.gangs[gang].zygote = about;
                self.retire_zygote(number, gang);
                Ok(Beginning::Forked(started, gate))
            }
            ForkOutcome::Refused(why) => {
                self.view.state.gangs[gang].zygote = format!("executed: {why}");
                Ok(Beginning::Executed)
            }
            ForkOutcome::Interrupted => {
                self.coordinator.told = None;
                Ok(Beginning::Later)
            }
        }
    }

    /// Why ranks of a role are not forked any more: one of them wrote that down, because it set what is read when something is imported.
    fn refusal_to_fork(&self, role: &str) -> Option<String> {
        let file = File::open(self.job.directory.file(&format!("executed-{role}"))).ok()?;
        let mut text = Vec::new();
        file.take(REFUSAL_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).collect())
    }

    /// Ends a zygote after its last fork: every gang that uses it has begun, and none may begin again.
    fn retire_zygote(&mut self, number: usize, begun: usize) {
        let needed = self.job.plans.iter().enumerate().any(|(gang, plan)| {
            let budget = &self.job.spec.roles[plan.role].policy.budget;
            let again = budget.crash + budget.memory + budget.hang > 0 || self.host.standing.is_some();
            let waits = gang != begun && self.view.state.gangs[gang].incarnation.is_none();
            self.zygotes.by_role[plan.role] == Some(number) && (again || waits)
        });
        if !needed {
            let news = self.zygotes.pool.retire(number);
            self.note_zygotes(news.into_iter().collect());
        }
    }

    /// What a fork may not keep us from hearing: the keeper's end, the launcher, and `penstock stop`.
    fn urgent(&self) -> Vec<RawFd> {
        let (wakeups, launcher) = (&self.wakeups, &self.launcher);
        let files = [wakeups.keeper.as_ref(), launcher.pipe.as_ref(), Some(&wakeups.woken)];
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
        for (name, lock) in LOCKS.into_iter().zip(place.kept) {
            files.push((name, system::duplicate(lock)?));
        }
        let mut environment = spawn::environment(life, rank);
        environment.extend(place.variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let mark = life.marking(rank).map(|limit| (limit.rlim_cur, limit.rlim_max));
        let removed = spawn::removed(life, rank);
        workers.push(WorkerFork { rank, environment, removed, files, cpus: place.cpus, mark });
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
