//! Is this line one JSON object, and of which kind is each of its fields? Nothing is built, so it runs near memory speed.
//!
//! The grammar is RFC 8259's, with two limits of our own: nesting, and no unpaired surrogate escapes, because such a string
//! has no UTF-8 form. The caller has checked that the line is UTF-8. Long strings dominate real rows; they are
//! searched eight bytes at a time for the three things that can matter in them: a quote, a backslash, a control character.

use super::Kind;

/// Most characters, digits and sign, of a whole number that Python makes an int of.
const INT_BYTES_MAX: usize = 4_300;
/// Deepest nesting of arrays and objects.
const DEPTH_MAX: usize = 256;

/// Where and how a line breaks the grammar.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte within the line.
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) reason: String,
}

/// A key as written, between its quotes.
pub(crate) struct Key<'a> {
    /// The bytes between the quotes.
    pub(crate) raw: &'a [u8],
    /// Whether they contain escapes, so that the name is another than they spell.
    pub(crate) escaped: bool,
}

/// Checks a line, and tells `field` each top-level key with the kind of its value. A reason returned by `field` is a
/// fault at that key. With `nan` the words `NaN`, `Infinity` and `-Infinity` are values of that kind; the answer is
/// whether there was one.
pub(crate) fn check_object<'a>(
    line: &'a [u8],
    nan: Option<Kind>,
    mut field: impl FnMut(Key<'a>, Kind) -> Result<(), String>,
) -> Result<bool, Fault> {
    let mut walker = Walker { line, at: 0, nan, nan_seen: false };
    walker.space();
    if walker.peek() != Some(b'{') {
        return Err(walker.fault("a JSON object must begin here"));
    }
    walker.object(1, |walker, key_at, key, kind| {
        field(key, kind).map_err(|reason| Fault { at: key_at.min(walker.line.len()), reason })
    })?;
    walker.space();
    if walker.at < line.len() {
        return Err(walker.fault("nothing may follow the object"));
    }
    Ok(walker.nan_seen)
}

/// Checks that a text is one JSON value of any kind, with numbers that an int or a finite float can be made of.
pub(crate) fn check_value(text: &[u8]) -> Result<Kind, Fault> {
    let mut walker = Walker { line: text, at: 0, nan: None, nan_seen: false };
    let kind = walker.value(0)?;
    walker.space();
    if walker.at < text.len() {
        return Err(walker.fault("nothing may follow the value"));
    }
    Ok(kind)
}

struct Walker<'a> {
    line: &'a [u8],
    /// The next byte to look at.
    at: usize,
    /// What words that are no numbers count as.
    nan: Option<Kind>,
    /// Whether there was one.
    nan_seen: bool,
}

