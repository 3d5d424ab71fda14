//! Which fields rows have and of which kind, learnt row by row.
//!
//! A row is observed field by field and then committed or abandoned as a whole, so a bad row leaves no trace in the
//! schema. Rows of one file mostly repeat the same keys in the same order, so the field expected next is tried first.

use std::collections::HashMap;
use std::fmt;

use super::Mixed;

/// Most different fields that the rows of a shard may have.
const FIELDS_MAX: usize = 16_384;
/// Longest name of a field.
const NAME_BYTES_MAX: usize = 1_024;

/// What the values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No value seen but null.
    Null,
    /// True or false.
    Bool,
    /// Whole numbers.
    Int,
    /// Numbers, not all of them whole.
    Float,
    /// Text.
    String,
    /// Raw bytes.
    Bytes,
    /// JSON arrays.
    List,
    /// JSON objects.
    Object,
    /// Numpy arrays.
    Array,
    /// Several of these, and the caller allowed it.
    Mixed,
}

impl Kind {
    /// The name used in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::List => "list",
            Self::Object => "object",
            Self::Array => "array",
            Self::Mixed => "mixed",
        }
    }

    /// The kind that holds both, or nothing when they conflict.
    pub fn join(self, other: Self) -> Option<Self> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Self::Null, kind) | (kind, Self::Null) => Some(kind),
            (Self::Mixed, _) | (_, Self::Mixed) => Some(Self::Mixed),
            (Self::Int, Self::Float) | (Self::Float, Self::Int) => Some(Self::Float),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One field of a shard's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub kind: Kind,
    /// Whether some row lacks it or has null there.
    pub optional: bool,
}

/// A field that is of one kind in a row and was of another in rows before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) name: String,
    /// What it is in this row.
    pub(crate) kind: Kind,
    /// What it was before.
    pub(crate) before: Kind,
    /// The line that made it so.
    pub(crate) since: u64,
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, before, since } = self;
        write!(out, "field `{name}` is {kind} here, but {before} since line {since}")
    }
}

/// The fields of the rows committed so far.
pub(crate) struct FieldTable {
    /// In the order in which they first appeared. Those past `committed` belong to the row under way only.
    fields: Vec<Known>,
    /// Positions in `fields`.
    by_name: HashMap<Box<[u8]>, usize>,
    /// How many of `fields` come from committed rows.
    committed: usize,
    /// The row under way: positions in `fields` and kinds.
    row: Vec<(usize, Kind)>,
    /// Position expected for the next field.
    guess: usize,
    /// Rows begun, committed or not. Marks in `Known::seen_in` refer to it.
    begun: u64,
    /// Rows committed.
    rows: u64,
    /// What to do with fields of several kinds.
    mixed: Mixed,
}

struct Known {
    name: Box<[u8]>,
    kind: Kind,
    /// Line that gave `kind` its present value.
    kind_line: u64,
    /// Committed rows in which it has a value other than null.
    values: u64,
    /// The row, by `FieldTable::begun`, that mentioned it last.
    seen_in: u64,
}

impl FieldTable {
    pub(crate) fn new(mixed: Mixed) -> Self {
        Self {
            fields: Vec::new(),
            by_name: HashMap::new(),
            committed: 0,
            row: Vec::new(),
            guess: 0,
            begun: 0,
            rows: 0,
            mixed,
        }
    }

    /// Begins a row. A row begun and not committed is forgotten.
    pub(crate) fn begin(&mut self) {
        for forgotten in self.fields.drain(self.committed..) {
            self.by_name.remove(&forgotten.name);
        }
        self.row.clear();
        self.guess = 0;
        self.begun += 1;
    }

    /// Notes a field of the row under way. The reason is given when the row cannot have it.
    pub(crate) fn observe(&mut self, name: &[u8], kind: Kind) -> Result<(), String> {
        let position = match self.fields.get(self.guess) {
            Some(known) if *known.name == *name => self.guess,
            _ => self.find_or_add(name)?,
        };
        let known = &mut self.fields[position];
        if known.seen_in == self.begun {
            return Err(format!("field `{}` appears twice", shown(name)));
        }
        known.seen_in = self.begun;
        self.row.push((position, kind));
        self.guess = position + 1;
        Ok(())
    }

