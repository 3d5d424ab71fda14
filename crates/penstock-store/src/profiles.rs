//! The files in which people keep their credentials for S3: `~/.aws/config` and `~/.aws/credentials`.
//!
//! Read are keys, region and endpoint of the chosen profile. Credentials that have to be fetched (single sign-on, roles through other
//! profiles, processes) are not: export them into the environment, or let a role of the machine give them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a profile may say, by the names that the client knows.
const KNOWN: [&str; 5] =
    ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region", "endpoint_url"];

/// The settings of the chosen profile. A profile that was asked for by name and that is in neither file is an error.
pub(crate) fn read(environment: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let asked = environment.get("AWS_PROFILE").or_else(|| environment.get("AWS_DEFAULT_PROFILE"));
    let name = asked.map_or("default", String::as_str);
    let place = |variable: &str, usual: &str| {
        let named = environment.get(variable).map(PathBuf::from);
        named.or_else(|| environment.get("HOME").map(|home| PathBuf::from(home).join(".aws").join(usual)))
    };
    let text =
        |path: Option<PathBuf>| path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let config = text(place("AWS_CONFIG_FILE", "config"));
    let credentials = text(place("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
    // In the file of settings profiles other than the default are called so; in that of credentials they are not.
    let title = if name == "default" { name.to_owned() } else { format!("profile {name}") };
    let (settings, keys) = (section(&config, &title), section(&credentials, name));
    if asked.is_some() && settings.is_none() && keys.is_none() {
        return Err(format!("there is no profile `{name}` in the files of credentials and settings of AWS"));
    }
    // Keys in the file of credentials count more than those beside the settings.
    Ok(settings.unwrap_or_default().into_iter().chain(keys.unwrap_or_default()).collect())
}

/// What stands below a title, of the names that we know; nothing where there is no such title.
fn section(text: &str, title: &str) -> Option<BTreeMap<String, String>> {
    let mut entries: Option<BTreeMap<String, String>> = None;
    let mut inside = false;
    for line in text.lines() {
        // Indented lines belong to the name above them, which is none of ours.
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(named) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = named.split_whitespace().eq(title.split_whitespace());
            if inside {
                entries.get_or_insert_default();
            }
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| inside && !nested) else { continue };
        let name = name.trim().to_ascii_lowercase();
        if KNOWN.contains(&name.as_str()) {
            entries.get_or_insert_default().insert(name, value.trim().to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[default]\nregion = eu-north-1\n\n[profile other]\nregion=us-west-2\nendpoint_url = http://far\ns3 =\n  endpoint_url = nested\n";
    const KEYS: &str = "# mine\n[other]\naws_access_key_id = AK\naws_secret_access_key = S=K\nunknown = 1\n";

    fn environment(folder: &std::path::Path, profile: Option<&str>) -> BTreeMap<String, String> {
        let home = folder.to_str().unwrap().to_owned();
        let profile = profile.map(|name| ("AWS_PROFILE".to_owned(), name.to_owned()));
        [("HOME".to_owned(), home)].into_iter().chain(profile).collect()
    }

    #[test]
    fn a_profile_is_put_together_from_both_files() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), KEYS).unwrap();
        let usual = read(&environment(home.path(), None)).unwrap();
        assert_eq!(usual, [("region".to_owned(), "eu-north-1".to_owned())].into());
        let other = read(&environment(home.path(), Some("other"))).unwrap();
        assert_eq!(other["aws_secret_access_key"], "S=K");
        assert_eq!((other["region"].as_str(), other["endpoint_url"].as_str()), ("us-west-2", "http://far"));
        assert!(!other.contains_key("unknown"));
        assert!(read(&environment(home.path(), Some("gone"))).unwrap_err().contains("`gone`"));
    }

    #[test]
    fn without_files_there_are_no_settings() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(read(&environment(home.path(), None)), Ok(BTreeMap::new()));
        assert_eq!(read(&BTreeMap::new()), Ok(BTreeMap::new()));
    }
}
