//! What must not be written down for people: secrets.
//!
//! Three rules, the same as those of what commands show (`penstock/events/redaction.py`): values of variables whose names say so, words of a
//! known shape, and what follows a name that says so. One file of cases is tested against both.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;

use crate::job::Job;

/// Names that say that the value is a secret.
const SECRET: [&str; 11] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "AUTH",
];
/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 8;
const HIDDEN: &str = "[secret]";

/// Names that only look like it: numbers of tokens are no secrets.
static HARMLESS: LazyLock<Regex> = LazyLock::new(|| {
    rule(r"(?i)(?:MAX|NUM|N|PER|COUNT|PAD|EOS|BOS|UNK|MASK)_?TOKENS?|TOKENS|TOKENIZERS?|AUTHORS?(?:_|$)")
});
static KNOWN_SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    rule(
        r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    )
});
/// `://user:password@host`
static IN_ADDRESS: LazyLock<Regex> = LazyLock::new(|| rule(r"(://[^/\s:@]*:)([^/\s@]+)(@)"));
/// `--api-key X`, `token=X`, `"password": "X"`, `Authorization: Bearer X`
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    rule(
        r#"(?i)((?:--?)?[\w.-]*(?:token|secret|passwo?r?d|passphrase|credential|(?:api|access|private|wandb|login)[_-]?key|authorization)[\w-]*["']?(?:\s*[=:]\s*|\s+)(?:bearer\s+|basic\s+)?["']?)([^\s"',;&]{8,})"#,
    )
});
/// Keys of 40 hexadecimal digits look like commits; only beside a word like key are they taken for one.
static HEX_KEY: LazyLock<Regex> = LazyLock::new(|| rule(r"(?i)(\bkey\b[^\n]{0,20}?)\b([0-9a-f]{40})\b"));

/// One of these is in every text that a rule changes. Most texts have none, and rules are slow to say so.
const SUSPICIOUS: [&str; 22] = [
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "akia",
    "asia",
    "aiza",
    "eyj",
    "://",
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "key",
    "authorization",
];

fn rule(text: &str) -> Regex {
    Regex::new(text).expect("a rule that the tests have compiled")
}

/// Whether a variable is called like a secret.
pub fn is_secret_name(name: &str) -> bool {
    let plain = name.to_uppercase().replace('-', "_");
    let told = HARMLESS.replace_all(&plain, "");
    SECRET.iter().any(|word| told.contains(word))
}

/// Hides secrets of an environment, and what looks like one.
pub struct Redaction(Vec<(String, String)>);

impl std::fmt::Debug for Redaction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} secrets", self.0.len())
    }
}

impl Redaction {
    /// Of a job: secrets of our environment, of its roles' environments, and of options in its commands.
    pub fn of_job(job: Option<&Job>) -> Self {
        let inherited = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let roles = job.map_or(&[][..], |job| &job.roles[..]);
        let given = roles.iter().flat_map(|role| role.environment.clone());
        let options = roles.iter().flat_map(|role| options(&role.command));
        Self::of(inherited.chain(given).chain(options))
    }

    /// Of these variables, those that are secrets.
    pub fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut found: Vec<(String, String)> = variables
            .filter(|(name, value)| value.len() >= SECRET_BYTES_MIN && is_secret_name(name))
            .collect();
        // A value may be part of another; the longer one is replaced first.
        found.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(found)
    }

    /// The same without secrets.
    pub fn text(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, (name, value)| {
            if text.contains(value) { text.replace(value, &format!("[{name}]")) } else { text }
        });
        let plain = text.to_ascii_lowercase();
        if !SUSPICIOUS.iter().any(|word| plain.contains(word)) {
            return text;
        }
        let text = KNOWN_SHAPES.replace_all(&text, HIDDEN);
        let text = IN_ADDRESS
            .replace_all(&text, |found: &Captures<'_>| format!("{}{HIDDEN}{}", &found[1], &found[3]));
        let text = NAMED.replace_all(&text, |found: &Captures<'_>| {
            if is_harmless(&found[1], &found[2]) {
                found[0].to_owned()
            } else {
                format!("{}{HIDDEN}", &found[1])
            }
        });
        HEX_KEY.replace_all(&text, |found: &Captures<'_>| format!("{}{HIDDEN}", &found[1])).into_owned()
    }

    /// The same for everything inside a value.
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, item)| (name, self.value(item))).collect()
            }
            other => other,
        }
    }

    /// The same command; what follows `--token` and its like is hidden whatever it looks like.
    pub fn command(&self, words: &[String]) -> Vec<String> {
        let mut hide = false;
        let shown = words.iter().map(|word| {
            let (name, value) =
                word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            let secret = name.starts_with('-') && is_secret_name(name.trim_start_matches('-'));
            let hidden = std::mem::replace(&mut hide, secret && value.is_none());
            match (hidden && !word.starts_with('-'), secret, value) {
                (true, ..) => {
                    hide = false;
                    HIDDEN.to_owned()
                }
                (_, true, Some(_)) => format!("{name}={HIDDEN}"),
                _ => self.text(word),
            }
        });
        shown.collect()
    }
}

