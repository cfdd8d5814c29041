//! Settings: a key of the configuration is declared once, as a field of a struct.
//!
//! [`section!`](crate::section) declares a table of keys and [`choice!`](crate::choice) a table that holds exactly one of several
//! alternatives. The field's name, type, default, range and doc comment are the key's, and everything else follows from them:
//! reading and writing TOML, the checks of each value, the comments in a written configuration, and the list of [`Keys`].
//!
//! ```
//! use shared::section;
//! use shared::settings::{Keys, Kind};
//!
//! section! {
//!     /// How coffee is made.
//!     pub struct Coffee {
//!         /// Grams of beans for a cup.
//!         pub beans: u32 = 8, in Kind::Whole(1, 50), was "grams";
//!         /// Share of milk.
//!         pub milk: Option<f64> = None, in Kind::SHARE, unset "black";
//!     }
//! }
//!
//! let keys = Keys::of::<Coffee>();
//! let beans = keys.find("beans").expect("declared above");
//! assert_eq!(beans.says, "Grams of beans for a cup");
//! assert_eq!(keys.renamed().collect::<Vec<_>>(), [("grams", "beans")]);
//! assert_eq!(Coffee::default().beans, 8);
//! ```

mod check;
mod keys;
mod kind;
mod layer;
mod macros;
mod names;
mod read;

pub use check::check;
pub use keys::{Key, Keys};
pub use kind::{Kind, MAX_LIST_LENGTH, model_names};
pub use layer::{complete, lay_over, settings_of, table_of, without_defaults};
pub use names::variants;
pub use read::{ReadError, read};

/// A type that a setting can have.
pub trait SettingType {
    /// What it accepts.
    fn shape() -> Shape;
}

/// What a setting accepts.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A value.
    Value(Kind),
    /// A table with these entries.
    Table(Vec<Entry>),
    /// A table with exactly one of these entries, each of which is a table.
    Choice(Vec<Alternative>),
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name in its table.
    pub name: String,
    /// What it accepts.
    pub shape: Shape,
    /// What it is, in one line.
    pub says: &'static str,
    /// What it means if it is absent; `None` if it has a default.
    pub unset: Option<&'static str>,
    /// The name that it had before: in the same table, or a full path if it has a dot.
    pub was: Option<&'static str>,
}

/// One alternative of a choice.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub says: &'static str,
    /// Its settings.
    pub entries: Vec<Entry>,
    /// Their values where none are given.
    pub defaults: toml::Table,
}

impl SettingType for bool {
    fn shape() -> Shape {
        Shape::Value(Kind::Flag)
    }
}

impl<T: SettingType> SettingType for Option<T> {
    fn shape() -> Shape {
        T::shape()
    }
}

impl<T: SettingType, const N: usize> SettingType for [T; N] {
    fn shape() -> Shape {
        T::shape()
    }
}

impl<T: SettingType> SettingType for Box<T> {
    fn shape() -> Shape {
        T::shape()
    }
}

#[cfg(test)]
mod tests;
