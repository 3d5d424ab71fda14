//! What can go wrong between a recipe's plan and a batch.

use crate::DataError;
use crate::plan::PlanError;

/// A failure to plan or to deliver a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// A plan table cannot be written.
    #[error("plan table `{path}` cannot be written: {reason}")]
    TableWrite {
        /// Where it was to be.
        path: String,
        /// The operating system's words.
        reason: String,
    },
    /// A plan table is not what it should be.
    #[error("plan table `{table}` is damaged: {reason}")]
    TableDamaged {
        /// The table.
        table: String,
        /// What is wrong, with values.
        reason: String,
    },
    /// A source has nothing to read.
    #[error("source `{source_name}` has no tokens")]
    Empty {
        /// What the recipe calls it.
        source_name: String,
    },
    /// The plan makes no sense, such as a batch that lanes do not divide.
    #[error("{reason}")]
    Plan {
        /// What is wrong, with values.
        reason: String,
    },
    /// Shards could not be read, or are not what was registered.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A thread could not be started, or panicked.
    #[error("a reading thread failed: {reason}")]
    Thread {
        /// The operating system's words, or the panic's.
        reason: String,
    },
    /// What a step needs of a source could not be measured.
    #[error("source {source_number} could not be measured further: {reason}")]
    Unmeasured {
        /// Which source of the recipe, counted from 0.
        source_number: usize,
        /// What went wrong.
        reason: String,
    },
    /// Bytes that should be a batch are none.
    #[error("what arrived is no batch: {reason}")]
    Wire {
        /// What is wrong, with values.
        reason: String,
    },
    /// The feed was closed while someone waited for a batch.
    #[error("the feed is closed")]
    Closed,
}

impl FeedError {
    /// See [`DataError::before_step`].
    pub fn before_step(self, step: u64) -> Self {
        match self {
            Self::Data(problem) => Self::Data(problem.before_step(step)),
            other => other,
        }
    }
}

impl From<PlanError> for FeedError {
    fn from(error: PlanError) -> Self {
        Self::Plan { reason: error.to_string() }
    }
}
