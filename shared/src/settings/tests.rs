//! Declared settings: keys, defaults, layers.
#![expect(unreachable_pub, reason = "the macros declare what other modules use")]

use toml::Table;

use super::*;
use crate::{choice, section};

section! {
    /// A machine for coffee.
    pub struct Machine {
        /// Cups a day.
        pub cups: u32 = 3, in Kind::POSITIVE;
        /// Whether it is on.
        pub on: bool = true, was "running";
        /// A note.
        pub note: Option<String> = None, in Kind::Text(20), unset "no note";
        /// How it grinds.
        pub grind: Grind = Grind::default(), was "mill";
        /// The boiler.
        pub boiler: Boiler = Boiler::default();
    }
}

section! {
    /// A boiler.
    #[derive(Copy)]
    pub struct Boiler {
        /// Degrees.
        pub target_heat: f64 = 92.5, in Kind::RATE, was "machine.heat";
    }
}

choice! {
    /// How beans are ground.
    pub enum Grind {
        /// Not at all.
        None {}
        /// With burrs.
        Burr {
            /// Millimetres.
            gap: f64 = 0.5, in Kind::RATE, was "width";
            /// Turns.
            turns: u32 = 9, in Kind::COUNT;
        }
    }
}

fn table(text: &str) -> Table {
    text.parse().expect(text)
}

#[test]
fn alternatives_have_the_names_that_are_written() {
    assert_eq!(Grind::ALL.iter().map(Grind::name).collect::<Vec<_>>(), ["none", "burr"]);
    assert_eq!(Grind::Burr { gap: 0.25, turns: 1 }.name(), "burr");
}

#[test]
fn keys_are_the_fields_with_their_paths_in_order() {
    let keys = Keys::of::<Machine>();
    let paths: Vec<&str> = keys.iter().map(|key| key.path.as_str()).collect();
    assert_eq!(
        paths,
        ["cups", "on", "note", "grind.none", "grind.burr.gap", "grind.burr.turns", "boiler.target-heat"]
    );
    let note = keys.find("note").expect("a key");
    assert_eq!((note.says, note.unset, note.kind), ("A note", Some("no note"), Kind::Text(20)));
    assert_eq!(keys.find("grind.none").map(|key| key.kind), Some(Kind::Empty));
    assert_eq!(keys.children("grind"), ["none", "burr"]);
    assert_eq!(keys.alternatives("grind").map(<[Alternative]>::len), Some(2));
    assert!(keys.alternatives("boiler").is_none() && keys.children("boil").is_empty());
}

#[test]
fn old_names_are_known_beside_the_key_or_by_their_full_path() {
    let keys = Keys::of::<Machine>();
    let all: Vec<_> = keys.renamed().collect();
    assert_eq!(
        all,
        [
            ("running", "on"),
            ("mill", "grind"),
            ("grind.burr.width", "grind.burr.gap"),
            ("machine.heat", "boiler.target-heat")
        ]
    );
}

#[test]
fn what_is_left_out_has_its_default_also_in_another_alternative() {
    let read = |text: &str| -> Machine { complete::<Machine>(table(text)).try_into().expect(text) };
    assert_eq!(read(""), Machine::default());
    let burr = read("grind.burr.gap = 2.0");
    assert_eq!(burr.grind, Grind::Burr { gap: 2.0, turns: 9 });
    assert_eq!(read("grind.burr = {}").grind, Grind::ALL[1]);
    assert_eq!(read("boiler = {}\ncups = 4").cups, 4);
    let mut base = table_of(&burr);
    lay_over(&mut base, table("grind.burr.turns = 1"), &Machine::shape());
    assert_eq!(base["grind"]["burr"]["gap"].as_float(), Some(2.0));
    lay_over(&mut base, table("grind.none = {}"), &Machine::shape());
    assert_eq!(base["grind"], table("none = {}").into());
}

#[test]
fn what_is_written_without_defaults_reads_back() {
    assert!(without_defaults(&Machine::default()).is_empty());
    for (text, written) in [
        ("cups = 7", "cups = 7"),
        ("cups = 3\ngrind.none = {}", ""),
        ("grind.burr = { turns = 9 }", "grind.burr = {}"),
        ("note = 'x'\ngrind.burr.turns = 2", "note = 'x'\ngrind.burr.turns = 2"),
        ("boiler.target-heat = 90.0", "boiler.target-heat = 90.0"),
    ] {
        let machine: Machine = complete::<Machine>(table(text)).try_into().expect(text);
        assert_eq!(without_defaults(&machine), table(written), "{text}");
        let again: Machine = complete::<Machine>(table(written)).try_into().expect(written);
        assert_eq!(again, machine);
    }
}

#[test]
fn unknown_keys_are_errors() {
    for text in ["cup = 1", "grind.burr.size = 1", "grind.blade = {}", "boiler.heat = 1"] {
        let read: Result<Machine, _> = complete::<Machine>(table(text)).try_into();
        assert!(read.is_err(), "{text}");
    }
}
