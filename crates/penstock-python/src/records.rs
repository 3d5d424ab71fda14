//! Records across the border: values are walked where they are, once per batch, and a number goes out.
//!
//! Values of the common types are told by their type alone. Everything else (arrays, dates, subclasses) is handed to a function of
//! Python's, which knows what stands for it.

use penstock_data::feed::RowDigests;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyRecursionError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// Deeper values are given to Python, which says what is wrong with them.
const DEPTH_MAX: usize = 100;
/// Longer text is encoded into memory of its own: what Python keeps of shorter text stays with it for as long as it lives.
const KEPT_TEXT_MAX: usize = 256;

/// The sum of the digests of rows, each given as the bytes that stand for its values; the first is at `position`.
#[pyfunction]
pub(crate) fn digest_rows(py: Python<'_>, position: u64, rows: Vec<PyBackedBytes>) -> u128 {
    py.detach(|| {
        let mut digests = RowDigests::new(position);
        for row in &rows {
            digests.raw(row);
            digests.end_row();
        }
        digests.finish().0
    })
}

/// The same of rows given as dicts (or as the bytes that stand for them), and the bytes of all their values. `encoded` gives
/// the parts that stand for a value of another type.
#[pyfunction]
pub(crate) fn digest_records(
    position: u64,
    rows: &Bound<'_, PyList>,
    encoded: &Bound<'_, PyAny>,
) -> PyResult<(u128, u64)> {
    let mut walk = Walk { digests: RowDigests::new(position), encoded };
    for row in rows {
        match row.cast_exact::<PyBytes>() {
            Ok(bytes) => walk.digests.raw(bytes.as_bytes()),
            Err(_) => walk.value(&row, 0)?,
        }
        walk.digests.end_row();
    }
    Ok(walk.digests.finish())
}

/// Gives values to their digests.
struct Walk<'call, 'py> {
    digests: RowDigests,
    encoded: &'call Bound<'py, PyAny>,
}

impl<'py> Walk<'_, 'py> {
    fn value(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if depth > DEPTH_MAX + 1 {
            return Err(PyRecursionError::new_err("a record holds itself"));
        }
        if let Ok(text) = value.cast_exact::<PyString>() {
            return self.text(text);
        }
        if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.digests.float(number.value());
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            match number.extract::<i64>() {
                Ok(small) => self.digests.integer(small),
                Err(_) => self.other(value)?,
            }
        } else if value.is_none() {
            self.digests.null();
        } else if let Ok(truth) = value.cast_exact::<PyBool>() {
            self.digests.boolean(truth.is_true());
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            self.digests.list(list.len());
            for item in list {
                self.value(&item, depth + 1)?;
            }
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.mapping(dict, depth)?;
        } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
            self.digests.bytes(bytes.as_bytes());
        } else {
            self.other(value)?;
        }
        Ok(())
    }

    fn mapping(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        let pairs: Vec<_> = dict.iter().collect();
        let mut fields = Vec::with_capacity(pairs.len());
        for (name, value) in &pairs {
            // Names of other types, and those that are no UTF-8, are put in order by Python.
            let Some(name) = str_of(name) else { return self.other(dict.as_any()) };
            fields.push((name, value));
        }
        // The bytes of UTF-8 sort as the characters do.
        fields.sort_unstable_by_key(|(name, _)| *name);
        self.digests.mapping(fields.len());
        for (name, value) in fields {
            self.digests.text(name.as_bytes());
            self.value(value, depth + 1)?;
        }
        Ok(())
    }

    fn text(&mut self, text: &Bound<'py, PyString>) -> PyResult<()> {
        if text.len()? <= KEPT_TEXT_MAX {
            if let Ok(utf8) = text.to_str() {
                self.digests.text(utf8.as_bytes());
                return Ok(());
            }
        } else if let Ok(utf8) = text.encode_utf8() {
            self.digests.text(utf8.as_bytes());
            return Ok(());
        }
        // A half of a surrogate pair.
        self.other(text.as_any())
    }

    fn other(&mut self, value: &Bound<'py, PyAny>) -> PyResult<()> {
        for part in self.encoded.call1((value,))?.try_iter()? {
            let part = part?;
            if let Ok(bytes) = part.cast_exact::<PyBytes>() {
                self.digests.raw(bytes.as_bytes());
            } else {
                let buffer = PyBuffer::<u8>::get(&part)?;
                self.digests.raw(&buffer.to_vec(value.py())?);
            }
        }
        Ok(())
    }
}

