//! One record of the journal, as the voters keep and send it: bytes that nobody here understands.
//!
//! Records are nearly always text. As text they are written in JSON, so that a file of votes can be read by people and
//! a message is no larger than what it carries; other bytes are written as numbers.

use omnipaxos::storage::{Entry, NoSnapshot};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record(pub Vec<u8>);

impl Entry for Record {
    type Snapshot = NoSnapshot;
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RecordVisitor)
    }
}

/// Reads both forms.
struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record;

    fn expecting(&self, words: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        words.write_str("a record as text or as a list of bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<Record, E> {
        Ok(Record(text.as_bytes().to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Record, A::Error> {
        let mut record = Vec::new();
        while let Some(byte) = bytes.next_element::<u8>()? {
            record.push(byte);
        }
        Ok(Record(record))
    }
}

#[cfg(test)]
mod tests {
    use super::Record;

    #[test]
    fn any_bytes_come_back_as_they_were() {
        for bytes in [&b""[..], b"{\"step\": 7}\n\"", b"\xff\x00\x80", "Grüße".as_bytes()] {
            let written = serde_json::to_string(&Record(bytes.to_vec())).expect("JSON");
            assert_eq!(serde_json::from_str::<Record>(&written).expect("a record").0, bytes);
        }
    }
}