impl<'a> Walker<'a> {
    fn fault(&self, reason: &str) -> Fault {
        Fault { at: self.at, reason: reason.to_owned() }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Steps over `byte` and the space before it, or fails.
    #[inline]
    fn expect(&mut self, byte: u8, otherwise: &str) -> Result<(), Fault> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(self.fault(otherwise));
        }
        self.at += 1;
        Ok(())
    }

    /// An object, from its brace. `each` is told every key, where it stood, and the kind of its value.
    fn object(
        &mut self,
        depth: usize,
        mut each: impl FnMut(&Self, usize, Key<'a>, Kind) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        // Each turn steps over at least one byte, so the line's length bounds the loop.
        loop {
            self.space();
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.fault("expected a key in double quotes"));
            }
            let key = self.string()?;
            self.expect(b':', "expected `:` after a key")?;
            let kind = self.value(depth)?;
            each(self, key_at, key, kind)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.fault("expected `,` or `}` in an object")),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Fault> {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.fault("expected `,` or `]` in an array")),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Any value, with the space before it. Inside `depth` arrays and objects.
    fn value(&mut self, depth: usize) -> Result<Kind, Fault> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string().map(|_| Kind::String),
            Some(b'-') if self.line.get(self.at + 1) == Some(&b'I') => self.not_a_number(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'N' | b'I') => self.not_a_number(),
            Some(b'{' | b'[') if depth >= DEPTH_MAX => Err(self.fault("nested more than 256 deep")),
            Some(b'{') => self.object(depth + 1, |_, _, _, _| Ok(())).map(|()| Kind::Object),
            Some(b'[') => self.array(depth + 1).map(|()| Kind::List),
            Some(b't') => self.literal(b"true", Kind::Bool),
            Some(b'f') => self.literal(b"false", Kind::Bool),
            Some(b'n') => self.literal(b"null", Kind::Null),
            Some(_) => Err(self.fault("expected a value")),
            None => Err(self.fault("the text ends where a value is expected")),
        }
    }

    fn literal(&mut self, word: &[u8], kind: Kind) -> Result<Kind, Fault> {
        if !self.line[self.at..].starts_with(word) {
            return Err(self.fault("expected a value"));
        }
        self.at += word.len();
        Ok(kind)
    }

    /// A word that Python writes for a float that is no number, where the caller lets it pass.
    fn not_a_number(&mut self) -> Result<Kind, Fault> {
        let words: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
        let rest = &self.line[self.at..];
        let Some(word) = words.into_iter().find(|word| rest.starts_with(word)) else {
            return Err(self.fault("expected a value"));
        };
        let Some(kind) = self.nan else {
            let word = String::from_utf8_lossy(word);
            return Err(
                self.fault(&format!("`{word}` is not JSON; `--nan float` or `--nan null` lets it pass"))
            );
        };
        self.nan_seen = true;
        self.at += word.len();
        Ok(kind)
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        let mut kind = Kind::Int;
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.fault("expected a digit")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            kind = Kind::Float;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
            kind = Kind::Float;
        }
        // The grammar has no range, but readers have.
        if !in_range(&self.line[from..self.at], kind) {
            return Err(Fault { at: from, reason: "a number is out of range".into() });
        }
        Ok(kind)
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == from { Err(self.fault("expected a digit")) } else { Ok(()) }
    }

    /// A string, from its opening quote.
    #[inline]
    fn string(&mut self) -> Result<Key<'a>, Fault> {
        let opened = self.at;
        self.at += 1;
        let mut escaped = false;
        // Each turn steps over at least one byte or returns.
        loop {
            self.at = next_special(self.line, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Key { raw: &self.line[opened + 1..self.at - 1], escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.fault("a control character must be escaped in a string")),
                None => {
                    return Err(Fault { at: opened, reason: "a string that begins here has no end".into() });
                }
            }
        }
    }

    #[inline]
    fn escape(&mut self) -> Result<(), Fault> {
        match self.line.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => self.unicode_escape(),
            _ => Err(self.fault("unknown escape in a string")),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), Fault> {
        let lone = "an unpaired surrogate is not a character";
        match self.code_unit(self.at) {
            None => Err(self.fault("`\\u` needs four hexadecimal digits")),
            Some(0xdc00..=0xdfff) => Err(self.fault(lone)),
            Some(0xd800..=0xdbff) => match self.code_unit(self.at + 6) {
                Some(0xdc00..=0xdfff) => {
                    self.at += 12;
                    Ok(())
                }
                _ => Err(self.fault(lone)),
            },
            Some(_) => {
                self.at += 6;
                Ok(())
            }
        }
    }

    /// The value of a `\uXXXX` at byte `at`, if one stands there.
    fn code_unit(&self, at: usize) -> Option<u32> {
        let digits = self.line.get(at..at + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
    }
}

/// Whether a number that follows the grammar can be held.
fn in_range(number: &[u8], kind: Kind) -> bool {
    if kind == Kind::Int {
        return number.len() <= INT_BYTES_MAX;
    }
    // Without an exponent it takes 309 digits to leave the range.
    if number.len() < 309 && !number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return true;
    }
    let value = std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
    value.is_some_and(f64::is_finite)
}

