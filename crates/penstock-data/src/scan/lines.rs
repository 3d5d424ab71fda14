//! Files of lines: `jsonl` (one JSON object per line) and `text` (one text per line).
//!
//! A row is a line without its terminator. Lines end in `\n` or `\r\n`; the last may lack it. A byte order mark at the
//! start is stepped over, and blank lines are not rows: they are counted in `details.blank_lines`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;

use super::fields::FieldTable;
use super::json::{Key, check_object};
use super::raw::RawStream;
use super::record::{Findings, Recorder};
use super::split::Lines;
use super::{Field, Format, Kind, ScanRequest, ScanSummary};
use crate::DataError;
use crate::index::Layout;

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON object.
    Jsonl,
    /// A text.
    Text,
}

/// Scans a file of lines.
pub fn scan_lines(
    input: impl Read,
    format: LineFormat,
    request: ScanRequest<'_>,
) -> Result<ScanSummary, DataError> {
    let recorder = RefCell::new(Recorder::new(request)?);
    let (_, walked) = walk_lines(RawStream::new(input, &recorder), format, &recorder)?;
    recorder.into_inner().finish(Findings {
        format: Format::Lines(format).name().to_owned(),
        layout: Layout::Ranges,
        rows: None,
        schema: walked.schema,
        details: walked.details,
    })
}

/// What the walk over lines learns besides rows.
pub(crate) struct Walked {
    pub(crate) schema: Vec<Field>,
    pub(crate) details: BTreeMap<String, serde_json::Value>,
}

/// Records a row for every line of `input`, which is the raw file or what a decoder makes of it. Gives `input` back.
pub(crate) fn walk_lines<R: Read>(
    input: R,
    format: LineFormat,
    recorder: &RefCell<Recorder<'_>>,
) -> Result<(R, Walked), DataError> {
    let options = recorder.borrow().options();
    let mut lines = Lines::new(input, options.row_bytes_max);
    let mut fields = FieldTable::new(options.mixed);
    let mut blank_lines = 0_u64;
    let mut nan_rows = 0_u64;
    while let Some(line) = lines.next().map_err(|error| recorder.borrow().read_failed(error))? {
        let Some(place) = line.place else {
            recorder.borrow_mut().too_large(line.number, line.offset)?;
            continue;
        };
        let length = place.len() as u32;
        let bytes = lines.bytes(place);
        if is_blank(bytes, format) {
            blank_lines += 1;
            continue;
        }
        let checked = check_line(bytes, format, options.nan, &mut fields);
        match checked.and_then(|nan| fields.commit(line.number).map(|()| nan).map_err(|it| it.to_string())) {
            Ok(nan) => {
                nan_rows += u64::from(nan);
                recorder.borrow_mut().row(line.offset, length)?;
            }
            Err(reason) => recorder.borrow_mut().bad(line.number, line.offset, reason)?,
        }
    }
    let schema = match format {
        LineFormat::Jsonl => fields.schema(),
        LineFormat::Text => vec![Field { name: "text".into(), kind: Kind::String, optional: false }],
    };
    let mut details = BTreeMap::from([("blank_lines".to_owned(), blank_lines.into())]);
    if let Some(kind) = options.nan {
        details.insert("nan".to_owned(), kind.name().into());
        details.insert("nan_rows".to_owned(), nan_rows.into());
    }
    Ok((lines.into_input(), Walked { schema, details }))
}

/// In text, spaces may mean something; in JSON they never do.
fn is_blank(line: &[u8], format: LineFormat) -> bool {
    match format {
        LineFormat::Jsonl => line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')),
        LineFormat::Text => line.is_empty(),
    }
}

/// Checks one line and notes its fields: whether it has a `NaN` or an infinity, or what rule it breaks.
#[inline]
fn check_line(
    line: &[u8],
    format: LineFormat,
    nan: Option<Kind>,
    fields: &mut FieldTable,
) -> Result<bool, String> {
    fields.begin();
    if simdutf8::basic::from_utf8(line).is_err() {
        return Err(match std::str::from_utf8(line) {
            Err(error) => format!("it is not UTF-8 at byte {} of the line", error.valid_up_to()),
            Ok(_) => "it is not UTF-8".to_owned(),
        });
    }
    if format == LineFormat::Text {
        return Ok(false);
    }
    let observed = check_object(line, nan, |key, kind| match unescaped(&key) {
        Some(name) => fields.observe(name.as_bytes(), kind),
        None => fields.observe(key.raw, kind),
    });
    observed.map_err(|fault| format!("at byte {} of the line, {}", fault.at, fault.reason))
}

