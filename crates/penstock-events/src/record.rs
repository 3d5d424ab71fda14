//! One recorded fact as bytes: encoded on the stack by the thread that saw it, decoded by whoever reads.
//!
//! ```text
//! fact u8 | time_ns u64 | thread u32 | span u64 | kind: len u8, bytes | fields u8 | field*
//! field = key: len u8, bytes | tag u8 | value            (all numbers little endian)
//! ```
//! Every record stands alone (no interned names), so losing one can never garble another.

/// The most bytes one record takes; longer strings are cut and the record says so.
pub const RECORD_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
/// Added to the fact byte when a string was shortened or a field left out.
const CUT: u8 = 0x80;

/// What a record states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fact {
    /// Something happened at a moment.
    Point = 1,
    /// A span began; its fields are here.
    Begin = 2,
    /// The span with the same number ended; fields say how, if not well.
    End = 3,
    /// The spool reports how many events were lost so far (field `lost`).
    Lost = 4,
    /// The recorder was stopped in order: nothing after this is missing.
    Closed = 5,
}

impl Fact {
    fn from_byte(byte: u8) -> Option<Fact> {
        [Fact::Point, Fact::Begin, Fact::End, Fact::Lost, Fact::Closed]
            .into_iter()
            .find(|fact| *fact as u8 == byte)
    }
}

/// A field's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Text.
    Text(String),
}

/// Builds one record in a fixed buffer.
pub struct Encoder {
    buffer: [u8; RECORD_BYTES_MAX],
    length: usize,
    /// Where the number of fields stands.
    count_at: usize,
    /// A field found no room, so that those after it are left out too: what is kept is always the beginning.
    full: bool,
}

impl Encoder {
    /// Starts a record.
    pub fn new(fact: Fact, time_ns: u64, thread: u32, span: u64, kind: &str) -> Self {
        let mut encoder = Encoder { buffer: [0; RECORD_BYTES_MAX], length: 0, count_at: 0, full: false };
        encoder.put(&[fact as u8]);
        encoder.put(&time_ns.to_le_bytes());
        encoder.put(&thread.to_le_bytes());
        encoder.put(&span.to_le_bytes());
        encoder.put_name(kind);
        encoder.count_at = encoder.length;
        encoder.put(&[0]);
        encoder
    }

    /// Adds a whole number.
    pub fn int(&mut self, key: &str, value: i64) {
        self.field(key, 2, &value.to_le_bytes());
    }

    /// Adds a real number.
    pub fn float(&mut self, key: &str, value: f64) {
        self.field(key, 3, &value.to_le_bytes());
    }

    /// Adds a truth value.
    pub fn bool(&mut self, key: &str, value: bool) {
        self.field(key, 1, &[u8::from(value)]);
    }

    /// Adds an empty value.
    pub fn none(&mut self, key: &str) {
        self.field(key, 0, &[]);
    }

    /// Adds text, shortened to what still fits.
    pub fn text(&mut self, key: &str, value: &str) {
        let room = RECORD_BYTES_MAX.saturating_sub(self.length + 1 + cut(key, NAME_BYTES_MAX).len() + 1 + 2);
        let kept = cut(value, room.min(usize::from(u16::MAX)));
        if kept.len() < value.len() {
            self.buffer[0] |= CUT;
        }
        if !self.open_field(key, 4, 2 + kept.len()) {
            return;
        }
        self.put(&(kept.len() as u16).to_le_bytes());
        self.put(kept.as_bytes());
    }

    /// The finished record.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn field(&mut self, key: &str, tag: u8, value: &[u8]) {
        if self.open_field(key, tag, value.len()) {
            self.put(value);
        }
    }

    fn open_field(&mut self, key: &str, tag: u8, value_bytes: usize) -> bool {
        let fits = self.length + 2 + cut(key, NAME_BYTES_MAX).len() + value_bytes <= RECORD_BYTES_MAX;
        if self.full || !fits || self.buffer[self.count_at] == u8::MAX {
            self.full = true;
            self.buffer[0] |= CUT;
            return false;
        }
        self.buffer[self.count_at] += 1;
        self.put_name(key);
        self.put(&[tag]);
        true
    }

    fn put_name(&mut self, name: &str) {
        let kept = cut(name, NAME_BYTES_MAX);
        if kept.len() < name.len() {
            self.buffer[0] |= CUT;
        }
        self.put(&[kept.len() as u8]);
        self.put(kept.as_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// The longest prefix of `text` of at most `bytes_max` bytes that ends between characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    if text.len() <= bytes_max {
        return text;
    }
    let mut end = bytes_max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What is stated.
    pub fact: Fact,
    /// Whether something was shortened or left out for size.
    pub cut: bool,
    /// Nanoseconds since the recording began, monotonic.
    pub time_ns: u64,
    /// The system's number of the thread.
    pub thread: u32,
    /// Joins a `Begin` with its `End`; 0 for points.
    pub span: u64,
    /// What kind of event, such as `data.wait`.
    pub kind: String,
    /// The event's fields in the order given.
    pub fields: Vec<(String, Value)>,
}

