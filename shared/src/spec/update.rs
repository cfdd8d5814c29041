//! `[update]`: what travels between server and clients.

use models::Precision;

use crate::settings::Kind;

crate::named!(Precision);

crate::section! {
    /// Number formats on the wire, and which updates are believed. The model itself stays f32 on both sides.
    #[derive(Copy)]
    pub struct Update {
        /// Of updates on the wire: f32, f16 or bf16
        pub precision: Precision = Precision::F32;
        /// Of the model on the wire: f32, f16 or bf16
        pub broadcast: Option<Precision> = None, unset "update.precision";
        /// Updates with values beyond this are rejected
        pub max_abs: f64 = 1000.0, in Kind::RATE;
    }
}

impl Update {
    /// The number format of the models that the server sends.
    #[must_use]
    pub fn broadcast(&self) -> Precision {
        self.broadcast.unwrap_or(self.precision)
    }
}
