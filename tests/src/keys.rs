//! Keys of devices, the same in every run of a test.

use shared::identity::SecretKey;
use shared::seed::Seed;

/// The key of a device.
#[must_use]
pub fn device_key(index: u32) -> SecretKey {
    SecretKey::from_bytes(*Seed::root(7).derive_numbered("device", u64::from(index)).as_bytes())
}
