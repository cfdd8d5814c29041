//! aggregator
fn main() {}
