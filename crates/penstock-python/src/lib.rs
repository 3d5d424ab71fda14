//! `penstock._rust`: the border between Python and the Rust crates, and nothing else.
//!
//! If a line here would make sense without Python, it is in the wrong crate. What Python people need to know
//! stands in `python/penstock/_rust/`, one stub for each file here.

mod cache;
mod eras;
mod error;
mod events;
mod feed;
mod plan;
mod records;
mod scan;
mod service;
mod shard;
mod share;
mod simulation;
mod source;
mod state;
mod steps;
mod store;
mod structure;

use pyo3::prelude::*;

#[pymodule]
mod _rust {
    #[pymodule_export]
    use crate::cache::{PyHostCache, disk_room, parse_size, read_object, use_cache};

    #[pymodule_export]
    use crate::eras::slice_order;

    #[pymodule_export]
    use crate::events::{
        EventColumns, EventReader, Span, events_abandon, events_flush, events_path, events_start,
        events_statistics, events_stop, record, span,
    };

    #[pymodule_export]
    use crate::feed::{Feed, FeedBatch, Tally};

    #[pymodule_export]
    use crate::plan::{
        build_rest, build_table, first_position, held_out, ramp_part, stops_at, token_lengths,
    };

    #[pymodule_export]
    use crate::records::{digest_records, digest_rows, usable_row};

    #[pymodule_export]
    use crate::scan::{digest, digest_file, quick_hash, reframe, scan_known, scan_rows, zstd_head};

    #[pymodule_export]
    use crate::service::{BatchServer, ServiceClient, ServiceFeed};

    #[pymodule_export]
    use crate::shard::{ShardFile, archive_members, find_damage, look_again, read_for_step};

    #[pymodule_export]
    use crate::share::{Exchange, SharedBytes, StepClaim};

    #[pymodule_export]
    use crate::simulation::{simulate, simulation_trace};

    #[pymodule_export]
    use crate::state::{Arena, copy_buffers, hash_buffers, read_tensors, write_buffers};

    #[pymodule_export]
    use crate::steps::{Part, PartClock, StepFile, StepFollower, StepNews, StepWriter};

    #[pymodule_export]
    use crate::store::{StoreClient, store_counts, store_flying};

    #[pymodule_export]
    use crate::structure::structures;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
