//! The macros that declare settings.

/// Declares a table of settings: a struct whose fields are keys.
///
/// The name of a key is the field's in kebab-case, and the first line of its doc comment says what it is. After the default may
/// stand, in this order, `in KIND` (a [`Kind`](crate::settings::Kind), where the type alone does not say what is accepted),
/// `unset "MEANING"` (of an absent optional key) and `was "OLD-NAME"` (which is still read).
#[macro_export]
macro_rules! section {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {$(
            #[doc = $says:literal] $(#[doc = $more:literal])*
            pub $field:ident: $type:ty = $default:expr
                $(, in $kind:expr)? $(, unset $unset:literal)? $(, was $was:literal)?;
        )*}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct $name {$(
            #[doc = $says] $(#[doc = $more])* $(#[serde(alias = $was)])?
            pub $field: $type,
        )*}

        impl Default for $name {
            fn default() -> Self {
                Self {$( $field: $default, )*}
            }
        }

        impl $crate::settings::SettingType for $name {
            fn shape() -> $crate::settings::Shape {
                $crate::settings::Shape::Table(vec![$( $crate::entry!(
                    $field, $says, $type
                        $(, in $kind)? $(, unset $unset)? $(, was $was)?
                ), )*])
            }
        }
    };
}

/// Declares a table that holds exactly one of several alternatives: an enum whose variants are tables of settings. The first one is
/// the default. The form is that of [`section!`](crate::section).
#[macro_export]
macro_rules! choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {$(
            #[doc = $says:literal] $(#[doc = $more:literal])*
            $variant:ident {$(
                #[doc = $field_says:literal] $(#[doc = $field_more:literal])*
                $field:ident: $type:ty = $default:expr
                    $(, in $kind:expr)? $(, unset $unset:literal)? $(, was $was:literal)?;
            )*}
        )*}
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
        pub enum $name {$(
            #[doc = $says] $(#[doc = $more])*
            $variant {$(
                #[doc = $field_says] $(#[doc = $field_more])*
                $field: $type,
            )*},
        )*}

        impl $name {
            /// Each alternative with the settings that it has where none are given.
            pub const ALL: &[Self] = &[$( Self::$variant {$( $field: $default, )*}, )*];

            /// Its name in the configuration.
            #[must_use]
            pub fn name(&self) -> &'static str {
                let same = |one: &Self| ::std::mem::discriminant(one) == ::std::mem::discriminant(self);
                let number = Self::ALL.iter().position(same).expect("all alternatives are listed");
                $crate::settings::variants::<Self>()[number]
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl $crate::settings::SettingType for $name {
            fn shape() -> $crate::settings::Shape {
                let mut all = $crate::settings::variants::<Self>().iter().copied().zip(Self::ALL);
                let mut alternatives = Vec::new();
                $(
                    let (name, defaults) = all.next().expect("as many names as alternatives");
                    alternatives.push($crate::settings::Alternative {
                        name,
                        says: $says.trim().trim_end_matches('.'),
                        entries: vec![$( $crate::entry!(
                            $field, $field_says, $type
                                $(, in $kind)? $(, unset $unset)? $(, was $was)?
                        ), )*],
                        defaults: $crate::settings::settings_of(name, defaults),
                    });
                )*
                $crate::settings::Shape::Choice(alternatives)
            }
        }
    };
}

/// Declares that types are settings with one of a few names: enums without fields, or with other names in the same place.
#[macro_export]
macro_rules! named {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::settings::SettingType for $type {
            fn shape() -> $crate::settings::Shape {
                $crate::settings::Shape::Value($crate::settings::Kind::OneOf($crate::settings::variants::<Self>()))
            }
        }
    )*};
}

/// One entry of a table; the macros above expand to it.
#[doc(hidden)]
#[macro_export]
macro_rules! entry {
    ($field:ident, $says:expr, $type:ty $(, in $kind:expr)? $(, unset $unset:literal)? $(, was $was:literal)?) => {
        $crate::settings::Entry {
            name: stringify!($field).replace('_', "-"),
            shape: $crate::entry!(@shape $type $(, $kind)?),
            says: $says.trim().trim_end_matches('.'),
            unset: $crate::entry!(@first $($unset)?),
            was: $crate::entry!(@first $($was)?),
        }
    };
    (@shape $type:ty) => { <$type as $crate::settings::SettingType>::shape() };
    (@shape $type:ty, $kind:expr) => { $crate::settings::Shape::Value($kind) };
    (@first) => { None };
    (@first $value:literal) => { Some($value) };
}
