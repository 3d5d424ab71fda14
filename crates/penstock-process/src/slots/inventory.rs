//! What this machine has for workers: processors that we may use, GPUs, memory and ports.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{ProcessError, Result};

/// Where ports are taken from, unless the system gives them to whoever asks for any.
const PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// What the system gives to whoever asks for any port.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// More GPUs than any machine has; a larger number is a mistake.
const GPUS_MAX: u32 = 4096;

/// What there is to give out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Processors of our affinity mask; those that share a core or a socket stand together.
    pub cpus: Vec<u32>,
    /// GPUs, as CUDA names them.
    pub gpus: Vec<String>,
    /// Memory of the machine, or of the control group that we are in.
    pub memory_bytes: u64,
    /// Ports that the system gives to nobody by itself.
    pub ports: Vec<u16>,
}

impl Inventory {
    /// Only the ports: all that most jobs need. Where to begin differs, so that one that was just used is not used again at once.
    pub fn of_ports(begin: u64) -> Self {
        let mut ports = ports(&fs::read_to_string(EPHEMERAL).unwrap_or_default());
        let begin = usize::try_from(begin).unwrap_or(0) % ports.len();
        ports.rotate_left(begin);
        Self { cpus: Vec::new(), gpus: Vec::new(), memory_bytes: 0, ports }
    }

    /// Looks at the machine, and at the variables that say which part of it is ours.
    pub fn read() -> Result<Self> {
        let variable = |name| std::env::var(name).ok();
        Ok(Self {
            cpus: by_core(&affinity()),
            gpus: gpus(
                variable("PENSTOCK_GPUS").as_deref(),
                variable("CUDA_VISIBLE_DEVICES").as_deref(),
                cards(Path::new("/dev")),
                &identities(Path::new("/proc/driver/nvidia/gpus")),
            )?,
            memory_bytes: memory_bytes(),
            ports: ports(&fs::read_to_string(EPHEMERAL).unwrap_or_default()),
        })
    }
}

/// Processors that we may run on.
fn affinity() -> Vec<u32> {
    // SAFETY: zero is a valid set, and the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            let online = std::thread::available_parallelism().map_or(1, usize::from);
            return (0..u32::try_from(online).unwrap_or(1)).collect();
        }
        let most = u32::try_from(libc::CPU_SETSIZE).unwrap_or(0);
        (0..most).filter(|cpu| libc::CPU_ISSET(*cpu as usize, &set)).collect()
    }
}

/// In an order in which neighbours share as much as possible, so that a slot gets whole cores of one socket.
fn by_core(cpus: &[u32]) -> Vec<u32> {
    let number = |cpu: u32, name: &str| -> i64 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(i64::from(cpu))
    };
    let mut ordered = cpus.to_vec();
    ordered.sort_by_cached_key(|cpu| (number(*cpu, "physical_package_id"), number(*cpu, "core_id"), *cpu));
    ordered
}

/// How many devices `nvidia0`, `nvidia1` and so on there are.
fn cards(devices: &Path) -> u32 {
    let names = fs::read_dir(devices).into_iter().flatten().flatten();
    let cards = names.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    });
    u32::try_from(cards.count()).unwrap_or(0)
}

/// Ordinals of GPUs by their identity, as the driver lists them: one job may name a GPU by the one, another by the other.
fn identities(driver: &Path) -> BTreeMap<String, String> {
    let mut folders: Vec<_> = fs::read_dir(driver).into_iter().flatten().flatten().collect();
    folders.sort_by_key(fs::DirEntry::file_name);
    let identity = |folder: &fs::DirEntry| {
        let text = fs::read_to_string(folder.path().join("information")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?;
        Some(line.trim().to_owned())
    };
    folders.iter().enumerate().filter_map(|(at, folder)| Some((identity(folder)?, at.to_string()))).collect()
}

/// The GPUs that are ours: all, or those of CUDA_VISIBLE_DEVICES. PENSTOCK_GPUS says how many there are, whatever is found.
fn gpus(
    counted: Option<&str>,
    visible: Option<&str>,
    cards: u32,
    identities: &BTreeMap<String, String>,
) -> Result<Vec<String>> {
    if let Some(text) = counted {
        let count = text.trim().parse().ok().filter(|count| *count <= GPUS_MAX);
        let count: u32 = count
            .ok_or_else(|| ProcessError::Usage(format!("PENSTOCK_GPUS is {text:?}, not a number of GPUs")))?;
        return Ok((0..count).map(|gpu| gpu.to_string()).collect());
    }
    let Some(visible) = visible else { return Ok((0..cards).map(|gpu| gpu.to_string()).collect()) };
    let mut found = Vec::new();
    for word in visible.split(',').map(str::trim) {
        // As CUDA: what follows something that is no GPU is not there.
        let name = match word.parse::<u32>() {
            Ok(ordinal) if ordinal < cards => ordinal.to_string(),
            Ok(_) => break,
            Err(_) if word.starts_with("GPU-") || word.starts_with("MIG-") => {
                identities.get(word).cloned().unwrap_or_else(|| word.to_owned())
            }
            Err(_) => break,
        };
        if !found.contains(&name) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Memory of the machine, or less where a control group that we are in has a limit.
fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let total = total.map_or(0, |kilobytes| kilobytes * 1024);
    crate::system::memory_limit::own_limit_bytes().map_or(total, |limit| limit.min(total))
}

/// Ports outside the range that the system chooses from; all of ours where that leaves none.
fn ports(ephemeral: &str) -> Vec<u16> {
    let mut numbers = ephemeral.split_ascii_whitespace().filter_map(|word| word.parse::<u16>().ok());
    let (first, last) = (numbers.next().unwrap_or(32_768), numbers.next().unwrap_or(60_999));
    let outside: Vec<u16> = PORTS.filter(|port| !(first..=last).contains(port)).collect();
    if outside.is_empty() { PORTS.collect() } else { outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(visible: Option<&str>) -> Vec<String> {
        let known = BTreeMap::from([("GPU-aa".to_owned(), "3".to_owned())]);
        gpus(None, visible, 4, &known).unwrap()
    }

    #[test]
    fn visible_devices_are_understood_as_cuda_does() {
        assert_eq!(named(None), ["0", "1", "2", "3"]);
        assert_eq!(named(Some("2, 0")), ["2", "0"]);
        assert_eq!(named(Some("1,-1,2")), ["1"]);
        assert_eq!(named(Some("1,9,2")), ["1"]);
        assert_eq!(named(Some("GPU-aa,3,MIG-b")), ["3", "MIG-b"]);
        assert!(named(Some("")).is_empty());
    }

    #[test]
    fn a_stated_number_of_gpus_wins_and_has_to_be_one() {
        assert_eq!(gpus(Some("2"), Some("7"), 8, &BTreeMap::new()).unwrap(), ["0", "1"]);
        let problem = gpus(Some("two"), None, 8, &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(problem, "PENSTOCK_GPUS is \"two\", not a number of GPUs");
    }

    #[test]
    fn only_numbered_devices_are_cards() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(cards(folder.path()), 2);
    }

    #[test]
    fn ports_lie_outside_the_range_of_the_system() {
        let usual = ports("32768\t60999\n");
        assert_eq!((usual[0], usual.len()), (20_000, 10_000));
        assert_eq!(ports("25000 60999").last(), Some(&24_999));
        assert_eq!(ports("1024 65535").len(), 10_000);
    }

    #[test]
    fn this_machine_has_processors_memory_and_ports() {
        let found = Inventory::read().unwrap();
        assert!(!found.cpus.is_empty() && found.memory_bytes > 1 << 20 && found.ports.len() > 1000);
    }
}
