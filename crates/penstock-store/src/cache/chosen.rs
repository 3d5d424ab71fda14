//! The cache that this process uses, of all that a host may have.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::HostCache;
use crate::Client;

static CHOSEN: ArcSwapOption<HostCache> = ArcSwapOption::const_empty();

/// Files opened from now on use this cache, or none.
pub fn choose(cache: Option<Arc<HostCache>>) {
    CHOSEN.store(cache);
}

/// The cache for objects of a store; none for those that are in memory already.
pub fn chosen_for(client: &Client) -> Option<Arc<HostCache>> {
    if client.url().starts_with("memory://") { None } else { CHOSEN.load_full() }
}
