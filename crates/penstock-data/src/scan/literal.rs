//! The few Python literals that the header of an npy file is made of.
//!
//! Stricter than Python: no comments, no operators, no joined strings, no prefixes, no exotic escapes. A number may end in
//! the `L` of Python 2, which numpy still reads.

/// Deepest nesting of brackets.
const DEPTH_MAX: usize = 16;

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Bool(bool),
    Int(u64),
    /// The characters between the quotes, as bytes of whatever encoding the text has.
    Text(Vec<u8>),
    Tuple(Vec<Literal>),
    List(Vec<Literal>),
    /// In the order written; keys differ.
    Dict(Vec<(Vec<u8>, Literal)>),
}

/// The value that `text` is, with spaces and line ends after it, if it is one.
pub(crate) fn parse(text: &[u8]) -> Option<Literal> {
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn space(&mut self) {
        while let [b' ' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Steps over `word`, if it comes next.
    fn take(&mut self, word: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A value that begins right here, inside `depth` brackets.
    fn value(&mut self, depth: usize) -> Option<Literal> {
        match self.rest.first()? {
            b'(' | b'[' | b'{' if depth == DEPTH_MAX => None,
            b'\'' | b'"' => self.text().map(Literal::Text),
            b'0'..=b'9' => self.int(),
            b'T' => self.take(b"True").then_some(Literal::Bool(true)),
            b'F' => self.take(b"False").then_some(Literal::Bool(false)),
            b'(' => self.tuple(depth + 1),
            b'[' => self.items(b"]", |reader| reader.value(depth + 1)).map(|(items, _)| Literal::List(items)),
            b'{' => self.dict(depth + 1),
            _ => None,
        }
    }

    /// What stands between brackets, and whether the last of it has a comma after it.
    fn items<T>(
        &mut self,
        close: &[u8],
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<(Vec<T>, bool)> {
        self.rest = &self.rest[1..];
        let (mut items, mut comma) = (Vec::new(), false);
        // Each turn steps over an item, so the length of the text bounds the loop.
        loop {
            self.space();
            if self.take(close) {
                return Some((items, comma));
            }
            if !items.is_empty() && !comma {
                return None;
            }
            items.push(item(self)?);
            self.space();
            comma = self.take(b",");
        }
    }

    /// A tuple; with one item and no comma it is that item.
    fn tuple(&mut self, depth: usize) -> Option<Literal> {
        let (mut items, comma) = self.items(b")", |reader| reader.value(depth))?;
        if items.len() == 1 && !comma { items.pop() } else { Some(Literal::Tuple(items)) }
    }

    fn dict(&mut self, depth: usize) -> Option<Literal> {
        let (entries, _) = self.items(b"}", |reader| {
            let key = reader.text()?;
            reader.space();
            let colon = reader.take(b":");
            reader.space();
            reader.value(depth).filter(|_| colon).map(|value| (key, value))
        })?;
        let distinct =
            entries.iter().enumerate().all(|(at, (key, _))| entries[..at].iter().all(|e| e.0 != *key));
        distinct.then_some(Literal::Dict(entries))
    }

    fn int(&mut self) -> Option<Literal> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        self.take(b"L");
        if digits > 1 && number[0] == b'0' {
            return None;
        }
        std::str::from_utf8(number).ok()?.parse().ok().map(Literal::Int)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let (quote, rest) = self.rest.split_first().filter(|(quote, _)| matches!(quote, b'\'' | b'"'))?;
        self.rest = rest;
        let mut text = Vec::new();
        // Each turn steps over a byte or returns.
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                byte if byte == quote => return Some(text),
                b'\\' => {
                    let (escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    text.push(match escaped {
                        b'\\' | b'\'' | b'"' => *escaped,
                        _ => return None,
                    });
                }
                0..0x20 | 0x7f => return None,
                byte => text.push(*byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_as_python_reads_them() {
        let int = Literal::Int;
        assert_eq!(parse(b"(1, (2), (3,), [ 4 ,5, ], ())\n  \n"), {
            let list = Literal::List(vec![int(4), int(5)]);
            Some(Literal::Tuple(vec![
                int(1),
                int(2),
                Literal::Tuple(vec![int(3)]),
                list,
                Literal::Tuple(vec![]),
            ]))
        });
        let entries =
            vec![(b"a'".to_vec(), Literal::Text(b"\\".to_vec())), (b"".to_vec(), Literal::Bool(true))];
        assert_eq!(parse(b"{\"a'\": '\\\\' , '':True}"), Some(Literal::Dict(entries)));
        assert_eq!(parse(b"18446744073709551615L"), Some(int(u64::MAX)));
    }

    #[test]
    fn what_is_not_a_literal_is_refused() {
        for text in [
            "",
            " 1",
            "1 2",
            "01",
            "1_0",
            "-1",
            "1.5",
            "18446744073709551616",
            "(",
            "(,)",
            "(1 2)",
            "[1,,]",
            "[1",
            "'",
            "'a' 'b'",
            "'\\n'",
            "'\n'",
            "u'a'",
            "{'a'}",
            "{1: 2}",
            "{'a' 1}",
            "{'a': 1, 'a': 2}",
            "None",
            "Truex",
            "open('x')",
            "1 # x",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        let deep = |depth: usize| parse(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        assert!(deep(16).is_some() && deep(17).is_none());
    }
}