/// Options of a command with their values: `--token X` and `--token=X`.
fn options(command: &[String]) -> Vec<(String, String)> {
    let name = |word: &str| word.trim_start_matches('-').to_owned();
    let attached = command.iter().filter_map(|word| word.split_once('='));
    let following = command.windows(2).filter(|pair| !pair[0].contains('=') && !pair[1].starts_with('-'));
    attached
        .chain(following.map(|pair| (pair[0].as_str(), pair[1].as_str())))
        .filter(|(option, _)| option.starts_with('-'))
        .map(|(option, value)| (name(option), value.to_owned()))
        .collect()
}

/// `num_tokens: 123456789` and `the secret of something` are no secrets; already hidden ones stay as they are.
fn is_harmless(name: &str, value: &str) -> bool {
    if value.starts_with('[') || !is_secret_name(name) {
        return true;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return true;
    }
    !name.contains(['=', ':'])
        && !name.trim_start().starts_with('-')
        && !value.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str = include_str!("../../../../tests/golden/redaction.json");

    fn cases() -> serde_json::Value {
        serde_json::from_str(CASES).unwrap()
    }

    fn words(cases: &serde_json::Value, key: &str) -> Vec<String> {
        cases[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_rules_are_those_of_the_commands() {
        let (cases, none) = (cases(), Redaction(Vec::new()));
        for pair in cases["hidden"].as_array().unwrap() {
            assert_eq!(none.text(pair[0].as_str().unwrap()), pair[1].as_str().unwrap());
        }
        for text in words(&cases, "kept") {
            assert_eq!(none.text(&text), text);
        }
        for name in words(&cases, "secret_names") {
            assert!(is_secret_name(&name), "{name}");
        }
        for name in words(&cases, "other_names") {
            assert!(!is_secret_name(&name), "{name}");
        }
    }

    #[test]
    fn a_secret_of_the_environment_is_replaced_by_its_name() {
        let variables = [("HF_TOKEN", "hf_0123456789"), ("A_TOKEN", "short"), ("HOME", "/some/where")];
        let known = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redaction = Redaction::of(known.into_iter());
        assert_eq!(
            redaction.text("login hf_0123456789 failed short /some/where"),
            "login [HF_TOKEN] failed short /some/where"
        );
    }

    #[test]
    fn values_of_options_are_secrets_wherever_they_turn_up() {
        let command = [
            "train.py",
            "--api-key",
            "correct-horse",
            "--db_password=battery-staple",
            "--max-tokens",
            "123456789",
        ];
        let redaction = Redaction::of(options(&command.map(str::to_owned)).into_iter());
        assert_eq!(
            redaction.text("no correct-horse with battery-staple in 123456789"),
            "no [api-key] with [db_password] in 123456789"
        );
    }

    #[test]
    fn commands_hide_what_follows_an_option() {
        let given = ["run", "--token", "abc", "--lr", "3e-4", "--api_key=k", "--max-tokens", "2048"];
        let shown = Redaction(Vec::new()).command(&given.map(str::to_owned));
        assert_eq!(
            shown,
            ["run", "--token", "[secret]", "--lr", "3e-4", "--api_key=[secret]", "--max-tokens", "2048"]
        );
    }
}
