//! Checkpoints across the border: memory comes in as buffers, hashes go out as text.

use crate::error;
use crate::source::{Raised, Source};
use penstock_state::{
    DirectFile, Extent, Mode, Move, Piece, Reading, StateError, Target, copy_all, hash_pieces, read_pieces,
    write_file,
};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::path::PathBuf;

/// Memory that states are captured into; a writable buffer.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Arena {
    arena: penstock_state::Arena,
}

#[pymethods]
impl Arena {
    #[new]
    fn new(py: Python<'_>, size: usize) -> PyResult<Self> {
        let arena = penstock_state::Arena::new(size).map_err(|problem| error::from_state(py, problem))?;
        Ok(Self { arena })
    }

    /// Touches every page, so that copying does not have to.
    fn touch(&self, py: Python<'_>, threads: usize) {
        py.detach(|| self.arena.touch(threads));
    }

    fn __len__(&self) -> usize {
        self.arena.bytes()
    }

    /// Hands the memory out; the arena lives as long as somebody looks at it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let arena = &slf.get().arena;
        // SAFETY: the memory belongs to `slf`, which the view keeps alive; it stays where it is until the arena is dropped.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                arena.start().cast::<c_void>(),
                arena.bytes() as ffi::Py_ssize_t,
                0,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The bytes of a buffer, without the interpreter's lock.
pub(crate) fn bytes_of(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("memory of tensors has to be in one piece"));
    }
    // SAFETY: the exporter keeps the memory as long as the buffer is held, and the callers hold it until they are done.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) })
}

pub(crate) fn writable(buffer: &PyBuffer<u8>) -> PyResult<*mut u8> {
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("memory to be filled has to be writable and in one piece"));
    }
    Ok(buffer.buf_ptr().cast())
}

/// Copies from the first to the second of each pair, with several threads.
#[pyfunction]
pub(crate) fn copy_buffers(
    py: Python<'_>,
    pairs: Vec<(PyBuffer<u8>, PyBuffer<u8>)>,
    threads: usize,
) -> PyResult<()> {
    let mut moves = Vec::with_capacity(pairs.len());
    for (from, to) in &pairs {
        if from.len_bytes() != to.len_bytes() {
            return Err(PyValueError::new_err("both sides of a copy have to be equally long"));
        }
        // SAFETY: `pairs` holds both buffers until the copying is done; the caller gives every target once.
        moves.push(unsafe { Move::new(bytes_of(from)?.as_ptr(), writable(to)?, from.len_bytes()) });
    }
    py.detach(|| copy_all(&moves, threads)).map_err(|problem| error::from_state(py, problem))
}

/// The hashes of the chunks of each buffer: hexadecimal digits, 32 per chunk, one after another.
#[pyfunction]
pub(crate) fn hash_buffers(
    py: Python<'_>,
    buffers: Vec<PyBuffer<u8>>,
    chunk_bytes: usize,
    threads: usize,
) -> PyResult<Vec<String>> {
    let pieces = buffers.iter().map(bytes_of).collect::<PyResult<Vec<&[u8]>>>()?;
    let hashes = py.detach(|| hash_pieces(&pieces, chunk_bytes, threads));
    let text = |hashes: Vec<u128>| hashes.iter().map(|hash| format!("{hash:032x}")).collect();
    Ok(hashes.into_iter().map(text).collect())
}

/// Writes a new file from buffers, one after another, and syncs it; its length.
#[pyfunction]
pub(crate) fn write_buffers(
    py: Python<'_>,
    path: PathBuf,
    buffers: Vec<PyBuffer<u8>>,
    direct: bool,
    threads: usize,
) -> PyResult<u64> {
    let segments = buffers.iter().map(bytes_of).collect::<PyResult<Vec<&[u8]>>>()?;
    let mode = if direct { Mode::Direct } else { Mode::Cached };
    py.detach(|| write_file(&path, &segments, mode, threads))
        .map_err(|problem| error::from_state(py, problem))
}

/// Tensor, file, first byte there, offset, shape, bytes of an element, hashes of the chunks.
type PieceParts = (usize, usize, u64, Vec<u64>, Vec<u64>, u64, String);
/// Tensor, offset, shape, memory.
type TargetParts = (usize, Vec<u64>, Vec<u64>, PyBuffer<u8>);

fn piece_of(parts: PieceParts) -> PyResult<Piece> {
    let (tensor, file, start, offset, shape, item_bytes, digits) = parts;
    let hashes = digits.as_bytes().chunks(32).map(|hash| {
        let text = std::str::from_utf8(hash).ok().filter(|text| text.len() == 32);
        text.and_then(|text| u128::from_str_radix(text, 16).ok())
            .ok_or_else(|| PyValueError::new_err("a hash has 32 hexadecimal digits"))
    });
    let hashes = hashes.collect::<PyResult<Vec<u128>>>()?;
    Ok(Piece { tensor, file, start, extent: Extent { offset, shape }, item_bytes, hashes })
}

/// Fills every target from the pieces of its tensor, each chunk checked; the bytes that were read. `direct` files are read past the
/// page cache.
#[pyfunction]
#[pyo3(signature = (files, pieces, targets, *, chunk_bytes, threads, direct))]
pub(crate) fn read_tensors(
    py: Python<'_>,
    files: Vec<Source>,
    pieces: Vec<PieceParts>,
    targets: Vec<TargetParts>,
    chunk_bytes: u64,
    threads: usize,
    direct: bool,
) -> PyResult<u64> {
    let raised = Raised::default();
    let fail = |problem: StateError| raised.take().unwrap_or_else(|| error::from_state(py, problem));
    let open = |source: Source| match source {
        Source::File(path) => DirectFile::open(&path, direct).map(Reading::Direct),
        remote => remote.open(&raised).map(Reading::Other).map_err(StateError::from),
    };
    let files = files.into_iter().map(open).collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let pieces = pieces.into_iter().map(piece_of).collect::<PyResult<Vec<_>>>()?;
    let mut wanted = Vec::with_capacity(targets.len());
    for (tensor, offset, shape, memory) in &targets {
        let extent = Extent { offset: offset.clone(), shape: shape.clone() };
        // SAFETY: `targets` holds the buffers until reading is done; the caller gives every memory once.
        wanted.push(unsafe { Target::new(*tensor, extent, writable(memory)?, memory.len_bytes() as u64) });
    }
    py.detach(|| read_pieces(&files, &pieces, &wanted, chunk_bytes, threads)).map_err(fail)
}
