//! The hosts of a job as a tree: who reports to whom, and what a subtree says in one report.

pub mod host_list;
pub mod rank_set;
pub mod summary;
