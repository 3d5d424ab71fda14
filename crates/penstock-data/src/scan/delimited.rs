//! Delimited text, `csv` and `tsv`: RFC 4180 quoting, a header with unique names, records that may span lines.
//!
//! A row is the bytes of a record without its terminator, so any CSV reader decodes it given the names in
//! `details.columns`. A column's kind is what all its values have in common; an empty value is null. Whole numbers with a
//! leading zero or beyond 64 bits are text, because a number would not give the same text back.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::ops::Range;

use csv_core::ReadRecordResult;
use memchr::{memchr, memchr_iter};

use super::raw::RawStream;
use super::record::{Findings, Recorder};
use super::{Field, Format, Header, Kind, ScanRequest, ScanSummary};
use crate::DataError;
use crate::index::Layout;

/// Most columns a file may have.
const COLUMNS_MAX: usize = 65_536;
const BUFFER_BYTES: usize = 256 << 10;
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Scans a file whose fields are separated as the options say, or else by what its format is named after.
pub fn scan_delimited(
    input: impl Read,
    format: Format,
    request: ScanRequest<'_>,
) -> Result<ScanSummary, DataError> {
    let usual = if format == Format::Tsv { b'\t' } else { b',' };
    let delimiter = request.options.delimiter.unwrap_or(usual);
    let recorder = RefCell::new(Recorder::new(request)?);
    let findings = walk_records(RawStream::new(input, &recorder), delimiter, format, &recorder)?;
    recorder.into_inner().finish(findings)
}

/// Records a row for every record behind the header.
fn walk_records(
    raw: impl Read,
    delimiter: u8,
    format: Format,
    recorder: &RefCell<Recorder<'_>>,
) -> Result<Findings, DataError> {
    let options = recorder.borrow().options();
    let row_bytes_max = u64::from(options.row_bytes_max);
    let mut records = Records::new(raw, delimiter, row_bytes_max);
    let failed = |error| recorder.borrow().read_failed(error);
    let names = match &options.header {
        Header::Names(names) => names.clone(),
        Header::FirstRow => match records.next().map_err(failed)? {
            Some(record) => header(&record, format, &recorder.borrow())?,
            None => Vec::new(),
        },
    };
    check_names(&names, format, &recorder.borrow())?;
    let mut columns: Vec<Column> = names.iter().map(|_| Column::default()).collect();
    let mut rows = 0;
    while let Some(record) = records.next().map_err(failed)? {
        let mut recorder = recorder.borrow_mut();
        let bytes = record.end - record.start;
        if bytes > row_bytes_max {
            recorder.too_large(record.line, record.start)?;
        } else if let Err(reason) = record.check(columns.len()) {
            recorder.bad(record.line, record.start, reason)?;
        } else {
            record.fields().zip(&mut columns).for_each(|(field, column)| column.observe(field));
            // The limit on rows is a u32, so what passed it fits.
            recorder.row(record.start, bytes as u32)?;
            rows += 1;
        }
    }
    let details = BTreeMap::from([
        ("blank_lines".to_owned(), records.blank_lines.into()),
        ("columns".to_owned(), names.clone().into()),
        ("delimiter".to_owned(), char::from(delimiter).to_string().into()),
    ]);
    let schema = names.into_iter().zip(&columns).map(|(name, column)| column.field(name, rows)).collect();
    Ok(Findings { format: format.name().to_owned(), layout: Layout::Ranges, rows: None, schema, details })
}

