//! Which variables a zygote runs with, and which a worker may not have otherwise: those that are read when something is imported.

use std::collections::BTreeMap;

use crate::job::mark::WORKER_MARK;
use crate::zygote::ZygoteSpec;

/// Held at this in the zygote alone: OpenBLAS starts its threads when it is loaded, and a process with threads cannot be forked.
pub const HELD: [(&str, &str); 1] = [("OPENBLAS_NUM_THREADS", "1")];
/// The mark of a worker in /proc is what the zygote began with; a fork puts its own there, into so many bytes.
pub const WORKER_PLACE: (&str, usize) = (WORKER_MARK, 96);
/// Read while Python or its libraries are loaded. What begins so is the same in a zygote and its forks, or they are not forked.
const READ_EARLY: [&str; 17] = [
    "PYTHON",
    "LD_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "OPENBLAS_",
    "GOTO_",
    "BLIS_",
    "TORCH_",
    "PYTORCH_",
    "LANG",
    "LC_",
    "MALLOC_",
    "GLIBC_",
    "TMPDIR",
    "HOME",
];
/// Of these a fork makes up for what was read early.
const SET_LATE: [&str; 2] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"];

/// Whether a variable is read when something is imported.
pub fn is_read_early(name: &str) -> bool {
    READ_EARLY.iter().any(|start| name.starts_with(start))
}

/// What a fork sets back: the variables that are held, as they would be without us. Nothing for one that is not set.
pub fn restored(spec: &ZygoteSpec) -> BTreeMap<&'static str, Option<String>> {
    let asked = |name: &str| spec.environment.iter().rev().find(|(known, _)| known == name);
    let value = |name: &str| {
        asked(name).map_or_else(
            || std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()),
            |(_, value)| Some(value.clone()),
        )
    };
    HELD.iter().map(|(name, _)| (*name, value(name))).collect()
}

/// The first variable of a worker that its zygote would have had to know before; nothing when it may be forked.
pub fn different(spec: &ZygoteSpec, worker: &[(String, String)]) -> Option<String> {
    let known = |name: &str| {
        let asked = spec.environment.iter().rev().find(|(known, _)| known == name);
        asked.map_or_else(|| std::env::var(name).ok(), |(_, value)| Some(value.clone()))
    };
    let early = worker.iter().filter(|(name, _)| is_read_early(name) && !SET_LATE.contains(&name.as_str()));
    let mut differing = early.filter(|(name, value)| known(name).as_deref() != Some(value));
    differing.next().map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(environment: &[(&str, &str)]) -> ZygoteSpec {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ZygoteSpec {
            interpreter: "python".to_owned(),
            flags: Vec::new(),
            entry: "zygote".to_owned(),
            preload: Vec::new(),
            environment: environment.collect(),
            directory: "/".to_owned(),
        }
    }

    #[test]
    fn only_what_is_read_early_has_to_be_the_same() {
        let own = spec(&[("PYTHONHASHSEED", "7"), ("COLOUR", "red")]);
        let worker = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!(different(&own, &worker("PYTHONHASHSEED", "7")), None);
        assert_eq!(different(&own, &worker("PYTHONHASHSEED", "8")), Some("PYTHONHASHSEED".to_owned()));
        assert_eq!(different(&own, &worker("LC_PENSTOCK", "x")), Some("LC_PENSTOCK".to_owned()));
        for (name, value) in
            [("COLOUR", "blue"), ("RANK", "3"), ("TORCHELASTIC_RESTART_COUNT", "1"), ("OMP_NUM_THREADS", "9")]
        {
            assert_eq!(different(&own, &worker(name, value)), None);
        }
    }

    #[test]
    fn what_is_held_is_set_back_to_what_was_asked_for() {
        let restored = restored(&spec(&[("OPENBLAS_NUM_THREADS", "3"), ("OPENBLAS_NUM_THREADS", "4")]));
        assert_eq!(restored["OPENBLAS_NUM_THREADS"].as_deref(), Some("4"));
    }
}