    fn find_or_add(&mut self, name: &[u8]) -> Result<usize, String> {
        if let Some(position) = self.by_name.get(name) {
            return Ok(*position);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "the name of a field has {} bytes, at most {NAME_BYTES_MAX} may be",
                name.len()
            ));
        }
        if self.fields.len() == FIELDS_MAX {
            return Err(format!(
                "field `{}` is one more than the {FIELDS_MAX} a shard may have",
                shown(name)
            ));
        }
        let name: Box<[u8]> = name.into();
        self.by_name.insert(name.clone(), self.fields.len());
        self.fields.push(Known { name, kind: Kind::Null, kind_line: 0, values: 0, seen_in: 0 });
        Ok(self.fields.len() - 1)
    }

    /// Makes the row under way part of the schema, or says which field conflicts with which earlier line.
    pub(crate) fn commit(&mut self, line: u64) -> Result<(), Conflict> {
        for (position, kind) in &self.row {
            let known = &self.fields[*position];
            if self.mixed == Mixed::Fail && known.kind.join(*kind).is_none() {
                let (name, since) = (shown(&known.name), known.kind_line);
                return Err(Conflict { name, kind: *kind, before: known.kind, since });
            }
        }
        for (position, kind) in self.row.drain(..) {
            let known = &mut self.fields[position];
            let joined = known.kind.join(kind).unwrap_or(Kind::Mixed);
            if joined != known.kind {
                (known.kind, known.kind_line) = (joined, line);
            }
            known.values += u64::from(kind != Kind::Null);
        }
        self.committed = self.fields.len();
        self.rows += 1;
        Ok(())
    }

    /// What has been learnt.
    pub(crate) fn schema(&self) -> Vec<Field> {
        let field = |known: &Known| Field {
            name: shown(&known.name),
            kind: known.kind,
            optional: known.values < self.rows,
        };
        self.fields[..self.committed].iter().map(field).collect()
    }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(table: &mut FieldTable, line: u64, fields: &[(&str, Kind)]) -> Result<(), String> {
        table.begin();
        fields.iter().try_for_each(|(name, kind)| table.observe(name.as_bytes(), *kind))?;
        table.commit(line).map_err(|conflict| conflict.to_string())
    }

    #[test]
    fn kinds_join_and_missing_fields_are_optional() {
        let mut table = FieldTable::new(Mixed::Fail);
        row(&mut table, 1, &[("a", Kind::Int), ("b", Kind::Null)]).unwrap();
        row(&mut table, 2, &[("b", Kind::String), ("a", Kind::Float)]).unwrap();
        row(&mut table, 3, &[("a", Kind::Int), ("c", Kind::Bool)]).unwrap();
        let schema: Vec<_> = table.schema().into_iter().map(|f| (f.name, f.kind, f.optional)).collect();
        let expected = [
            ("a".into(), Kind::Float, false),
            ("b".into(), Kind::String, true),
            ("c".into(), Kind::Bool, true),
        ];
        assert_eq!(schema, expected);
    }

    #[test]
    fn a_bad_row_leaves_no_trace() {
        let mut table = FieldTable::new(Mixed::Fail);
        row(&mut table, 1, &[("a", Kind::Int)]).unwrap();
        let reason = row(&mut table, 2, &[("new", Kind::Int), ("a", Kind::String)]).unwrap_err();
        assert_eq!(reason, "field `a` is string here, but int since line 1");
        assert_eq!(
            row(&mut table, 3, &[("a", Kind::Int), ("a", Kind::Int)]).unwrap_err(),
            "field `a` appears twice"
        );
        row(&mut table, 4, &[("a", Kind::Int)]).unwrap();
        assert_eq!(table.schema(), [Field { name: "a".into(), kind: Kind::Int, optional: false }]);
    }

    #[test]
    fn mixed_kinds_are_allowed_on_request() {
        let mut table = FieldTable::new(Mixed::Allow);
        row(&mut table, 1, &[("a", Kind::Int)]).unwrap();
        row(&mut table, 2, &[("a", Kind::String)]).unwrap();
        row(&mut table, 3, &[("a", Kind::Int)]).unwrap();
        assert_eq!(table.schema()[0].kind, Kind::Mixed);
    }
}
