//! Eligibility of devices: a run's requirements on temperature, power, memory and disk, checked before each task.

use serde::{Deserialize, Serialize};

use crate::settings::Kind;

crate::section! {
    /// What a run asks of a device before it trains. Zeros ask nothing, and so does a device without the sensor.
    #[derive(Copy, Eq)]
    pub struct Eligibility {
        /// Degrees Celsius above which a device does not train; 0 is any
        pub max_temperature: u16 = 0, in Kind::Whole(0, 1000);
        /// Devices do not train while they run on battery
        pub require_mains: bool = false, was "mains";
        /// Per cent of a battery below which it does not train on that; 0 is any
        pub min_charge: u8 = 0, in Kind::Whole(0, 100);
        /// MB of available memory that it needs to train
        pub min_memory: u32 = 0, in Kind::COUNT;
        /// MB that it needs free where it keeps its state
        pub min_disk: u32 = 0, in Kind::COUNT;
    }
}

impl Eligibility {
    /// Checks a device in this condition.
    ///
    /// # Errors
    /// The first requirement that it does not meet.
    pub fn judge(&self, condition: &Condition) -> Result<(), Ineligible> {
        let &Condition { celsius, battery, memory, disk } = condition;
        if let Some(celsius) =
            celsius.filter(|found| self.max_temperature > 0 && *found > self.max_temperature)
        {
            return Err(Ineligible::Hot { celsius, limit: self.max_temperature });
        }
        if self.require_mains && battery.is_some() {
            return Err(Ineligible::Battery);
        }
        if let Some(percent) = battery.filter(|percent| *percent < self.min_charge) {
            return Err(Ineligible::Charge { percent, limit: self.min_charge });
        }
        if let Some(free) = memory.filter(|free| *free < self.min_memory) {
            return Err(Ineligible::Memory { free, limit: self.min_memory });
        }
        if let Some(free) = disk.filter(|free| *free < self.min_disk) {
            return Err(Ineligible::Disk { free, limit: self.min_disk });
        }
        Ok(())
    }
}

/// The measured condition of a device; `None` for values that it cannot measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Temperature of the hottest part, in degrees Celsius.
    pub celsius: Option<u16>,
    /// Charge in per cent, if on battery.
    pub battery: Option<u8>,
    /// Available memory in megabytes.
    pub memory: Option<u32>,
    /// Free space on the disk of the state directory, in megabytes.
    pub disk: Option<u32>,
}

/// The requirement that a device does not meet at the moment. A temporary condition, and no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Ineligible {
    /// It is too hot.
    #[error("too hot: {celsius} degrees, at most {limit} are allowed")]
    Hot {
        /// Temperature of the hottest part.
        celsius: u16,
        /// The run's limit.
        limit: u16,
    },
    /// It is on battery.
    #[error("on battery, and the run asks for mains power")]
    Battery,
    /// Its battery is low.
    #[error("low battery: {percent} %, at least {limit} % are asked for")]
    Charge {
        /// The charge in per cent.
        percent: u8,
        /// The run's limit.
        limit: u8,
    },
    /// Too little memory is available.
    #[error("too little memory: {free} MB are available, at least {limit} MB are asked for")]
    Memory {
        /// In megabytes.
        free: u32,
        /// The run's limit.
        limit: u32,
    },
    /// Too little space is free on the disk.
    #[error("too little room on the disk: {free} MB are free, at least {limit} MB are asked for")]
    Disk {
        /// In megabytes.
        free: u32,
        /// The run's limit.
        limit: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Eligibility = Eligibility {
        max_temperature: 70,
        require_mains: false,
        min_charge: 30,
        min_memory: 200,
        min_disk: 100,
    };
    const FINE: Condition =
        Condition { celsius: Some(70), battery: Some(30), memory: Some(200), disk: Some(100) };

    #[test]
    fn bounds_themselves_are_within_bounds() {
        assert_eq!(ALL.judge(&FINE), Ok(()));
        let cases = [
            (Condition { celsius: Some(71), ..FINE }, Ineligible::Hot { celsius: 71, limit: 70 }),
            (Condition { battery: Some(29), ..FINE }, Ineligible::Charge { percent: 29, limit: 30 }),
            (Condition { memory: Some(199), ..FINE }, Ineligible::Memory { free: 199, limit: 200 }),
            (Condition { disk: Some(99), ..FINE }, Ineligible::Disk { free: 99, limit: 100 }),
        ];
        for (condition, reason) in cases {
            assert_eq!(ALL.judge(&condition), Err(reason));
        }
        let mains = Eligibility { require_mains: true, ..ALL };
        assert_eq!(mains.judge(&FINE), Err(Ineligible::Battery));
        assert_eq!(mains.judge(&Condition { battery: None, ..FINE }), Ok(()));
    }

    #[test]
    fn what_is_not_asked_or_cannot_be_told_is_no_obstacle() {
        let worst = Condition { celsius: Some(u16::MAX), battery: Some(0), memory: Some(0), disk: Some(0) };
        assert_eq!(Eligibility::default().judge(&worst), Ok(()));
        assert_eq!(Eligibility { require_mains: true, ..ALL }.judge(&Condition::default()), Ok(()));
    }
}
