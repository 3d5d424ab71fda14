//! Leases: how long a host may run ranks without being heard.

pub mod grant;
pub mod host_state;
pub mod kernel_timer;
