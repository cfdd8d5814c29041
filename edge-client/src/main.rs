//! edge-client
fn main() {}
