//! What a column of MDS samples promises, and whether some bytes certainly keep it.

use crate::scan::json::check_value;

/// Most characters of a number; Python's int and Decimal take any number of this length.
const NUMBER_BYTES_MAX: usize = 640;
/// Most axes of an array; every numpy takes as many.
const AXES_MAX: usize = 32;

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsColumn {
    /// Bytes of every value, where they do not vary.
    bytes: Option<u32>,
    promise: Promise,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// None: any bytes are a value.
    Bytes,
    Text,
    Json,
    /// The digits of a whole number.
    Whole,
    Float,
    Decimal,
    /// After `skipped` bytes a count, the sizes of the items, and the items.
    List {
        skipped: usize,
    },
    /// The type where it is not known before, the shape, and the elements.
    Array {
        item_bytes: Option<usize>,
    },
    /// Not known here, so that every sample is doubtful.
    Unknown,
}

impl MdsColumn {
    /// A column from its encoding, and the size of its values where that is fixed.
    pub fn new(encoding: &str, bytes: Option<u32>) -> Self {
        let (base, arguments) = encoding.split_once(':').unwrap_or((encoding, ""));
        let promise = match (base, bytes) {
            ("ndarray", _) => array(arguments, bytes),
            ("int", Some(8)) => Promise::Bytes,
            (_, Some(bytes)) if item_bytes(base) == Some(bytes as usize) => Promise::Bytes,
            (_, Some(_)) => Promise::Unknown,
            ("bytes" | "jpeg" | "png" | "pil", None) => Promise::Bytes,
            ("str", None) => Promise::Text,
            ("json", None) => Promise::Json,
            ("str_int", None) => Promise::Whole,
            ("str_float", None) => Promise::Float,
            ("str_decimal", None) => Promise::Decimal,
            ("jpeg_array" | "jpegarray", None) => Promise::List { skipped: 0 },
            ("list[jpeg]" | "list[png]" | "list[pil]", None) => Promise::List { skipped: 4 },
            _ => Promise::Unknown,
        };
        Self { bytes, promise }
    }

    /// Bytes of every value, where they do not vary.
    pub(super) fn bytes(&self) -> Option<u32> {
        self.bytes
    }

    /// Whether bytes can fail to be a value.
    pub(super) fn is_inspected(&self) -> bool {
        self.promise != Promise::Bytes
    }

    /// Whether `data` certainly decodes.
    pub(super) fn holds(&self, data: &[u8]) -> bool {
        let text = || simdutf8::basic::from_utf8(data).ok();
        match self.promise {
            Promise::Bytes => true,
            Promise::Text => text().is_some(),
            Promise::Json => text().is_some_and(|text| check_value(text.as_bytes()).is_ok()),
            Promise::Whole => is_digits(unsigned(data)),
            Promise::Float => text().is_some_and(|text| text.parse::<f64>().is_ok()),
            Promise::Decimal => is_decimal(unsigned(data)),
            Promise::List { skipped } => data.get(skipped..).is_some_and(is_list),
            Promise::Array { item_bytes } => is_array(data, item_bytes).is_some(),
            Promise::Unknown => false,
        }
    }
}

/// The number at the beginning of `data`.
pub(super) fn le_u32(data: &[u8]) -> Option<u32> {
    data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Bytes of an element of a type, by its name.
fn item_bytes(name: &str) -> Option<usize> {
    match name {
        "uint8" | "int8" => Some(1),
        "uint16" | "int16" | "float16" => Some(2),
        "uint32" | "int32" | "float32" => Some(4),
        "uint64" | "int64" | "float64" => Some(8),
        _ => None,
    }
}

/// Bytes of an element of a type, by MDS's code.
fn code_bytes(code: u8) -> Option<usize> {
    match code {
        8 | 9 => Some(1),
        16..=18 => Some(2),
        32..=34 => Some(4),
        64..=66 => Some(8),
        _ => None,
    }
}

/// What `ndarray`, `ndarray:dtype` or `ndarray:dtype:shape` promises. Where the shape is known, sizes say it all.
fn array(arguments: &str, bytes: Option<u32>) -> Promise {
    let (dtype, shape) = arguments.split_once(':').unwrap_or((arguments, ""));
    let item = item_bytes(dtype);
    match bytes {
        None if shape.is_empty() && (dtype.is_empty() || item.is_some()) => {
            Promise::Array { item_bytes: item }
        }
        Some(bytes) if bytes > 0 && shape.split(',').count() <= AXES_MAX => {
            let axes = shape.split(',').map(|axis| axis.parse::<u32>().ok().map(|axis| axis as usize));
            let whole = axes.fold(item, |bytes, axis| bytes?.checked_mul(axis?));
            if whole == Some(bytes as usize) { Promise::Bytes } else { Promise::Unknown }
        }
        _ => Promise::Unknown,
    }
}

/// Without a sign before it.
fn unsigned(number: &[u8]) -> &[u8] {
    if let [b'+' | b'-', digits @ ..] = number { digits } else { number }
}

fn is_digits(text: &[u8]) -> bool {
    (1..=NUMBER_BYTES_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

fn is_decimal(text: &[u8]) -> bool {
    match text.iter().position(|byte| *byte == b'.') {
        Some(point) => is_digits(&text[..point]) && is_digits(&text[point + 1..]),
        None => is_digits(text),
    }
}

/// An empty list is left to the decoder: whether numpy makes an array of no bytes depends on its version.
fn is_list(data: &[u8]) -> bool {
    let Some(count) = le_u32(data).map(|count| count as usize).filter(|count| *count > 0) else {
        return false;
    };
    let Some(sizes) = count.checked_mul(4).and_then(|bytes| data[4..].get(..bytes)) else { return false };
    let items: u64 = sizes.chunks_exact(4).filter_map(le_u32).map(u64::from).sum();
    4 + sizes.len() as u64 + items == data.len() as u64
}

/// Arrays without axes or elements are left to the decoder, as empty lists are.
fn is_array(data: &[u8], item_bytes: Option<usize>) -> Option<()> {
    let (item_bytes, data) = match item_bytes {
        Some(bytes) => (bytes, data),
        None => data.split_first().and_then(|(code, rest)| Some((code_bytes(*code)?, rest)))?,
    };
    let (form, data) = data.split_first()?;
    let (axes, width) = (usize::from(form >> 2), 1_usize << (form & 3));
    let (shape, elements) = data.split_at_checked(axes * width)?;
    let bytes = shape.chunks_exact(width).try_fold(item_bytes as u64, |bytes, axis| {
        let length = axis.iter().rev().fold(0_u64, |length, byte| length << 8 | u64::from(*byte));
        bytes.checked_mul(length)
    })?;
    let usual = (1..=AXES_MAX).contains(&axes) && bytes > 0;
    (usual && bytes == elements.len() as u64).then_some(())
}