fn str_of<'name>(name: &'name Bound<'_, PyAny>) -> Option<&'name str> {
    name.cast_exact::<PyString>().ok().and_then(|name| name.to_str().ok())
}

/// The row with usable values: itself where all of them are and it is `fresh` (belongs to nobody else), otherwise a copy of its
/// lists and dicts. `usable` makes something of values of other types; None says that the whole row is for Python to judge.
#[pyfunction]
pub(crate) fn usable_row<'py>(
    row: &Bound<'py, PyAny>,
    fresh: bool,
    usable: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(dict) = row.cast_exact::<PyDict>() else { return Ok(None) };
    if dict.contains("valid")? {
        return Ok(None);
    }
    match changed(row, fresh, usable, 0)? {
        Changed::No => Ok(Some(row.clone())),
        Changed::Into(changed_row) => Ok(Some(changed_row)),
        Changed::Unknown => Ok(None),
    }
}

/// What became of a value.
enum Changed<'py> {
    No,
    Into(Bound<'py, PyAny>),
    /// Too deep, or a name that is no text.
    Unknown,
}

fn changed<'py>(
    value: &Bound<'py, PyAny>,
    fresh: bool,
    usable: &Bound<'py, PyAny>,
    depth: usize,
) -> PyResult<Changed<'py>> {
    if is_plain(value) {
        return Ok(Changed::No);
    }
    if depth > DEPTH_MAX {
        return Ok(Changed::Unknown);
    }
    if let Ok(list) = value.cast_exact::<PyList>() {
        return changed_list(list, fresh, usable, depth);
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        return changed_dict(dict, fresh, usable, depth);
    }
    let changed_value = usable.call1((value,))?;
    Ok(if changed_value.is(value) { Changed::No } else { Changed::Into(changed_value) })
}

fn changed_list<'py>(
    list: &Bound<'py, PyList>,
    fresh: bool,
    usable: &Bound<'py, PyAny>,
    depth: usize,
) -> PyResult<Changed<'py>> {
    let mut copy = if fresh { None } else { Some(list.get_slice(0, list.len())) };
    for (at, item) in list.iter().enumerate() {
        match changed(&item, fresh, usable, depth + 1)? {
            Changed::No => {}
            Changed::Unknown => return Ok(Changed::Unknown),
            Changed::Into(changed_item) => {
                let into = match copy.take() {
                    Some(copy) => copy,
                    None => list.get_slice(0, list.len()),
                };
                into.set_item(at, changed_item)?;
                copy = Some(into);
            }
        }
    }
    Ok(copy.map_or(Changed::No, |copy| Changed::Into(copy.into_any())))
}

fn changed_dict<'py>(
    dict: &Bound<'py, PyDict>,
    fresh: bool,
    usable: &Bound<'py, PyAny>,
    depth: usize,
) -> PyResult<Changed<'py>> {
    let mut copy = if fresh { None } else { Some(dict.copy()?) };
    for (name, item) in dict {
        if !name.is_exact_instance_of::<PyString>() {
            return Ok(Changed::Unknown);
        }
        match changed(&item, fresh, usable, depth + 1)? {
            Changed::No => {}
            Changed::Unknown => return Ok(Changed::Unknown),
            Changed::Into(changed_item) => {
                let into = match copy.take() {
                    Some(copy) => copy,
                    None => dict.copy()?,
                };
                into.set_item(name, changed_item)?;
                copy = Some(into);
            }
        }
    }
    Ok(copy.map_or(Changed::No, |copy| Changed::Into(copy.into_any())))
}

fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
}
