//! The secret that lets a client in.

use std::fmt;

/// A secret. Only its hash is kept, and it is never shown.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// A token from its text.
    pub fn new(text: &str) -> Self {
        Self(blake3::hash(text.as_bytes()))
    }

    /// Whether an `Authorization` header carries it. Takes the same time for every wrong one: hashes are compared in constant time.
    pub fn opens(&self, header: Option<&[u8]>) -> bool {
        let token = header.and_then(|header| header.strip_prefix(b"Bearer ")).unwrap_or_default();
        blake3::hash(token) == self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_token_opens_and_none_is_shown() {
        let token = Token::new("secret");
        assert!(token.opens(Some(b"Bearer secret")));
        for wrong in [None, Some(&b""[..]), Some(b"secret"), Some(b"Bearer "), Some(b"Bearer secret ")] {
            assert!(!token.opens(wrong));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
