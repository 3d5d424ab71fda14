//! Structures that Python passes as dicts. Each is declared once here and once in a stub, as a `TypedDict` of the same name;
//! `tests/data/test_to_rust.py` compares the two lists, so a field that only one side knows fails there and not in a run.

use pyo3::prelude::*;
use std::collections::BTreeMap;

/// The fields of a structure: name and Rust type.
pub(crate) type Fields = &'static [(&'static str, &'static str)];

/// Declares a structure whose fields are items of a dict, and the list of them.
macro_rules! structure {
    ($(#[$about:meta])* $visible:vis struct $name:ident { $($(#[$note:meta])* $field:ident: $kind:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(pyo3::FromPyObject)]
        $visible struct $name { $($(#[$note])* #[pyo3(item)] $field: $kind),* }

        impl $name {
            /// Name and type of each field, for the test that holds both sides together.
            pub(crate) const FIELDS: $crate::structure::Fields =
                &[$((stringify!($field), stringify!($kind))),*];
        }
    };
}
pub(crate) use structure;

/// Every structure that crosses, by name, with its fields and their Rust types.
#[pyfunction]
pub(crate) fn structures() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    use crate::{plan, scan, service};
    let all: [(&'static str, Fields); 13] = [
        ("BrokenLegPlan", plan::BrokenLegPlan::FIELDS),
        ("ClientPlan", service::ClientPlan::FIELDS),
        ("FeedPlan", plan::FeedPlan::FIELDS),
        ("RowFacts", scan::RowFacts::FIELDS),
        ("LaneRequest", service::LaneRequest::FIELDS),
        ("TurnPlan", plan::TurnPlan::FIELDS),
        ("PackingPlan", plan::PackingPlan::FIELDS),
        ("PartPlan", plan::PartPlan::FIELDS),
        ("PhasePlan", plan::PhasePlan::FIELDS),
        ("RampPlan", plan::RampPlan::FIELDS),
        ("ScanChoices", scan::ScanChoices::FIELDS),
        ("ServerPlan", service::ServerPlan::FIELDS),
        ("SourcePlan", plan::SourcePlan::FIELDS),
    ];
    all.into_iter().map(|(name, fields)| (name, fields.iter().copied().collect())).collect()
}
