//! What workers write: into their logs, to the person at the terminal, and as evidence when one of them failed.

pub mod console;
pub mod last_words;
pub mod pump;
pub mod stderr_tail;
pub mod tail;
