//! What was handed out, counted batch by batch.

use super::batch::Batch;

/// Counts since a feed was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Batches.
    pub batches: u64,
    /// Rows.
    pub rows: u64,
    /// Tokens, padding included.
    pub tokens: u64,
    /// Tokens that are padding.
    pub padding: u64,
    /// Rows of each source; a row belongs to the source of its first stretch.
    pub by_source: Vec<u64>,
}

impl Tally {
    /// Nothing yet, of so many sources.
    pub fn new(sources: usize) -> Self {
        Self { by_source: vec![0; sources], ..Self::default() }
    }

    /// Counts a batch.
    pub fn add(&mut self, batch: &Batch) {
        self.batches += 1;
        self.rows += batch.rows as u64;
        self.tokens += (batch.rows * batch.length) as u64;
        self.padding += batch.padding;
        let mut last = None;
        for origin in &batch.origins {
            if last != Some(origin.row) {
                last = Some(origin.row);
                if let Some(count) = self.by_source.get_mut(origin.source as usize) {
                    *count += 1;
                }
            }
        }
    }
}
