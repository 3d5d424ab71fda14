//! Sharing across the border: bytes that Python made for others come in, bytes of others go out as buffers.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_data::feed::Memory;
use penstock_data::feed::share::{Asked, Claim, Member, Standing};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// What it is; steps made here, by others, alone; moves; members and bytes of a reader; why it reads alone.
pub(crate) type SharingTold = (&'static str, u64, u64, u64, u64, usize, u64, Option<String>);

/// Counts of a member as plain values.
pub(crate) fn told(member: &Member) -> SharingTold {
    let told = member.told();
    let standing = match told.standing {
        Standing::Looking => "looking",
        Standing::Reader => "reader",
        Standing::Follower => "follower",
        Standing::Alone => "alone",
    };
    let counts = (told.made, told.taken, told.alone, told.moves);
    (standing, counts.0, counts.1, counts.2, counts.3, told.members, told.kept_bytes, told.trouble)
}

/// Steps that Python finishes, each finished once by all processes that read the same lane.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct Exchange {
    member: Arc<Member>,
}

#[pymethods]
impl Exchange {
    #[new]
    fn new(py: Python<'_>, key: &str, budget_bytes: u64) -> Self {
        let member = Member::new(key, budget_bytes);
        py.detach(|| member.meet());
        Self { member }
    }

    /// What another made of a step, the right to make it for everybody, or None to make it alone.
    fn ask(&self, py: Python<'_>, step: u64) -> PyResult<Option<Py<PyAny>>> {
        match py.detach(|| self.member.ask(step)) {
            Asked::Batch(memory) => Ok(Some(Py::new(py, SharedBytes { memory })?.into_any())),
            Asked::Make(claim) => {
                let claim = StepClaim { claim: Mutex::new(Some(claim)) };
                Ok(Some(Py::new(py, claim)?.into_any()))
            }
            Asked::Alone => Ok(None),
        }
    }

    /// What this process is for the others, and counts.
    fn told(&self) -> SharingTold {
        told(&self.member)
    }

    /// Takes part no more.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.member.close());
    }
}

/// The right to make a step for everybody; forgotten without a result, another makes it.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct StepClaim {
    claim: Mutex<Option<Claim>>,
}

#[pymethods]
impl StepClaim {
    /// Hands over what was made; the same as others see it, or None when there is no memory for that.
    fn put(&self, py: Python<'_>, packed: PyBackedBytes) -> Option<SharedBytes> {
        let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        py.detach(|| claim.put(&[&packed])).ok().map(|memory| SharedBytes { memory })
    }
}

/// Bytes that all processes look at in the same memory; a buffer that cannot be written to.
#[pyclass(module = "penstock._rust", frozen)]
pub(crate) struct SharedBytes {
    memory: Memory,
}

#[pymethods]
impl SharedBytes {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("shared bytes cannot be written to; copy them first"));
        }
        let bytes = (*slf.get().memory).as_ref();
        // SAFETY: the memory belongs to `slf`, which is frozen and which the view keeps alive; it is sealed and stays mapped
        // until then.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr() as *mut c_void,
                bytes.len() as ffi::Py_ssize_t,
                1,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
