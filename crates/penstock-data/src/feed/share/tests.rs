//! Several members in one process: every step is made once, whoever is the reader, and whatever happens to it.

use std::sync::Mutex;

use super::*;
use crate::feed::BatchBuilder;

/// Makes batches that name their step, and counts what it made; ends at step 1,000.
#[derive(Default)]
struct Counting(Mutex<Vec<u64>>);

impl MakeBatch for Counting {
    fn make(&self, step: u64) -> Result<Option<Batch>, FeedError> {
        if step >= 1000 {
            return Ok(None);
        }
        self.0.lock().unwrap().push(step);
        let mut builder = BatchBuilder::new(step, step * 2, (2, 8, 4), &Arc::default());
        for row in 0..2 {
            builder.row(row).tokens.fill(step as u8);
            builder.close_row(row, step * 2 + row as u64, &[], false);
        }
        Ok(Some(builder.finish()))
    }
}

fn key(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

fn sharing(test: &str) -> (Sharing, Arc<Counting>, Arc<Member>) {
    let (maker, member) = (Arc::new(Counting::default()), Member::new(&key(test), 1 << 20));
    (Sharing::new(Arc::clone(&maker) as Arc<dyn MakeBatch>, Arc::clone(&member)), maker, member)
}

fn digest(sharing: &Sharing, step: u64) -> u128 {
    let batch = sharing.make(step).unwrap().unwrap();
    assert_eq!((batch.step, batch.tokens().len()), (step, 64));
    batch.digest
}

#[test]
fn every_step_is_made_once_and_is_the_same_for_everybody() {
    let all: Vec<_> = (0..4).map(|_| sharing("once")).collect();
    let alone = Counting::default();
    for step in 0..50 {
        let expected = alone.make(step).unwrap().unwrap().digest;
        // Another begins every time.
        for turn in 0..4 {
            assert_eq!(digest(&all[(step as usize + turn) % 4].0, step), expected);
        }
    }
    let total: usize = all.iter().map(|(_, maker, _)| maker.0.lock().unwrap().len()).sum();
    assert_eq!(total, 50);
    let standings: Vec<Standing> = all.iter().map(|(_, _, member)| member.told().standing).collect();
    assert_eq!(standings.iter().filter(|standing| **standing == Standing::Reader).count(), 1);
    let reader =
        all.iter().map(|(_, _, member)| member.told()).find(|view| view.standing == Standing::Reader);
    assert_eq!(reader.map(|view| (view.members, view.kept_bytes)), Some((4, 50 * 192)));
}

#[test]
fn when_the_reader_leaves_another_takes_its_place_and_nothing_is_missed() {
    let mut all: Vec<_> = (0..3).map(|_| sharing("leaves")).collect();
    for step in 0..30 {
        for (sharing, _, _) in &all {
            digest(sharing, step);
        }
        if step % 10 == 9 && all.len() > 1 {
            let gone = all.iter().position(|entry| entry.2.told().standing == Standing::Reader).unwrap();
            all.remove(gone).0.stop();
        }
    }
    assert_eq!(all[0].2.told().standing, Standing::Reader);
    assert_eq!(all[0].2.told().alone, 0);
}

#[test]
fn the_end_and_what_is_given_up_are_found_by_everybody() {
    let (one, other) = (sharing("ends"), sharing("ends"));
    assert!(one.0.make(1000).unwrap().is_none());
    assert!(other.0.make(1000).unwrap().is_none());
    let Asked::Make(claim) = one.2.ask(5) else { panic!("nobody has made it") };
    drop(claim);
    assert!(matches!(other.2.ask(5), Asked::Make(_)));
}

#[test]
fn different_lanes_do_not_meet() {
    let (one, other) = (sharing("lane-a"), sharing("lane-b"));
    (0..5).for_each(|step| assert_eq!(digest(&one.0, step), digest(&other.0, step)));
    assert_eq!((one.1.0.lock().unwrap().len(), other.1.0.lock().unwrap().len()), (5, 5));
}

#[test]
fn a_name_that_something_else_has_is_left_alone() {
    let name = format!("penstock-lane-{}-{}-0", packet::user(), key("squat"));
    let squatter = packet::take_name(&name).unwrap();
    let answering = std::thread::spawn(move || {
        let line = squatter.accept().unwrap();
        line.send(&packet::Packet::new(packet::Word::Make, 3)).unwrap();
        let _ = line.receive();
        squatter
    });
    let (sharing, maker, member) = sharing("squat");
    (0..3).for_each(|step| {
        assert_eq!(digest(&sharing, step), Counting::default().make(step).unwrap().unwrap().digest)
    });
    let view = member.told();
    assert_eq!((view.standing, view.alone), (Standing::Alone, 3));
    assert!(view.trouble.unwrap().contains("something else"));
    assert_eq!(maker.0.lock().unwrap().len(), 3);
    answering.join().unwrap();
}

#[test]
fn a_name_whose_owner_is_mute_is_passed_over() {
    let name = format!("penstock-lane-{}-{}-0", packet::user(), key("mute"));
    let _mute = packet::take_name(&name).unwrap();
    let (one, other) = (sharing("mute"), sharing("mute"));
    (0..5).for_each(|step| assert_eq!(digest(&one.0, step), digest(&other.0, step)));
    assert_eq!(one.1.0.lock().unwrap().len() + other.1.0.lock().unwrap().len(), 5);
    assert_eq!((one.2.told().alone, other.2.told().alone), (0, 0));
}
