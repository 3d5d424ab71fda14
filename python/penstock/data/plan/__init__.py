"""From a recipe to what a feed reads: versions pinned, columns measured, tables built, and all of it as values for Rust."""
