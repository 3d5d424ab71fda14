//! Is this the beginning of an npy file, and do as many bytes follow its header as its shape says?
//!
//! The header is a dict as Python writes it. Understood is what numpy writes, and no other spelling of it: whatever is
//! accepted here, `numpy.load` accepts without pickles, so that a row that was registered can be read.

use super::literal::{Literal, parse};

/// Longest header that `numpy.load` reads of a file it does not trust.
const HEADER_BYTES_MAX: usize = 10_000;
/// The bytes of a file in which a header that may be read ends.
pub(crate) const HEAD_BYTES_MAX: u64 = 12 + HEADER_BYTES_MAX as u64;
/// Most dimensions of an array, in all versions of numpy that we support.
const DIMENSIONS_MAX: usize = 32;
/// Most bytes of an item.
const ITEM_BYTES_MAX: u64 = i32::MAX as u64;
/// Units of times and durations.
const TIME_UNITS: [&[u8]; 13] =
    [b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs", b"as"];

/// Checks a file of `bytes` bytes that begins with `head`, which is all of it or [`HEAD_BYTES_MAX`] bytes.
pub(crate) fn check_npy(head: &[u8], bytes: u64) -> Result<(), String> {
    let (header, data_at) = split(head)?;
    let Some(Literal::Dict(entries)) = parse(header) else {
        return Err("its header is not a dict as numpy writes it".to_owned());
    };
    let value = |name: &[u8]| entries.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let (Some(descr), Some(Literal::Bool(_)), Some(Literal::Tuple(shape)), 3) =
        (value(b"descr"), value(b"fortran_order"), value(b"shape"), entries.len())
    else {
        return Err(
            "its header must have a `descr`, a `fortran_order`, a `shape` and nothing else".to_owned()
        );
    };
    let item_bytes = item_bytes(descr)?;
    if item_bytes == 0 {
        return Err("its items have no bytes".to_owned());
    }
    let (wanted, present) = (stretch(shape, item_bytes)?, bytes.saturating_sub(data_at as u64));
    if wanted != present {
        return Err(format!("{wanted} bytes must follow its header, but {present} do"));
    }
    Ok(())
}

/// The header, and where it ends.
fn split(head: &[u8]) -> Result<(&[u8], usize), String> {
    let cut = || "it ends inside its header".to_owned();
    if head.len() < 8 && b"\x93NUMPY".starts_with(&head[..head.len().min(6)]) {
        return Err(cut());
    }
    let version = head.strip_prefix(b"\x93NUMPY").ok_or("it does not begin as one")?;
    let (length, header_at) = match (&version[..2], &version[2..]) {
        ([1, 0], [a, b, ..]) => (u32::from(u16::from_le_bytes([*a, *b])), 10),
        ([2 | 3, 0], [a, b, c, d, ..]) => (u32::from_le_bytes([*a, *b, *c, *d]), 12),
        ([1..=3, 0], _) => return Err(cut()),
        (other, _) => return Err(format!("its version {}.{} is unknown", other[0], other[1])),
    };
    if length as usize > HEADER_BYTES_MAX {
        return Err(format!("its header has {length} bytes, at most {HEADER_BYTES_MAX} may be"));
    }
    let data_at = header_at + length as usize;
    let header = head.get(header_at..data_at).ok_or_else(cut)?;
    if version[0] == 3 && std::str::from_utf8(header).is_err() {
        return Err("its header is not UTF-8".to_owned());
    }
    Ok((header, data_at))
}

/// Bytes of an array of this shape. Where a dimension is 0 the others must make sense all the same, as for numpy.
fn stretch(shape: &[Literal], item_bytes: u64) -> Result<u64, String> {
    if shape.len() > DIMENSIONS_MAX {
        return Err(format!("it has {} dimensions, at most {DIMENSIONS_MAX} may be", shape.len()));
    }
    let (mut bytes, mut empty) = (item_bytes, false);
    for dimension in shape {
        let Literal::Int(length) = dimension else {
            return Err("its shape must be of whole numbers".to_owned());
        };
        empty |= *length == 0;
        let product = bytes.checked_mul((*length).max(1)).filter(|bytes| i64::try_from(*bytes).is_ok());
        bytes = product.ok_or("its shape is too large")?;
    }
    Ok(if empty { 0 } else { bytes })
}

/// Bytes of an item, given its type: a code, or a list of named fields.
fn item_bytes(descr: &Literal) -> Result<u64, String> {
    let bytes = match descr {
        Literal::Text(code) => code_bytes(code)?,
        Literal::List(fields) if !fields.is_empty() => {
            let mut names = Vec::new();
            let sizes = fields.iter().map(|field| field_bytes(field, &mut names));
            sizes.sum::<Result<u64, String>>()?
        }
        _ => return Err(unknown("its items")),
    };
    if bytes > ITEM_BYTES_MAX { Err("its items are too large".to_owned()) } else { Ok(bytes) }
}

/// Bytes of one field; `(name, type)` or `(name, type, shape)`. Padding is a nameless field of raw bytes.
fn field_bytes<'a>(field: &'a Literal, names: &mut Vec<&'a [u8]>) -> Result<u64, String> {
    let (name, descr, shape) = match field {
        Literal::Tuple(parts) => match parts.as_slice() {
            [Literal::Text(name), descr] => (name, descr, [].as_slice()),
            [Literal::Text(name), descr, Literal::Tuple(shape)] => (name, descr, shape.as_slice()),
            _ => return Err(unknown("a field")),
        },
        _ => return Err(unknown("a field")),
    };
    let is_padding = matches!(descr, Literal::Text(code) if code.starts_with(b"|V"));
    if name.is_empty() && !(is_padding && shape.is_empty()) {
        return Err("a field has no name".to_owned());
    }
    if !name.is_empty() && names.contains(&name.as_slice()) {
        return Err(format!("field `{}` appears twice", String::from_utf8_lossy(name)));
    }
    names.push(name);
    let bytes = stretch(shape, item_bytes(descr)?)?;
    if bytes > ITEM_BYTES_MAX { Err("its items are too large".to_owned()) } else { Ok(bytes) }
}