fn header(record: &Record<'_>, format: Format, recorder: &Recorder<'_>) -> Result<Vec<String>, DataError> {
    record.check(record.cuts.len()).map_err(|reason| {
        recorder.not_this_format(format.name(), record.start, format!("the header: {reason}"))
    })?;
    Ok(record.fields().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn check_names(names: &[String], format: Format, recorder: &Recorder<'_>) -> Result<(), DataError> {
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(twice) => {
            let reason = format!("the header names column `{twice}` twice");
            Err(recorder.not_this_format(format.name(), 0, reason))
        }
    }
}

/// What is known of one column.
#[derive(Default)]
struct Column {
    /// Nothing until the first value.
    kind: Option<Kind>,
    /// Rows with a value.
    values: u64,
}

impl Column {
    fn observe(&mut self, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        self.values += 1;
        if self.kind == Some(Kind::String) {
            return;
        }
        let kind = kind_of(value);
        self.kind = Some(self.kind.map_or(kind, |known| known.join(kind).unwrap_or(Kind::String)));
    }

    fn field(&self, name: String, rows: u64) -> Field {
        Field { name, kind: self.kind.unwrap_or(Kind::Null), optional: self.values < rows }
    }
}

fn kind_of(value: &[u8]) -> Kind {
    if matches!(value, b"true" | b"false" | b"True" | b"False" | b"TRUE" | b"FALSE") {
        return Kind::Bool;
    }
    if !matches!(value[0], b'0'..=b'9' | b'+' | b'-' | b'.' | b'n' | b'N' | b'i' | b'I') {
        return Kind::String;
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let padded = digits.len() > 1 && digits.starts_with('0');
        return if !padded && text.parse::<i64>().is_ok() { Kind::Int } else { Kind::String };
    }
    let padded = digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    if !padded && text.parse::<f64>().is_ok() { Kind::Float } else { Kind::String }
}

/// Where in a field the bytes of a record are, as far as quotes go.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    FieldStart,
    Bare,
    Quoted,
    /// Behind a quote that closes a field, unless another one follows.
    Closed,
}

/// Notices text behind the quote that closes a field. Parsers disagree about it, and all of them lose a quote, or take the
/// next record for a part of this one.
struct Quotes {
    delimiter: u8,
    place: Place,
    broken: bool,
}

impl Quotes {
    fn begin(&mut self) {
        (self.place, self.broken) = (Place::FieldStart, false);
    }

    fn pass(&mut self, bytes: &[u8]) {
        if memchr(b'"', bytes).is_none()
            && matches!(self.place, Place::FieldStart | Place::Bare | Place::Quoted)
        {
            let Some(last) = bytes.last().filter(|_| self.place != Place::Quoted) else { return };
            self.place = if self.ends_field(*last) { Place::FieldStart } else { Place::Bare };
            return;
        }
        for byte in bytes {
            self.place = match (self.place, *byte) {
                (Place::Quoted, b'"') => Place::Closed,
                (Place::Quoted, _) | (Place::Closed | Place::FieldStart, b'"') => Place::Quoted,
                (_, byte) if self.ends_field(byte) => Place::FieldStart,
                (place, _) => {
                    self.broken |= place == Place::Closed;
                    Place::Bare
                }
            };
        }
    }

    fn ends_field(&self, byte: u8) -> bool {
        byte == self.delimiter || matches!(byte, b'\r' | b'\n')
    }
}

/// Records of a stream, with their places.
struct Records<R> {
    input: R,
    parser: csv_core::Reader,
    quotes: Quotes,
    /// Bytes read; `held` of them are not yet parsed.
    buffer: Vec<u8>,
    held: Range<usize>,
    /// Stream offset of `held.start`.
    offset: u64,
    /// Newlines before `held.start`.
    newlines: u64,
    ended: bool,
    /// Whether the last record ended in `\r`, whose `\n` is then not a blank line.
    after_return: bool,
    blank_lines: u64,
    /// Unquoted fields of the record under way, joined, and where each ends.
    text: Vec<u8>,
    cuts: Vec<usize>,
    row_bytes_max: u64,
}

/// One record, until the next call.
struct Record<'a> {
    /// Its first line, counted from 1.
    line: u64,
    /// Its bytes in the stream, without terminator.
    start: u64,
    end: u64,
    text: &'a [u8],
    cuts: &'a [usize],
    /// Why it cannot be a row, if so.
    fault: Option<&'static str>,
}

impl Record<'_> {
    fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(self.cuts);
        starts.zip(self.cuts).map(|(start, end)| &self.text[*start..*end])
    }

    fn check(&self, columns: usize) -> Result<(), String> {
        if let Some(fault) = self.fault {
            return Err(fault.to_owned());
        }
        if self.cuts.len() != columns {
            return Err(format!("it has {} fields, expected {columns}", self.cuts.len()));
        }
        match simdutf8::basic::from_utf8(self.text) {
            // Two fields that are each half a character would join to a whole one.
            Ok(text) if self.cuts.iter().all(|cut| text.is_char_boundary(*cut)) => Ok(()),
            _ => Err("it is not UTF-8".to_owned()),
        }
    }
}

