//! What an operator may call a device.

use shared::id::ClientId;

use super::Device;

/// Digits of an id that are enough to name a device, if they name one alone.
pub const ENOUGH: usize = 4;
/// Characters of a name.
const LONGEST: usize = 60;

/// The name of a device: short, in one line, and none that could be an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName(String);

/// Why a device cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceNameError {
    /// It is empty, too long, or has characters that no name has.
    #[error("a name has 1 to {LONGEST} characters on one line")]
    Unfit,
    /// It could be meant as an id.
    #[error("a name of {ENOUGH} or more hexadecimal digits could be the beginning of a device's id")]
    LikeAnId,
    /// Another device has it.
    #[error("device {0} has that name already")]
    Taken(ClientId),
}

impl DeviceName {
    /// Reads a name, without the spaces around it.
    ///
    /// # Errors
    /// [`DeviceNameError::Unfit`] and [`DeviceNameError::LikeAnId`]
    pub fn parse(text: &str) -> Result<Self, DeviceNameError> {
        let text = text.trim();
        if !(1..=LONGEST).contains(&text.chars().count()) || text.chars().any(char::is_control) {
            return Err(DeviceNameError::Unfit);
        }
        if text.len() >= ENOUGH && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(DeviceNameError::LikeAnId);
        }
        Ok(Self(text.to_owned()))
    }

    /// Refuses a name that another one of these devices has.
    ///
    /// # Errors
    /// [`DeviceNameError::Taken`]
    pub fn check_free(&self, device: ClientId, all: &[Device]) -> Result<(), DeviceNameError> {
        let has_it = |other: &&Device| other.client != device && other.name.as_deref() == Some(&self.0);
        all.iter().find(has_it).map_or(Ok(()), |other| Err(DeviceNameError::Taken(other.client)))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_stay_on_their_line() {
        let name = |text: &str| DeviceName::parse(text).map(|name| name.0);
        assert_eq!(name(" window sill ").as_deref(), Ok("window sill"));
        assert_eq!(name("bee").as_deref(), Ok("bee"));
        for wrong in ["", "  ", "a\nb", &"x".repeat(61), "f0ef9484", "BEEF", "cafe"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
