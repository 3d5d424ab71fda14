//! How wide text is on a terminal, and what of it may be drawn beside other text.
//!
//! Lines of several workers share one terminal, so a sequence that moves the cursor or erases would hit the lines of others: only
//! those that set colours are kept. `penstock/cli/escape.py` does the same for logs that are read later.

const ESCAPE: u8 = 0x1b;
/// Longer sequences are not sequences.
const SEQUENCE_BYTES_MAX: usize = 64;
/// After a line that was cut in the middle of a colour.
const RESET: &[u8] = b"\x1b[0m";

/// Appends as much of `text` as fits into `columns`, without what moves the cursor; how many columns it takes.
pub(super) fn fit(text: &[u8], columns: usize, out: &mut Vec<u8>) -> usize {
    let (mut at, mut used, mut coloured) = (0, 0, false);
    while at < text.len() {
        let rest = &text[at..];
        if rest[0] == ESCAPE {
            let (length, colour) = sequence(rest);
            if colour {
                out.extend_from_slice(&rest[..length]);
                coloured = true;
            }
            at += length;
            continue;
        }
        let (length, wide) = character(rest);
        if used + wide > columns {
            break;
        }
        match rest[0] {
            b'\t' => out.push(b' '),
            byte if byte < b' ' || byte == 0x7f => {}
            _ => out.extend_from_slice(&rest[..length]),
        }
        used += wide;
        at += length;
    }
    if coloured {
        out.extend_from_slice(RESET);
    }
    used
}

/// Where in `text` the first byte stands that a terminal may obey: a control but tab and line end, or the first byte of one of eight bits.
pub(super) fn steering(text: &[u8]) -> Option<usize> {
    text.iter().enumerate().position(|(at, byte)| match *byte {
        b'\t' | b'\n' => false,
        0xc2 => text.get(at + 1).is_none_or(|next| *next < 0xa0),
        byte => byte < b' ' || byte == 0x7f,
    })
}

/// Appends `text` without what moves the cursor, erases, rings or changes the terminal in another way.
pub(super) fn without_moves(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = steering(rest) {
        out.extend_from_slice(&rest[..at]);
        let (length, kept) = match rest[at] {
            ESCAPE => sequence(&rest[at..]),
            0xc2 => (2.min(rest.len() - at), false),
            _ => (1, false),
        };
        if kept {
            out.extend_from_slice(&rest[at..at + length]);
        }
        rest = &rest[at + length..];
    }
    out.extend_from_slice(rest);
}

/// A sentence for a terminal, in which programs may have had a part.
pub fn harmless(sentence: &str) -> String {
    let mut out = Vec::new();
    without_moves(sentence.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the escape sequence at the beginning of `text`, and whether it only sets colours.
fn sequence(text: &[u8]) -> (usize, bool) {
    match text.get(1) {
        Some(b'[') => {
            let body = text[2..].iter().take(SEQUENCE_BYTES_MAX);
            match body.clone().position(|byte| (0x40..=0x7e).contains(byte)) {
                Some(end) => (end + 3, text[end + 2] == b'm'),
                // Its end is not written yet, or never will be.
                None => (2 + body.count(), false),
            }
        }
        // A title, a link, the clipboard or a message to the terminal: up to a bell or to the next escape and its backslash.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = text[2..].iter().position(|byte| matches!(*byte, 0x07 | ESCAPE));
            let more = end.map_or(text.len(), |end| end + 3 + usize::from(text[end + 2] == ESCAPE));
            (more.min(text.len()), false)
        }
        Some(_) => (2, false),
        None => (1, false),
    }
}

/// Bytes and columns of the character at the beginning of `text`; a byte that begins none is one of each.
fn character(text: &[u8]) -> (usize, usize) {
    let length = match text[0] {
        byte if byte < b' ' && byte != b'\t' => return (1, 0),
        0x7f => return (1, 0),
        byte if byte < 0x80 => return (1, 1),
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return (1, 1),
    };
    let whole = text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    whole.and_then(|text| text.chars().next()).map_or((1, 1), |letter| (length, columns(letter)))
}

fn columns(letter: char) -> usize {
    match u32::from(letter) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fitted(text: &str, columns: usize) -> (String, usize) {
        let mut out = Vec::new();
        let used = fit(text.as_bytes(), columns, &mut out);
        (String::from_utf8(out).unwrap(), used)
    }

    #[test]
    fn a_bar_is_cut_at_the_edge_and_wide_letters_count_twice() {
        assert_eq!(fitted("50%|████▌    |", 8), ("50%|████".to_owned(), 8));
        assert_eq!(fitted("重い", 3), ("重".to_owned(), 2));
        assert_eq!(fitted("a\tb", 9), ("a b".to_owned(), 3));
    }

    #[test]
    fn colours_stay_and_end_and_moves_are_left_out() {
        assert_eq!(fitted("\x1b[31mred\x1b[2A\x1b[K", 9), ("\x1b[31mred\x1b[0m".to_owned(), 3));
        let mut out = Vec::new();
        without_moves(b"a\x1b[2Kb\x1b[32mc\x1b[0m\x1b]0;title\x07d\x1b[", &mut out);
        assert_eq!(out, b"ab\x1b[32mc\x1b[0md");
        out.clear();
        without_moves("bell\x07, shift\x0e, ca\u{9b}2Jfé\tstays\x1bPq#0\x1b\\!".as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "bell, shift, ca2Jfé\tstays!");
    }

    proptest! {
        #[test]
        fn any_bytes_fit(text in proptest::collection::vec(any::<u8>(), 0..200), columns in 0..50usize) {
            let mut out = Vec::new();
            prop_assert!(fit(&text, columns, &mut out) <= columns);
            without_moves(&text, &mut out);
        }
    }
}
