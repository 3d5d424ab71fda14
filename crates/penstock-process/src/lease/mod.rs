//! Leases: how long a host may run ranks without being heard.

pub mod kernel_timer;
