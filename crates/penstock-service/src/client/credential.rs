//! What a client shows a server to be let in.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longer files hold something else.
const FILE_BYTES_MAX: u64 = 1024;
/// `O_NOFOLLOW | O_NONBLOCK` on Linux: neither a link nor a pipe is a token.
const OPEN_FLAGS: i32 = 0o400_000 | 0o4_000;

/// The token for one server.
#[derive(Clone)]
pub enum Credential {
    /// Given by the caller.
    Text(String),
    /// Kept by the server in a file for its own user. Read for every request, because a server that starts again has another one.
    File(PathBuf),
}

impl Credential {
    /// The token now; none where a file is missing, or is not for our eyes alone.
    pub(super) fn token(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::File(path) => private_text(path),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => into.write_str("Text(…)"),
            Self::File(path) => write!(into, "File({})", path.display()),
        }
    }
}

/// The text of a file that is ours and that nobody else may read or write.
fn private_text(path: &Path) -> Option<String> {
    let file = std::fs::File::options().read(true).custom_flags(OPEN_FLAGS).open(path).ok()?;
    let about = file.metadata().ok()?;
    let own = std::fs::metadata("/proc/self").ok()?.uid();
    if !about.is_file() || about.uid() != own || about.mode() & 0o077 != 0 {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    let token = text.trim();
    let printable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    printable.then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_believed_only_if_it_is_private() {
        let folder = std::env::temp_dir().join(format!("penstock-credential-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("7070");
        std::fs::write(&file, "secret\n").expect("a file");
        for (mode, expected) in [(0o600, Some("secret")), (0o640, None), (0o602, None)] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("its mode");
            assert_eq!(Credential::File(file.clone()).token().as_deref(), expected);
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert_eq!(Credential::File(link).token(), None);
        for text in ["", "two words", "\u{e9}", "a\r\nx-header: 1"] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(Credential::File(file.clone()).token(), None);
        }
        std::fs::remove_dir_all(&folder).expect("to be removed");
        assert_eq!(Credential::File(file).token(), None);
        assert_eq!(format!("{:?}", Credential::Text("secret".into())), "Text(…)");
    }
}
