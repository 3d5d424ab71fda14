//! What a worker gets of its slot: variables that name its devices, and the processors that it may run on.

use super::Share;
use super::lock_directory::{HELD, SlotLock};

/// The variables that make libraries use exactly this share.
///
/// ROCR_VISIBLE_DEVICES is left alone: HIP counts the devices that it leaves, so the same numbers in both would hide all.
pub fn variables(lock: &SlotLock) -> Vec<(&'static str, String)> {
    let Share { gpus, ports, .. } = lock.share();
    let mut found = Vec::new();
    if !gpus.is_empty() {
        found.push(("CUDA_VISIBLE_DEVICES", gpus.join(",")));
        found.push(("HIP_VISIBLE_DEVICES", gpus.join(",")));
    }
    if !ports.is_empty() {
        let words: Vec<String> = ports.iter().map(ToString::to_string).collect();
        found.push(("PENSTOCK_PORTS", words.join(",")));
    }
    let outer = std::env::var(HELD).ok().filter(|names| !names.is_empty());
    let names: Vec<String> = outer.into_iter().chain([lock.name().to_owned()]).collect();
    found.push((HELD, names.join(",")));
    found
}

/// Processors as the kernel takes them; nothing where none are held.
pub fn mask(cpus: &[u32]) -> Option<libc::cpu_set_t> {
    if cpus.is_empty() {
        return None;
    }
    // SAFETY: zero is a valid set; numbers beyond its size are left out.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        Some(set)
    }
}

/// Confines the calling process to a mask. Allowed between fork and exec; processors that went away are no error.
pub fn confine(mask: &libc::cpu_set_t) {
    // SAFETY: the set is valid for its size.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), mask) };
}
