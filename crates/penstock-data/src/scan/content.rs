//! What a member of an archive holds, as the last part of its extension says, and whether it does.
//!
//! The same extensions are decoded in Python when a row is read (`formats/samples/webdataset.py`). Whatever passes here can be
//! decoded there: a check that is wider than the decoder would register rows that cannot be read.

use super::Kind;
use super::json::check_value;
use super::npy::{HEAD_BYTES_MAX, check_npy};

/// Most digits of a whole number.
const DIGITS_MAX: usize = 4_000;
/// Bytes of a member that a reason quotes.
const QUOTED_BYTES_MAX: usize = 20;

/// What the data of a member can be decoded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A JSON value of any kind.
    Json,
    /// UTF-8.
    Text,
    /// A whole number in decimal digits, with space around it.
    Number,
    /// A numpy array, not of objects.
    Array,
}

impl Content {
    /// What an extension in lower case promises; nothing for those whose members stay bytes.
    pub(crate) fn of(extension: &str) -> Option<Self> {
        match extension.rsplit('.').next()? {
            "json" | "jsn" => Some(Self::Json),
            "txt" | "text" | "transcript" => Some(Self::Text),
            "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => Some(Self::Number),
            "npy" => Some(Self::Array),
            _ => None,
        }
    }

    /// How many of the first of a member's `bytes` bytes must be seen to judge it.
    pub(crate) fn head_bytes(self, bytes: u64) -> u64 {
        if self == Self::Array { bytes.min(HEAD_BYTES_MAX) } else { bytes }
    }

    /// Judges a member of `bytes` bytes by the first of them; the reason says what it is not.
    pub(crate) fn check(self, head: &[u8], bytes: u64) -> Result<Kind, String> {
        match self {
            Self::Json => check_json(head).map_err(|reason| format!("is not valid JSON: {reason}")),
            Self::Text => {
                check_utf8(head).map(|()| Kind::String).map_err(|at| format!("is not UTF-8 at byte {at}"))
            }
            Self::Number => check_number(head),
            Self::Array => check_npy(head, bytes)
                .map(|()| Kind::Array)
                .map_err(|reason| format!("is not a valid npy array: {reason}")),
        }
    }
}

/// Fails with the place of the first byte that is not UTF-8.
fn check_utf8(data: &[u8]) -> Result<(), usize> {
    match simdutf8::basic::from_utf8(data) {
        Ok(_) => Ok(()),
        // The fast check does not say where.
        Err(_) => std::str::from_utf8(data).map(drop).map_err(|error| error.valid_up_to()),
    }
}

fn check_json(data: &[u8]) -> Result<Kind, String> {
    check_utf8(data).map_err(|at| format!("it is not UTF-8 at byte {at}"))?;
    check_value(data).map_err(|fault| format!("at byte {}, {}", fault.at, fault.reason))
}

fn check_number(data: &[u8]) -> Result<Kind, String> {
    // As Python strips bytes: vertical tabs are space too.
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = data.iter().take_while(|byte| is_space(byte)).count();
    let end = data.len() - data[start..].iter().rev().take_while(|byte| is_space(byte)).count();
    let text = &data[start..end];
    let digits = if let [b'+' | b'-', digits @ ..] = text { digits } else { text };
    if (1..=DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        return Ok(Kind::Int);
    }
    let quoted = text[..text.len().min(QUOTED_BYTES_MAX)].escape_ascii();
    Err(format!("is not a whole number: b'{quoted}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(extension: &str, data: &[u8]) -> Result<Kind, String> {
        Content::of(extension).unwrap().check(data, data.len() as u64)
    }

    #[test]
    fn the_last_part_of_an_extension_says_what_a_member_is() {
        assert_eq!(Content::of("left.seg.npy"), Some(Content::Array));
        assert_eq!(Content::of("json"), Some(Content::Json));
        for bytes in ["json.gz", "pyd", "jpg", "", "npyx", "npz"] {
            assert_eq!(Content::of(bytes), None, "{bytes}");
        }
    }

    #[test]
    fn members_are_of_the_kind_that_they_hold() {
        for (extension, data, kind) in [
            ("json", b" [1] ".as_slice(), Kind::List),
            ("jsn", b"null", Kind::Null),
            ("txt", "\u{e9}".as_bytes(), Kind::String),
            ("transcript", b"", Kind::String),
            ("cls", b"\x0b -12\r\n", Kind::Int),
            ("id", b"+007", Kind::Int),
        ] {
            assert_eq!(check(extension, data), Ok(kind), "{extension}");
        }
        assert_eq!(check("count", "9".repeat(4_000).as_bytes()), Ok(Kind::Int));
    }

    #[test]
    fn what_cannot_be_decoded_is_refused() {
        for (extension, data, reason) in [
            ("json", b"{".as_slice(), "is not valid JSON: at byte 1, expected a key in double quotes"),
            ("json", b"\"\xff\"", "is not valid JSON: it is not UTF-8 at byte 1"),
            ("txt", b"ab\xff", "is not UTF-8 at byte 2"),
            (
                "cls",
                b" one\xff'two' and so on and on",
                "is not a whole number: b'one\\xff\\'two\\' and so on '",
            ),
            ("cls", b"", "is not a whole number: b''"),
            ("cls", b"+", "is not a whole number: b'+'"),
            ("cls", b"1.0", "is not a whole number: b'1.0'"),
            ("npy", b"\x93NUM", "is not a valid npy array: it ends inside its header"),
        ] {
            assert_eq!(check(extension, data).unwrap_err(), reason, "{extension}");
        }
        assert!(check("count", "9".repeat(4_001).as_bytes()).is_err());
    }
}