/// The name a key stands for, when it is another than its bytes.
fn unescaped(key: &Key<'_>) -> Option<String> {
    if !key.escaped {
        return None;
    }
    // The walker has checked the string, so the decoder accepts it.
    serde_json::from_slice(&[b"\"", key.raw, b"\""].concat()).ok()
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use crate::scan::{BadRow, Mixed, OnBad, Progress, ScanOptions};
    use crate::testing::{Dribble, Scanned, scan_text, try_scan};

    const JSONL: Format = Format::Lines(LineFormat::Jsonl);
    const TEXT: Format = Format::Lines(LineFormat::Text);

    fn rows(scanned: &Scanned) -> Vec<String> {
        scanned.rows().into_iter().map(|row| String::from_utf8(row).unwrap()).collect()
    }

    #[test]
    fn rows_are_lines_without_terminators() {
        let scanned = scan_text(JSONL, "\u{feff}{\"a\":1}\r\n\n  \r\n{\"a\":2.5}\n{\"b\":\"x\"}");
        assert_eq!(rows(&scanned), ["{\"a\":1}", "{\"a\":2.5}", "{\"b\":\"x\"}"]);
        assert_eq!(scanned.summary.details["blank_lines"], 2);
        let field = |name: &str, kind| Field { name: name.into(), kind, optional: true };
        assert_eq!(scanned.summary.schema, [field("a", Kind::Float), field("b", Kind::String)]);
        assert_eq!(rows(&scan_text(TEXT, "one\n\n two \n")), ["one", " two "]);
    }

    #[test]
    fn a_bad_line_fails_with_its_number_and_offset() {
        for (text, line, offset, reason) in [
            ("{\"a\":1}\n{a:1}\n", 2, 8, "at byte 1 of the line, expected a key in double quotes"),
            ("{\"a\":1}\n\n{\"a\":\"x\"}\n", 3, 9, "field `a` is string here, but int since line 1"),
            ("{\"a\":1,\"\\u0061\":2}\n", 1, 0, "at byte 7 of the line, field `a` appears twice"),
            ("[1]\n", 1, 0, "at byte 0 of the line, a JSON object must begin here"),
        ] {
            let error = try_scan(JSONL, text.as_bytes(), &ScanOptions::default()).unwrap_err();
            let (shard, reason) = ("shard".to_owned(), reason.to_owned());
            assert_eq!(error, DataError::BadRow { shard, line, offset, reason });
        }
        let error = try_scan(TEXT, b"ok\nb\xffd\n", &ScanOptions::default()).unwrap_err();
        assert!(matches!(error, DataError::BadRow { line: 2, offset: 3, .. }));
    }

    #[test]
    fn bad_lines_are_skipped_on_request_and_recorded() {
        let options =
            ScanOptions { on_bad: OnBad::Skip { limit: 2 }, row_bytes_max: 20, ..Default::default() };
        let text = b"{\"a\":1}\nnope\n{\"a\":\"a very long text indeed\"}\n{\"a\":3}\n";
        let scanned = try_scan(JSONL, text, &options).unwrap();
        assert_eq!(rows(&scanned), ["{\"a\":1}", "{\"a\":3}"]);
        let lines: Vec<(u64, u64)> = scanned.summary.bad.iter().map(|bad| (bad.line, bad.offset)).collect();
        assert_eq!(lines, [(2, 8), (3, 13)]);
        assert_eq!(
            scanned.summary.bad[1],
            BadRow { line: 3, offset: 13, reason: "it is longer than 20 bytes".into() }
        );
        let error = try_scan(JSONL, &[text.as_slice(), b"nope"].concat(), &options).unwrap_err();
        assert!(matches!(error, DataError::TooManyBad { limit: 2, line: 5, .. }));
    }

    #[test]
    fn mixed_kinds_empty_files_and_long_rows_follow_the_options() {
        let mixed = ScanOptions { mixed: Mixed::Allow, ..Default::default() };
        let scanned = try_scan(JSONL, b"{\"a\":1}\n{\"a\":\"x\"}\n", &mixed).unwrap();
        assert_eq!(scanned.summary.schema[0].kind, Kind::Mixed);
        let empty = try_scan(JSONL, b"\n\n", &ScanOptions::default()).unwrap_err();
        assert_eq!(empty, DataError::EmptyShard { shard: "shard".into() });
        let allowed = try_scan(JSONL, b"", &ScanOptions { allow_empty: true, ..Default::default() }).unwrap();
        assert_eq!(allowed.rows(), Vec::<Vec<u8>>::new());
        let long = ScanOptions { row_bytes_max: 4, ..Default::default() };
        let error = try_scan(TEXT, b"abcd\nabcde\n", &long).unwrap_err();
        assert_eq!(error, DataError::RowTooLarge { shard: "shard".into(), line: 2, offset: 5, limit: 4 });
    }

    #[test]
    fn a_scan_reports_and_stops_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let index_path = dir.path().join("index");
        let text = "x".repeat(99) + "\n";
        let text = text.repeat(200_000);
        let mut seen = Vec::new();
        let mut progress = |now: Progress| {
            seen.push(now);
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = ScanOptions::default();
        let request = ScanRequest {
            shard: "shard",
            index_path: &index_path,
            options: &options,
            progress: Some(&mut progress),
        };
        let error = scan_lines(text.as_bytes(), LineFormat::Text, request).unwrap_err();
        assert!(matches!(error, DataError::Cancelled { offset, .. } if offset >= 8 << 20));
        assert!(seen[0].bytes >= 4 << 20 && seen[0].rows > 30_000 && seen[1].bytes > seen[0].bytes);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a stopped scan leaves nothing");
    }

    /// Goal: the same bytes give the same index from any source. Method: several batches of rows, read in pieces that
    /// begin and end elsewhere, plain and compressed.
    #[test]
    fn batches_do_not_depend_on_how_the_source_is_cut() {
        let text: String = (0..200_000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
        let packed: Vec<u8> = text
            .as_bytes()
            .chunks(50_000)
            .flat_map(|piece| zstd::bulk::compress(piece, 1).unwrap())
            .collect();
        for (format, raw) in
            [(JSONL, text.as_bytes()), (Format::Frames(LineFormat::Jsonl), packed.as_slice())]
        {
            let whole = try_scan(format, raw, &ScanOptions::default()).unwrap();
            for pieces in [vec![1_000], vec![65_537, 3], vec![200_000, 7]] {
                let input = Dribble::new(raw, pieces.clone());
                let cut = Scanned::new(format, raw, input, &ScanOptions::default()).unwrap();
                assert_eq!(cut.summary.index_digest, whole.summary.index_digest, "{format} {pieces:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Goal: the index depends on the bytes alone. Method: any lines, read in pieces of any size.
        #[test]
        fn pieces_of_any_size_give_the_same_index(
            lines in prop::collection::vec("(\\{\"[a-c]\":[1-9][0-9]{0,2}\\}|[ ]{0,2}|\u{e9}x)\r?\n", 0..200),
            last in "[a-z]{0,3}",
            pieces in prop::collection::vec(1usize..70_000, 1..20),
        ) {
            let text = lines.concat() + &last;
            let options = ScanOptions { on_bad: OnBad::Skip { limit: 1_000 }, allow_empty: true, ..Default::default() };
            let whole = try_scan(JSONL, text.as_bytes(), &options).unwrap();
            let pieces: Vec<usize> = pieces.iter().map(|p| p % 97 + 1).collect();
            let dribbled = Scanned::new(JSONL, text.as_bytes(), Dribble::new(text.as_bytes(), pieces), &options).unwrap();
            prop_assert_eq!(&whole.summary, &dribbled.summary);
            prop_assert_eq!(&whole.index, &dribbled.index);
            let good: Vec<String> = text.lines().filter(|l| l.starts_with('{')).map(str::to_owned).collect();
            prop_assert_eq!(rows(&whole), good);
        }
    }
}