impl Record {
    /// Decodes one record, or nothing if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let view = RecordView::decode(bytes)?;
        let fields = view.fields().map(|(key, value)| (key.to_owned(), value)).collect();
        let RecordView { fact, cut, time_ns, thread, span, kind, .. } = view;
        Some(Record { fact, cut, time_ns, thread, span, kind: kind.to_owned(), fields })
    }
}

/// A record that was checked and stays where it is: nothing is copied until a field is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// What is stated.
    pub fact: Fact,
    /// Whether something was shortened or left out for size.
    pub cut: bool,
    /// Nanoseconds since the recording began, monotonic.
    pub time_ns: u64,
    /// The system's number of the thread.
    pub thread: u32,
    /// Joins a `Begin` with its `End`; 0 for points.
    pub span: u64,
    /// What kind of event.
    pub kind: &'a str,
    /// All fields, checked.
    fields: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Checks one record, or nothing if the bytes are not one.
    pub fn decode(bytes: &'a [u8]) -> Option<RecordView<'a>> {
        let mut rest = bytes;
        let first = take::<1>(&mut rest)?[0];
        let fact = Fact::from_byte(first & !CUT)?;
        let time_ns = u64::from_le_bytes(take(&mut rest)?);
        let thread = u32::from_le_bytes(take(&mut rest)?);
        let span = u64::from_le_bytes(take(&mut rest)?);
        let kind = take_name(&mut rest)?;
        let count = take::<1>(&mut rest)?[0];
        let fields = rest;
        for _ in 0..count {
            take_field(&mut rest)?;
        }
        rest.is_empty().then_some(RecordView {
            fact,
            cut: first & CUT != 0,
            time_ns,
            thread,
            span,
            kind,
            fields,
        })
    }

    /// Keys and values in the order given.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, Value)> + use<'a> {
        let mut rest = self.fields;
        std::iter::from_fn(move || take_field(&mut rest).map(|(key, raw)| (key, raw.value())))
    }
}

/// A field's value where it stands.
enum Raw<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

impl Raw<'_> {
    fn value(self) -> Value {
        match self {
            Raw::None => Value::None,
            Raw::Bool(truth) => Value::Bool(truth),
            Raw::Int(number) => Value::Int(number),
            Raw::Float(number) => Value::Float(number),
            Raw::Text(text) => Value::Text(text.to_owned()),
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn take_text<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a str> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    std::str::from_utf8(head).ok()
}

fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = take::<1>(rest)?[0];
    take_text(rest, usize::from(length))
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(&'a str, Raw<'a>)> {
    let key = take_name(rest)?;
    let raw = match take::<1>(rest)?[0] {
        0 => Raw::None,
        1 => Raw::Bool(take::<1>(rest)?[0] != 0),
        2 => Raw::Int(i64::from_le_bytes(take(rest)?)),
        3 => Raw::Float(f64::from_le_bytes(take(rest)?)),
        4 => {
            let length = u16::from_le_bytes(take(rest)?);
            Raw::Text(take_text(rest, usize::from(length))?)
        }
        _ => return None,
    };
    Some((key, raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_of_value_comes_back() {
        let mut encoder = Encoder::new(Fact::Begin, 7, 8, 9, "data.wait");
        encoder.int("step", -3);
        encoder.float("loss", 0.5);
        encoder.bool("last", true);
        encoder.none("note");
        encoder.text("shard", "web-00017 ü");

        let record = Record::decode(encoder.bytes()).unwrap();

        assert_eq!((record.fact, record.time_ns, record.thread, record.span), (Fact::Begin, 7, 8, 9));
        assert!(!record.cut);
        let values: Vec<_> = record.fields.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        assert_eq!(
            values,
            [
                ("step", Value::Int(-3)),
                ("loss", Value::Float(0.5)),
                ("last", Value::Bool(true)),
                ("note", Value::None),
                ("shard", Value::Text("web-00017 ü".into())),
            ]
        );
    }

    proptest! {
        #[test]
        fn whatever_is_recorded_fits_and_says_when_it_was_cut(
            kind in ".{0,400}", fields in proptest::collection::vec((".{0,300}", ".{0,6000}"), 0..6)
        ) {
            let mut encoder = Encoder::new(Fact::Point, 0, 0, 0, &kind);
            for (key, value) in &fields {
                encoder.text(key, value);
            }
            let record = Record::decode(encoder.bytes()).unwrap();
            for ((key, value), (key_found, value_found)) in fields.iter().zip(&record.fields) {
                prop_assert!(key.starts_with(key_found.as_str()));
                let Value::Text(text) = value_found else { panic!("text became {value_found:?}") };
                prop_assert!(value.starts_with(text.as_str()));
                prop_assert!(record.cut || text == value);
            }
            prop_assert!(record.cut || record.fields.len() == fields.len());
        }

        #[test]
        fn decoding_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes);
        }
    }
}
