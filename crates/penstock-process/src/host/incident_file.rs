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
/// What who begins to lead afterwards cannot know any more.
const EVIDENCE: [&str; 4] = ["failures", "more_failures", "lost_hosts", "words"];

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

/// Of a leader that saw nothing of the failure itself, what was known before stays.
fn keep_evidence(incident: &mut Value, known: &Value) {
    let empty = |document: &Value| {
        ["failures", "lost_hosts"].iter().all(|field| document[*field].as_array().is_none_or(Vec::is_empty))
    };
    if empty(incident) && !empty(known) {
        for field in EVIDENCE {
            incident[field] = known[field].clone();
        }
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
        let known = json!({"failures": [{"rank": 3}], "more_failures": 2, "lost_hosts": [], "words": ["x"], "verdict": "fail"});
        let mut new =
            json!({"failures": [], "more_failures": 0, "lost_hosts": [], "words": [], "verdict": "start"});
        keep_evidence(&mut new, &known);
        assert_eq!(
            (&new["failures"], &new["words"], &new["verdict"]),
            (&known["failures"], &known["words"], &json!("start"))
        );
        let mut other = json!({"failures": [], "lost_hosts": [{"host": "gpu02"}], "words": []});
        keep_evidence(&mut other, &known);
        assert_eq!(other["failures"], json!([]));
    }
}