/// Position of the first quote, backslash or control character at or after `from`; the end if there is none.
#[inline]
fn next_special(line: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = from;
    while let Some(Ok(word)) = line.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let word = u64::from_le_bytes(word);
        // A byte below n leaves its high bit set in (word - n * ONES) & !word; a borrow can only mark a byte after the
        // first true one, and only the first is used.
        let quote = word ^ (ONES * b'"' as u64);
        let slash = word ^ (ONES * b'\\' as u64);
        let marks = (quote.wrapping_sub(ONES) & !quote)
            | (slash.wrapping_sub(ONES) & !slash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        if marks & HIGH != 0 {
            return at + (marks & HIGH).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let rest = line.get(at..).unwrap_or_default();
    rest.iter().position(special).map_or(line.len(), |offset| at + offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(line: &str) -> Result<Vec<(String, Kind)>, String> {
        let mut fields = Vec::new();
        check_object(line.as_bytes(), None, |key, kind| {
            fields.push((String::from_utf8_lossy(key.raw).into_owned(), kind));
            Ok(())
        })
        .map(|_| fields)
        .map_err(|fault| format!("{}: {}", fault.at, fault.reason))
    }

    #[test]
    fn kinds_are_those_of_json() {
        let line = r#" {"a":1,"b" : -0.5e+3 ,"c":"x\"\u00e9\ud83d\ude00","d":[1,[2]],"e":{"a":{}},"f":true,"g":null} "#;
        let kinds: Vec<Kind> = check(line).unwrap().into_iter().map(|(_, kind)| kind).collect();
        let expected =
            [Kind::Int, Kind::Float, Kind::String, Kind::List, Kind::Object, Kind::Bool, Kind::Null];
        assert_eq!(kinds, expected);
        assert_eq!(check("{}").unwrap(), []);
    }

    #[test]
    fn faults_say_where_and_what() {
        for (line, expected) in [
            ("", "0: a JSON object must begin here"),
            ("[1]", "0: a JSON object must begin here"),
            ("{\"a\":1} x", "8: nothing may follow the object"),
            ("{\"a\":01}", "6: expected `,` or `}` in an object"),
            ("{\"a\":NaN}", "5: `NaN` is not JSON; `--nan float` or `--nan null` lets it pass"),
            ("{\"a\":Nan}", "5: expected a value"),
            ("{\"a\":-Inf}", "5: expected a value"),
            ("{\"a\":1.}", "7: expected a digit"),
            ("{\"a\":\"x", "5: a string that begins here has no end"),
            ("{\"a\":\"\t\"}", "6: a control character must be escaped in a string"),
            ("{\"a\":\"\\x\"}", "6: unknown escape in a string"),
            ("{\"a\":\"\\ud800\"}", "6: an unpaired surrogate is not a character"),
            ("{\"a\":\"\\u12g4\"}", "6: `\\u` needs four hexadecimal digits"),
            ("{\"a\":1,}", "7: expected a key in double quotes"),
            ("{\"a\" 1}", "5: expected `:` after a key"),
            ("{\"a\":", "5: the text ends where a value is expected"),
            ("{\"a\":[1 2]}", "8: expected `,` or `]` in an array"),
        ] {
            assert_eq!(check(line).unwrap_err(), expected, "{line}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(256), "]".repeat(256));
        assert!(check(&deep).unwrap_err().contains("256"));
        let allowed = format!("{{\"a\":{}{}}}", "[".repeat(255), "]".repeat(255));
        assert!(check(&allowed).is_ok());
    }

    #[test]
    fn what_python_writes_for_no_number_passes_where_it_may() {
        let check = |line: &str, nan| {
            let mut kinds = Vec::new();
            let seen = check_object(line.as_bytes(), nan, |_, kind| {
                kinds.push(kind);
                Ok(())
            });
            seen.map(|seen| (seen, kinds)).map_err(|fault| fault.at)
        };
        let line = r#"{"a":NaN,"b":[-Infinity,{"c":Infinity}],"d":"NaN"}"#;
        let kinds = |first| vec![first, Kind::List, Kind::String];
        assert_eq!(check(line, Some(Kind::Float)), Ok((true, kinds(Kind::Float))));
        assert_eq!(check(line, Some(Kind::Null)), Ok((true, kinds(Kind::Null))));
        assert_eq!(check(line, None), Err(5));
        assert_eq!(check(r#"{"a":"NaN"}"#, Some(Kind::Float)), Ok((false, vec![Kind::String])));
        assert_eq!(check(r#"{"a":NaNa}"#, Some(Kind::Float)), Err(8));
    }

    #[test]
    fn a_value_is_of_any_kind_and_its_numbers_are_in_range() {
        let kind = |text: &str| {
            check_value(text.as_bytes()).map_err(|fault| format!("{}: {}", fault.at, fault.reason))
        };
        assert_eq!(kind(" [1, {}] \n"), Ok(Kind::List));
        assert_eq!(
            (kind("null"), kind("-7"), kind("1e308")),
            (Ok(Kind::Null), Ok(Kind::Int), Ok(Kind::Float))
        );
        assert_eq!(kind(&format!("-{}", "9".repeat(4_299))), Ok(Kind::Int));
        for (text, expected) in [
            ("", "0: the text ends where a value is expected"),
            ("1 2", "2: nothing may follow the value"),
            ("[1, 1e309]", "4: a number is out of range"),
            (&"9".repeat(4_301), "0: a number is out of range"),
        ] {
            assert_eq!(kind(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn every_byte_is_marked_at_every_place() {
        for byte in 0..=255_u8 {
            let special = matches!(byte, b'"' | b'\\' | 0..0x20);
            for length in [1, 15, 16, 17, 40] {
                for at in 0..length {
                    let mut line = vec![b'x'; length];
                    line[at] = byte;
                    let expected = if special { at } else { length };
                    assert_eq!(next_special(&line, 0), expected, "{byte} at {at} of {length}");
                }
            }
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Goal: we accept what serde_json writes. Method: any object it can make.
        #[test]
        fn what_serde_writes_is_valid(map in prop::collection::btree_map(any::<String>(), any_json(), 0..6)) {
            let line = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(check(&line).unwrap().len(), map.len());
        }

        /// Goal: we agree with serde_json on damaged text. Method: change one byte of a valid object, and compare.
        #[test]
        fn damage_is_judged_as_serde_judges_it(
            map in prop::collection::btree_map("[a-z\\\\\"\u{e9}]{0,12}", any_json(), 1..4),
            at in any::<prop::sample::Index>(),
            byte in prop_oneof![Just(b'"'), Just(b'\\'), Just(b','), Just(b'}'), Just(b'0'), Just(b'e'), 0u8..128],
        ) {
            let mut line = serde_json::to_string(&map).unwrap().into_bytes();
            let at = at.index(line.len());
            line[at] = byte;
            if let Ok(text) = std::str::from_utf8(&line) {
                let theirs = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text);
                // A number too large for a float is valid JSON, at which serde_json stops and says no more of the line.
                if !theirs.as_ref().is_err_and(|error| error.to_string().contains("out of range")) {
                    prop_assert_eq!(check(text).is_ok(), theirs.is_ok(), "{} {:?}", text, theirs.err());
                }
            }
        }
    }
}