/// Bytes of an item whose type is a code such as `<f4`.
fn code_bytes(code: &[u8]) -> Result<u64, String> {
    let refused = || unknown(&format!("type `{}`", code.escape_ascii()));
    let plain = match code {
        [b'<' | b'>' | b'|' | b'=', plain @ ..] => plain,
        plain => plain,
    };
    let (kind, rest) = plain.split_first().ok_or_else(refused)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (count, unit) = rest.split_at(digits);
    if *kind == b'O' {
        return Err(
            "it holds objects, which are pickles, and those are never loaded (allow_pickle=False)".into()
        );
    }
    let count = std::str::from_utf8(count).ok().and_then(|text| text.parse::<u32>().ok()).map(u64::from);
    let count = count.filter(|_| digits == 1 || rest[0] != b'0').ok_or_else(refused)?;
    match (kind, count) {
        (b'm' | b'M', 8) if is_time_unit(unit) => Ok(8),
        _ if !unit.is_empty() => Err(refused()),
        (b'b', 1) | (b'i' | b'u', 1 | 2 | 4 | 8) | (b'f', 2 | 4 | 8 | 16) | (b'c', 8 | 16 | 32) => Ok(count),
        (b'S' | b'V', _) => Ok(count),
        (b'U', _) => Ok(4 * count),
        _ => Err(refused()),
    }
}

/// Nothing, or a unit in brackets, as in `[ns]` and `[25s]`.
fn is_time_unit(text: &[u8]) -> bool {
    let Some(inside) = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) else {
        return text.is_empty();
    };
    let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits <= 9 && inside.first() != Some(&b'0') && TIME_UNITS.contains(&&inside[digits..])
}

fn unknown(what: &str) -> String {
    format!("{what} cannot be understood")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data_bytes: usize) -> Vec<u8> {
        let length = (header.len() as u32).to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [b"\x93NUMPY".as_slice(), &[version, 0], length, header.as_bytes(), &vec![7; data_bytes]].concat()
    }

    fn check(descr: &str, shape: &str, data_bytes: usize) -> Result<(), String> {
        let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}   \n");
        let file = file(1, &header, data_bytes);
        check_npy(&file, file.len() as u64)
    }

    #[test]
    fn shapes_and_types_say_how_many_bytes_there_are() {
        for (descr, shape, bytes) in [
            ("'<f4'", "(2, 3)", 24),
            ("'|b1'", "()", 1),
            ("'>c16'", "(5,)", 80),
            ("'<U3'", "(2,)", 24),
            ("'<M8[25ns]'", "(1, 1)", 8),
            ("'<f8'", "(0, 7)", 0),
            ("'|i1'", "(7L,)", 7),
            ("[('a', '<i2'), ('', '|V2'), ('b', [('c', '<f4')], (2, 2))]", "(3,)", 60),
        ] {
            assert_eq!(check(descr, shape, bytes), Ok(()), "{descr} {shape}");
            let longer = format!("{bytes} bytes must follow its header, but {} do", bytes + 1);
            assert_eq!(check(descr, shape, bytes + 1), Err(longer));
        }
        for version in [1, 2, 3] {
            let file = file(version, "{'shape': (1,), 'fortran_order': True, 'descr': '<u8'}", 8);
            assert_eq!(check_npy(&file, file.len() as u64), Ok(()));
            for end in 0..file.len() - 8 {
                assert_eq!(check_npy(&file[..end], end as u64), Err("it ends inside its header".into()));
            }
        }
    }

    #[test]
    fn what_numpy_would_not_load_is_refused() {
        for (descr, shape, reason) in [
            ("'|O'", "(1,)", "it holds objects"),
            ("[('a', '|O8')]", "(1,)", "it holds objects"),
            ("'<f3'", "(1,)", "type `<f3` cannot be understood"),
            ("'<f04'", "(1,)", "type `<f04` cannot be understood"),
            ("'<i4[ns]'", "(1,)", "type `<i4[ns]` cannot be understood"),
            ("'<M8[parsec]'", "(1,)", "cannot be understood"),
            ("'|V0'", "(1099511627776,)", "its items have no bytes"),
            ("'|V4000000000'", "()", "its items are too large"),
            ("[('a', '<f4'), ('a', '<f4')]", "(1,)", "field `a` appears twice"),
            ("'<f4'", "(1.5,)", "not a dict"),
            ("'<f4'", "(-1,)", "not a dict"),
            ("'<f4'", "[1]", "must have"),
            ("'<f4'", "(1)", "must have"),
            ("'<f4'", "(0, 4611686018427387904, 4)", "its shape is too large"),
            ("'<f4', 'more': 1", "(1,)", "must have"),
        ] {
            let problem = check(descr, shape, 4).unwrap_err();
            assert!(problem.contains(reason), "{descr} {shape}: {problem}");
        }
        let ones = format!("({})", "1, ".repeat(33));
        assert!(check("'<f4'", &ones, 4).unwrap_err().contains("33 dimensions"));
        let long = file(2, &" ".repeat(10_001), 0);
        assert!(check_npy(&long, long.len() as u64).unwrap_err().contains("10001 bytes"));
        assert_eq!(check_npy(b"PK\x03\x04 a zip", 12), Err("it does not begin as one".into()));
        assert_eq!(check_npy(b"\x93NUMPY\x04\x00\x00\x00", 10), Err("its version 4.0 is unknown".into()));
    }
}
