//! Shipments as files: what is packed comes out, and what would lead out, or is damaged, does not.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::pack::{self, Manifest};
use super::{Carrier, batches, without};
use crate::job::JobDirectory;
use crate::system::{self, interest};

fn packed(folder: &Path, name: &str, files: &[(&str, &[u8])], more: &[Value]) -> File {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let entry = |(path, content): &(&str, &[u8])| json!({"path": path, "mode": 0o640, "size": content.len(), "digest": hex(digest(&SHA256, content).as_ref())});
    let entries: Vec<Value> = files.iter().map(entry).chain(more.iter().cloned()).collect();
    let manifest = serde_json::to_vec(&json!({"place": "", "entries": entries})).unwrap();
    let mut bytes = (manifest.len() as u64).to_be_bytes().to_vec();
    bytes.extend(manifest);
    files.iter().for_each(|(_, content)| bytes.extend(*content));
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn files_links_and_modes_come_out_as_they_were_packed() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        json!({"path": "deep/link", "link": "../a"}),
        json!({"path": "empty", "is_directory": true, "mode": 0o750}),
    ];
    let file =
        packed(folder.path(), "one", &[("a", b"first"), ("deep/er/b", b"second"), ("none", b"")], &more);
    let to = folder.path().join("copy");
    pack::unpack(&file, &Manifest::read(&file).unwrap(), &to).unwrap();
    assert_eq!(fs::read(to.join("deep/er/b")).unwrap(), b"second");
    assert_eq!(fs::read(to.join("deep/link")).unwrap(), b"first");
    assert_eq!(fs::read(to.join("none")).unwrap(), b"");
    assert_eq!(fs::metadata(to.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(to.join("empty").is_dir());
}

#[test]
fn nothing_leads_out_and_a_byte_that_changed_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["../out", "/etc/out", "a/../../out", ""] {
        let file = packed(folder.path(), "bad", &[(path, b"x")], &[]);
        assert!(Manifest::read(&file).is_err(), "{path}");
    }
    for link in ["..", "/etc/passwd", "../../x", "b/../../.."] {
        let file = packed(folder.path(), "bad", &[], &[json!({"path": "a", "link": link})]);
        assert!(Manifest::read(&file).is_err(), "{link}");
    }
    let through = [json!({"path": "a", "link": "b"})];
    let file = packed(folder.path(), "through", &[], &through);
    assert!(Manifest::read(&file).is_ok());
    let file = packed(folder.path(), "one", &[("a", b"first")], &[]);
    let manifest = Manifest::read(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"F", manifest.begin).unwrap();
    let told = pack::unpack(&file, &manifest, &folder.path().join("copy")).unwrap_err();
    assert!(told.to_string().starts_with("a has digest"), "{told}");
}

#[test]
fn what_another_shipment_has_is_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    packed(folder.path(), "old", &[("x", b"same"), ("y", b"other")], &[]);
    let whole =
        packed(folder.path(), "new", &[("a", b"new1"), ("b", b"same"), ("c", b"new2"), ("d", b"new3")], &[]);
    let manifest = Manifest::read(&whole).unwrap();
    let begins: Vec<u64> = manifest.entries.iter().map(|(_, begin)| *begin).collect();
    let others = [folder.path().join("old"), folder.path().join("missing")];
    let missing = pack::fill(&whole, &manifest, &others).unwrap();
    assert_eq!(missing, [(begins[0], begins[1]), (begins[2], manifest.end)]);
}

#[test]
fn ranges_are_asked_for_in_parts_and_forgotten_as_they_come() {
    let asked = batches(&[(0, 3 << 20), (4 << 20, 20 << 20)]);
    let sizes: Vec<u64> = asked.iter().map(|batch| batch.iter().map(|(at, end)| end - at).sum()).collect();
    assert_eq!(sizes, [8 << 20, 8 << 20, 3 << 20]);
    assert_eq!(without(&[(0, 10), (20, 30)], (5, 25)), [(0, 5), (25, 30)]);
    assert_eq!(without(&[(0, 10)], (0, 10)), []);
}

#[test]
fn a_carrier_wakes_nobody_while_it_has_nothing_to_say() {
    let folder = tempfile::tempdir().unwrap();
    // One has no thread, and the thread of the other ends when the copy is there.
    for name in ["shipment", "work", "place"] {
        let path = folder.path().join(name);
        if name == "shipment" { fs::write(path, b"x").unwrap() } else { fs::create_dir(path).unwrap() }
    }
    for ships in [false, true] {
        let directory = JobDirectory::open(folder.path()).unwrap();
        let mut carrier = Carrier::new(&directory, ships).unwrap();
        let mut told = 0;
        while told < usize::from(ships) {
            system::poll(&mut [interest(carrier.number(), libc::POLLIN)], None);
            told += carrier.take().len();
        }
        while Arc::strong_count(&carrier._waker) > 1 {
            std::thread::yield_now();
        }
        let mut interests = [interest(carrier.number(), libc::POLLIN)];
        system::poll(&mut interests, Some(Duration::ZERO));
        assert_eq!(interests[0].revents, 0, "ships: {ships}");
    }
}