impl<R: Read> Records<R> {
    fn new(input: R, delimiter: u8, row_bytes_max: u64) -> Self {
        Self {
            input,
            parser: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            quotes: Quotes { delimiter, place: Place::FieldStart, broken: false },
            buffer: vec![0; BUFFER_BYTES],
            held: 0..0,
            offset: 0,
            newlines: 0,
            ended: false,
            after_return: false,
            blank_lines: 0,
            text: vec![0; 4_096],
            cuts: vec![0; 64],
            row_bytes_max,
        }
    }

    fn next(&mut self) -> std::io::Result<Option<Record<'_>>> {
        if self.offset == 0 {
            self.skip_mark()?;
        }
        self.skip_terminators()?;
        if self.held.is_empty() {
            return Ok(None);
        }
        let (line, start) = (self.newlines + 1, self.offset);
        self.quotes.begin();
        let (mut text_end, mut cuts_end, mut fault) = (0, 0, None);
        // Each turn parses at least one byte, grows a buffer up to its limit, reads, or ends the record.
        let end = loop {
            let closing = self.held.is_empty() && self.ended;
            let input = if closing { b"\n" } else { &self.buffer[self.held.clone()] };
            let (text, cuts) = (&mut self.text[text_end..], &mut self.cuts[cuts_end..]);
            let (result, used, text_bytes, cut_count) = self.parser.read_record(input, text, cuts);
            text_end += text_bytes;
            cuts_end += cut_count;
            if !closing {
                self.quotes.pass(&input[..used]);
                self.step(used);
            }
            match result {
                ReadRecordResult::Record | ReadRecordResult::End if closing => break self.offset,
                ReadRecordResult::Record | ReadRecordResult::End => {
                    self.after_return = self.buffer[self.held.start - 1] == b'\r';
                    break self.offset - 1;
                }
                ReadRecordResult::InputEmpty if closing => {
                    fault = Some("a quoted field is not closed before the end of the file");
                    break self.offset;
                }
                ReadRecordResult::InputEmpty => self.read_more()?,
                ReadRecordResult::OutputFull if self.offset - start > self.row_bytes_max => text_end = 0,
                ReadRecordResult::OutputFull => self.text.resize(self.text.len() * 2, 0),
                ReadRecordResult::OutputEndsFull if self.cuts.len() >= COLUMNS_MAX => {
                    fault = Some("it has more than 65,536 fields");
                    cuts_end = 0;
                }
                ReadRecordResult::OutputEndsFull => self.cuts.resize(self.cuts.len() * 2, 0),
            }
        };
        if self.quotes.broken && fault.is_none() {
            fault = Some(
                "text follows the quote that closes a field; inside of quotes, a quote is written twice",
            );
        }
        // A record over the limit has lost its text, and is judged by its length alone.
        let whole = end - start <= self.row_bytes_max && fault.is_none();
        let (text, cuts) =
            if whole { (&self.text[..text_end], &self.cuts[..cuts_end]) } else { Default::default() };
        Ok(Some(Record { line, start, end, text, cuts, fault }))
    }

    fn skip_mark(&mut self) -> std::io::Result<()> {
        while !self.ended && self.held.len() < MARK.len() {
            self.read_more()?;
        }
        if self.buffer[self.held.clone()].starts_with(MARK) {
            self.step(MARK.len());
        }
        Ok(())
    }

    /// Steps over the rest of a `\r\n` and over blank lines, so that a record begins with its own first byte.
    fn skip_terminators(&mut self) -> std::io::Result<()> {
        loop {
            match self.buffer[self.held.clone()].first() {
                Some(b'\n') if self.after_return => self.after_return = false,
                Some(byte @ (b'\n' | b'\r')) => {
                    self.after_return = *byte == b'\r';
                    self.blank_lines += 1;
                }
                None if !self.ended => {
                    self.read_more()?;
                    continue;
                }
                _ => {
                    self.after_return = false;
                    return Ok(());
                }
            }
            self.step(1);
        }
    }

    fn step(&mut self, used: usize) {
        let passed = self.held.start..self.held.start + used;
        self.newlines += memchr_iter(b'\n', &self.buffer[passed]).count() as u64;
        self.held.start += used;
        self.offset += used as u64;
    }

    /// Reads behind what is held, which is moved to the front of the buffer.
    fn read_more(&mut self) -> std::io::Result<()> {
        self.buffer.copy_within(self.held.clone(), 0);
        self.held = 0..self.held.len();
        match self.input.read(&mut self.buffer[self.held.end..]) {
            Ok(count) => {
                self.held.end += count;
                self.ended = count == 0;
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scan::{OnBad, ScanOptions};
    use crate::testing::{Dribble, Scanned, scan_text, try_scan};

    fn rows(scanned: &Scanned) -> Vec<String> {
        scanned.rows().into_iter().map(|row| String::from_utf8(row).unwrap()).collect()
    }

    #[test]
    fn records_span_lines_and_kinds_are_joined() {
        let text = "\u{feff}id,name,score,ok,zip,none\r\n1,\"a \"\"b\"\"\r\nc\",1,true,01234,\r\n\r\n2,,-2.5e3,False,5,\r\n";
        let scanned = scan_text(Format::Csv, text);
        assert_eq!(rows(&scanned), ["1,\"a \"\"b\"\"\r\nc\",1,true,01234,", "2,,-2.5e3,False,5,"]);
        let schema: Vec<_> =
            scanned.summary.schema.iter().map(|f| (f.name.as_str(), f.kind, f.optional)).collect();
        let expected = [
            ("id", Kind::Int, false),
            ("name", Kind::String, true),
            ("score", Kind::Float, false),
            ("ok", Kind::Bool, false),
            ("zip", Kind::String, false),
            ("none", Kind::Null, true),
        ];
        assert_eq!(schema, expected);
        assert_eq!(scanned.summary.details["blank_lines"], 1);
        assert_eq!(rows(&scan_text(Format::Tsv, "a\tb\n1,\t2\n3\t4")), ["1,\t2", "3\t4"]);
    }

    #[test]
    fn a_bad_record_is_named_by_line_and_offset() {
        let fails = |text: &str| try_scan(Format::Csv, text.as_bytes(), &ScanOptions::default()).unwrap_err();
        let bad = |line, offset, reason: &str| DataError::BadRow {
            shard: "shard".into(),
            line,
            offset,
            reason: reason.into(),
        };
        assert_eq!(fails("a,b\n\"1\n\",2\n3\n"), bad(4, 11, "it has 1 fields, expected 2"));
        let unclosed = "a quoted field is not closed before the end of the file";
        assert_eq!(fails("a,b\n1,\"2\n3,4\n"), bad(2, 4, unclosed));
        let behind = "text follows the quote that closes a field; inside of quotes, a quote is written twice";
        assert_eq!(fails("a,b\n\"x \\\"q\\\" y\",2\n"), bad(2, 4, behind));
        assert_eq!(fails("a,b\n1,\"2\n3,\"4\" 5\n"), bad(2, 4, behind));
        assert!(matches!(fails("a,b,a\n1,2,3\n"), DataError::NotThisFormat { .. }));
        assert_eq!(fails("a,b\n"), DataError::EmptyShard { shard: "shard".into() });
        let options =
            ScanOptions { row_bytes_max: 10, on_bad: OnBad::Skip { limit: 5 }, ..Default::default() };
        let text = format!("a,b\n1,{}\n\u{e9},2\n", "x".repeat(600_000));
        let scanned = try_scan(Format::Csv, text.as_bytes(), &options).unwrap();
        assert_eq!((rows(&scanned), scanned.summary.bad[0].offset), (vec!["\u{e9},2".to_owned()], 4));
        let error = try_scan(Format::Csv, b"a,b\n\xc3,\xa9\n", &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::BadRow { line: 2, .. }));
    }

    #[test]
    fn names_may_come_from_the_caller() {
        let header = Header::Names(vec!["x".into(), "y".into()]);
        let scanned =
            try_scan(Format::Csv, b"1,2\n3,4", &ScanOptions { header, ..Default::default() }).unwrap();
        assert_eq!(rows(&scanned), ["1,2", "3,4"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Goal: any table comes back. Method: quote every field, read in pieces of any size, parse each row by itself.
        #[test]
        fn any_table_comes_back(
            table in prop::collection::vec(prop::collection::vec("[a-z,\"\r\n\u{e9}]{0,6}", 3), 1..40),
            pieces in prop::collection::vec(1usize..40, 1..9),
        ) {
            let quoted = |row: &Vec<String>| {
                let fields: Vec<String> = row.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
                fields.join(",")
            };
            let body: Vec<String> = table.iter().map(quoted).collect();
            let text = format!("a,b,c\r\n{}\r\n", body.join("\r\n"));
            let input = Dribble::new(text.as_bytes(), pieces);
            let scanned = Scanned::new(Format::Csv, text.as_bytes(), input, &ScanOptions::default()).unwrap();
            prop_assert_eq!(rows(&scanned), body);
        }
    }
}
