//! The secret of a job, and what is derived from it.
//!
//! Every host of a job holds the same 32 bytes. From them comes one Ed25519 key pair, the same everywhere: a peer belongs to the job
//! exactly if it can sign with that key. The public half tells nothing about the secret.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::error::{ProcessError, Result};

/// How long the secret of a job is.
pub const KEY_BYTES: usize = 32;
/// A file that is longer holds no key.
const FILE_BYTES_MAX: u64 = 4096;
/// What the key pair is derived for; a change makes all agents strangers to older ones.
const SIGNATURE_PURPOSE: &[u8] = b"penstock host signature 1";
/// What the secret of a joined job is derived for, before the endpoint.
const JOIN_PURPOSE: &[u8] = b"penstock join ";

/// The secret of one job. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; KEY_BYTES]);

impl JobKey {
    /// The secret itself, as a host was given it.
    pub fn new(secret: [u8; KEY_BYTES]) -> Self {
        Self(secret)
    }

    /// Reads a file with 64 hex digits. Refused where other users may read it, or where it belongs to one.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |source| ProcessError::File { verb: "read", path: path.to_owned(), source };
        let refused = |why: String| ProcessError::Key { path: path.to_owned(), why };
        // A pipe in its place must not hold us up.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        // Of what was opened, not of what has the name by now.
        let about = file.metadata().map_err(failed)?;
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        if !about.is_file() {
            return Err(refused("it is not a regular file".to_owned()));
        }
        if about.uid() != user {
            return Err(refused(format!("it belongs to user {}, and this is user {user}", about.uid())));
        }
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o777;
            return Err(refused(format!("other users may use it (mode {mode:04o}); run `chmod 600` on it")));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let secret = secret_of_hex(text.trim_ascii());
        secret.map(Self).ok_or_else(|| refused(format!("it does not hold {} hex digits", 2 * KEY_BYTES)))
    }

    /// The secret of a job whose hosts join: all who hold the key file and name the same rendezvous and endpoint get the same.
    pub fn of_join(key_file: &[u8], rendezvous: &str, endpoint: &str) -> Self {
        Self(derived(key_file, rendezvous.as_bytes(), &[JOIN_PURPOSE, endpoint.as_bytes()]))
    }

    /// The seed of the key pair with which hosts of the job sign.
    pub(super) fn signature_seed(&self) -> [u8; KEY_BYTES] {
        derived(&self.0, b"", &[SIGNATURE_PURPOSE])
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobKey(secret)")
    }
}

fn secret_of_hex(digits: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut secret = [0; KEY_BYTES];
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(secret)
}

/// As many bytes as a key has.
struct OneKey;

impl KeyType for OneKey {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// HKDF-SHA256.
fn derived(secret: &[u8], salt: &[u8], purpose: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let filled = extracted.expand(purpose, OneKey).and_then(|stream| stream.fill(&mut key));
    assert!(filled.is_ok(), "HKDF-SHA256 gives up to 8160 bytes, and {KEY_BYTES} are asked for");
    key
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Goal: Rust and Python derive the same secret. Method: the vector was made by this, with nothing but the standard library:
    ///
    /// ```python
    /// import hashlib, hmac
    /// key, salt, info = bytes(range(32)), "run-7 é".encode(), b"penstock join " + "10.0.0.1:29400".encode()
    /// extracted = hmac.digest(salt, key, hashlib.sha256)
    /// print(hmac.digest(extracted, info + b"\x01", hashlib.sha256).hex())
    /// ```
    #[test]
    fn the_secret_of_a_joined_job_is_the_one_that_python_derives() {
        let key_file: Vec<u8> = (0..32).collect();
        let key = JobKey::of_join(&key_file, "run-7 é", "10.0.0.1:29400");
        assert_eq!(hex(&key.0), "65d06e08385b0e4dd806639783b7f3864543f137e932320d34d4f213f81793c7");
    }

    #[test]
    fn another_rendezvous_or_endpoint_is_another_secret() {
        let key = JobKey::of_join(b"file", "run", "host:1");
        assert_eq!(key, JobKey::of_join(b"file", "run", "host:1"));
        assert_ne!(key, JobKey::of_join(b"file", "run2", "host:1"));
        assert_ne!(key, JobKey::of_join(b"file", "run", "host:2"));
        assert_ne!(key, JobKey::of_join(b"elif", "run", "host:1"));
    }

    #[test]
    fn a_key_is_read_only_where_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, format!("{}\n", "0aF1".repeat(16))).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o610, 0o777] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let told = JobKey::read(&path).unwrap_err();
            assert!(matches!(told, ProcessError::Key { .. }), "{told}");
            assert!(told.to_string().contains(&format!("{mode:04o}")), "{told}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let key = JobKey::read(&path).unwrap();
        assert_eq!(hex(&key.0), "0af1".repeat(16));
        assert_eq!(format!("{key:?}"), "JobKey(secret)");
    }

    #[test]
    fn a_file_that_holds_no_key_or_belongs_to_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let long = "0".repeat(66);
        for text in ["", "00", "zz", &long, &"0g".repeat(32), &"é".repeat(32)] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let told = JobKey::read(&path).unwrap_err();
            assert!(told.to_string().contains("64 hex digits"), "{told}");
        }
        let told = JobKey::read(folder.path()).unwrap_err();
        assert!(matches!(told, ProcessError::Key { .. }), "{told}");
        assert!(matches!(JobKey::read(&folder.path().join("none")), Err(ProcessError::File { .. })));
        // SAFETY: asks for a number.
        let is_root = unsafe { libc::geteuid() } == 0;
        if is_root {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            let told = JobKey::read(&path).unwrap_err();
            assert!(told.to_string().contains("belongs to user 12345"), "{told}");
        }
    }
}
