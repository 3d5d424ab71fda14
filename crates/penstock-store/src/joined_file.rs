//! Many objects of a store read as one file: each begins at a block boundary, and the space behind it reads as zeros.

use std::sync::Arc;

use penstock_io::{BLOCK_BYTES, IoError, ReadAt, StoreKind, StoreProblem};

use crate::Client;

/// Several objects, read as one file.
pub struct JoinedFile {
    client: Arc<Client>,
    /// What errors call all of them.
    name: String,
    /// Names below the client's root, and lengths.
    objects: Vec<(String, u64)>,
    /// Where each begins, and where the space of the last one ends.
    starts: Vec<u64>,
}

impl JoinedFile {
    /// Nothing is contacted.
    pub fn open(client: &Arc<Client>, name: &str, objects: Vec<(String, u64)>) -> Self {
        let mut starts = Vec::with_capacity(objects.len() + 1);
        starts.push(0_u64);
        for (_, bytes) in &objects {
            starts.push((starts[starts.len() - 1] + bytes).next_multiple_of(BLOCK_BYTES));
        }
        Self { client: Arc::clone(client), name: name.to_owned(), objects, starts }
    }

    /// Fills `into` with the bytes of one object at `start`, and with zeros behind its end.
    fn read_object(&self, number: usize, start: u64, into: &mut [u8]) -> Result<(), IoError> {
        let (object, bytes) = &self.objects[number];
        let inside = bytes.saturating_sub(start).min(into.len() as u64) as usize;
        let (content, space) = into.split_at_mut(inside);
        space.fill(0);
        let read = self.client.read_into(object, start, content, None);
        read.map(|_| ()).map_err(|problem| self.judge(number, problem))
    }

    /// An object of another length is said to be that; anything else is the store's trouble, and stays that.
    fn judge(&self, number: usize, problem: StoreProblem) -> IoError {
        let (object, expected) = &self.objects[number];
        match self.client.describe(object) {
            Ok(found) if found.bytes != *expected => IoError::SizeChanged {
                name: self.client.url_of(object),
                expected: *expected,
                found: found.bytes,
            },
            Err(missing) if missing.kind == StoreKind::Missing => IoError::Store(Box::new(missing)),
            _ => IoError::Store(Box::new(problem)),
        }
    }
}

impl ReadAt for JoinedFile {
    fn len(&self) -> u64 {
        self.starts[self.objects.len()]
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), IoError> {
        let wanted = into.len() as u64;
        let end = offset.saturating_add(wanted);
        if end > self.len() {
            let got = self.len().saturating_sub(offset).min(wanted);
            return Err(IoError::Short { name: self.name.clone(), offset, wanted, got });
        }
        let mut at = offset;
        // Each turn passes the end of an object, or of what was asked for.
        while at < end {
            let number = self.starts.partition_point(|&start| start <= at) - 1;
            let stop = self.starts[number + 1].min(end);
            let part = &mut into[(at - offset) as usize..(stop - offset) as usize];
            self.read_object(number, at - self.starts[number], part)?;
            at = stop;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Options};

    fn client(name: &str) -> Arc<Client> {
        Client::open(&format!("memory://{name}/below"), Options::default(), Limits::default()).unwrap()
    }

    /// Goal: what is read is what the objects are, with zeros between them. Method: every pair of places around the borders.
    #[test]
    fn objects_are_read_with_zeros_between_them() {
        let client = client("joined-alike");
        let lengths = [70_000, 0, 65_536, 1, 200_000_u64];
        let (mut whole, mut objects) = (Vec::new(), Vec::new());
        for (number, length) in lengths.into_iter().enumerate() {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8 ^ number as u8 | 1).collect();
            client.put_if_absent(&format!("{number}"), content.clone().into()).unwrap();
            whole.extend_from_slice(&content);
            whole.resize(whole.len().next_multiple_of(BLOCK_BYTES as usize), 0);
            objects.push((format!("{number}"), length));
        }
        let file = JoinedFile::open(&client, "folder", objects);
        assert_eq!(file.len(), whole.len() as u64);
        let places = [0, 69_999, 70_000, 131_072, 196_608, 196_609, 262_144, whole.len() - 1, whole.len()];
        for start in places {
            for end in places.into_iter().filter(|end| *end >= start) {
                let mut into = vec![7; end - start];
                file.read_at(start as u64, &mut into).unwrap();
                assert!(into == whole[start..end], "{start}..{end}");
            }
        }
        let beyond = file.read_at(whole.len() as u64 - 1, &mut [0; 2]).unwrap_err();
        assert!(matches!(beyond, IoError::Short { got: 1, .. }));
    }

    #[test]
    fn an_object_that_is_shorter_or_gone_is_named() {
        let client = client("joined-changed");
        client.put_if_absent("a", vec![1; 100].into()).unwrap();
        let objects = vec![("a".to_owned(), 300), ("b".to_owned(), 5)];
        let file = JoinedFile::open(&client, "folder", objects);
        let url = "memory://joined-changed/below/a".to_owned();
        assert_eq!(
            file.read_at(0, &mut [0; 300]),
            Err(IoError::SizeChanged { name: url, expected: 300, found: 100 })
        );
        let gone = file.read_at(BLOCK_BYTES, &mut [0; 5]).unwrap_err();
        assert!(matches!(gone, IoError::Store(problem) if problem.kind == StoreKind::Missing));
    }
}
