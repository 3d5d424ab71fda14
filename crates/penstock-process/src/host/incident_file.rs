//! Failures over all hosts on the disk of one host: one file for each life that failed, replaced when more is known.

use std::path::PathBuf;

use serde_json::Value;

use crate::complain;
use crate::error::{ProcessError, Result};
use crate::job::JobDirectory;
use crate::job::state::write_whole;

/// Where they are in the host directory.
const FOLDER: &str = "incidents/of-all-hosts";
/// The newest that are kept.
const FILES_MAX: usize = 256;
/// What who begins to lead afterwards may not know, and by which fields one is the same as another.
const EVIDENCE: [(&str, &[&str]); 4] = [
    ("failures", &["rank"]),
    ("lost_hosts", &["host_rank", "host"]),
    ("words", &["role", "rank"]),
    ("took_over", &["host_rank", "to"]),
];

/// Writes one down, without secrets.
pub(super) fn write(directory: &JobDirectory, incident: &Value) {
    if let Err(problem) = try_write(directory, incident) {
        complain!("penstock-host: an incident is not written down: {problem}");
    }
}

fn try_write(directory: &JobDirectory, incident: &Value) -> Result<()> {
    let folder = directory.file(FOLDER);
    let failed = |source| ProcessError::File { verb: "write", path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let lone = incident["lone_rank"].as_u64().map(|rank| format!("-{rank}")).unwrap_or_default();
    // A name of a role is one of a file; this one came from another host.
    let role: String = incident["role"].as_str().unwrap_or("").replace(['/', '\0'], "_");
    let path = folder.join(format!("{role}{lone}.{}.json", incident["incarnation"].as_u64().unwrap_or(0)));
    let mut whole = directory.secrets().value(incident.clone());
    let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    keep_evidence(&mut whole, &known.unwrap_or_default());
    write_whole(&path, &serde_json::to_vec_pretty(&whole).expect("plain values"))?;
    remove_old(
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect(),
    );
    Ok(())
}

/// Another leader knows less of what happened before it led: that stays, and so do moments, because whoever saw something first saw it best.
fn keep_evidence(incident: &mut Value, known: &Value) {
    for (field, same) in EVIDENCE {
        let alike = |one: &Value, other: &Value| same.iter().all(|name| one[*name] == other[*name]);
        let there = incident[field].as_array().cloned().unwrap_or_default();
        let before = known[field].as_array().into_iter().flatten();
        let missing = before.filter(|old| !there.iter().any(|new| alike(new, old))).cloned();
        let all: Vec<Value> = missing.chain(there.iter().cloned()).collect();
        incident[field] = all.into();
    }
    for (name, moment) in
        known["times"].as_object().into_iter().flatten().filter(|(_, moment)| !moment.is_null())
    {
        incident["times"][name] = moment.clone();
    }
}

fn remove_old(mut files: Vec<PathBuf>) {
    if files.len() > FILES_MAX {
        files.sort_by_key(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok());
        files[..files.len() - FILES_MAX].iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_later_leader_adds_what_it_knows_and_takes_nothing_away() {
        let known = json!({
            "failures": [{"rank": 3, "at_ms": 5}], "lost_hosts": [{"host": "gpu02", "host_rank": 1, "heard_ms": 1}],
            "words": [], "verdict": "wait", "times": {"noticed_ms": 6, "ordered_ms": null},
        });
        let mut new = json!({
            "failures": [{"rank": 3, "at_ms": 7}, {"rank": 4}], "lost_hosts": [{"host": "gpu03", "host_rank": 2}],
            "words": ["x"], "verdict": "start", "times": {"noticed_ms": 60, "ordered_ms": 70},
        });
        keep_evidence(&mut new, &known);
        let hosts: Vec<&Value> =
            new["lost_hosts"].as_array().unwrap().iter().map(|lost| &lost["host"]).collect();
        assert_eq!(hosts, ["gpu02", "gpu03"]);
        assert_eq!(new["failures"], json!([{"rank": 3, "at_ms": 7}, {"rank": 4}]));
        assert_eq!((&new["words"], &new["verdict"]), (&json!(["x"]), &json!("start")));
        assert_eq!(new["times"], json!({"noticed_ms": 6, "ordered_ms": 70}));
        let whole = new.clone();
        keep_evidence(&mut new, &Value::Null);
        assert_eq!(new["lost_hosts"], whole["lost_hosts"]);
    }
}
