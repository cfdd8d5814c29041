//! Every key of the configuration, as the sections of [`Raw`] declare them.

use std::sync::LazyLock;

use shared::settings::Keys;

use super::Raw;

/// All keys, table by table, in the order in which they are written.
pub static KEYS: LazyLock<Keys> = LazyLock::new(Keys::of::<Raw>);

#[cfg(test)]
mod tests {
    use shared::settings::Kind;

    use super::*;

    /// The comment beside a key in `aggregator config` names every value that it takes.
    #[test]
    fn what_a_key_says_names_every_value_that_it_takes() {
        for key in KEYS.iter() {
            let (Kind::OneOf(names) | Kind::SomeOf(names)) = key.kind else { continue };
            // The list of data sets is longer than a line.
            if key.path == "data.set" {
                continue;
            }
            let said = key.says.to_lowercase();
            let words: Vec<&str> = said
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .filter(|word| !word.is_empty())
                .collect();
            for name in names {
                assert!(words.contains(name), "{}: {name} is not in {:?}", key.path, key.says);
            }
        }
    }

    #[test]
    fn every_name_is_accepted() {
        for key in KEYS.iter() {
            let (Kind::OneOf(names) | Kind::SomeOf(names)) = key.kind else { continue };
            for name in names {
                let given = format!("{}={name}", key.path);
                assert!(Raw::layered(None, std::slice::from_ref(&given)).is_ok(), "{given}");
            }
        }
    }

    #[test]
    fn every_key_says_what_it_is_once() {
        let mut paths: Vec<&str> = KEYS.iter().map(|key| key.path.as_str()).collect();
        assert!(KEYS.iter().all(|key| !key.says.is_empty() && !key.says.contains('\n')));
        paths.sort_unstable();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count, "a key is listed twice");
    }

    #[test]
    fn children_are_listed_in_order() {
        let sgd = ["learning-rate", "momentum", "weight-decay"];
        assert_eq!(KEYS.children("training.optimizer.sgd"), sgd);
        let partitions = ["iid", "shards", "classes", "dirichlet", "dirichlet-capped", "quantity", "role"];
        assert_eq!(KEYS.children("data.partition"), partitions);
        assert_eq!(KEYS.children("")[0], "run");
        assert!(KEYS.children("trainin").is_empty() && KEYS.children("training.epochs").is_empty());
    }

    #[test]
    fn ranges_are_said_in_words() {
        let says = |path: &str| KEYS.find(path).expect("a key").kind.accepts();
        assert_eq!(says("training.epochs"), "a whole number, at least 0 and at most 4294967295");
        assert_eq!(says("run.rounds"), "a whole number, at least 1 and at most 4294967295");
        assert_eq!(says("round.fraction"), "a number of at least 0 and at most 1");
        assert_eq!(says("training.optimizer.sgd.momentum"), "a number of at least 0 and less than 1");
        assert_eq!(says("training.optimizer.sgd.learning-rate"), "a number greater than 0");
        assert_eq!(says("aggregation.weights"), "\"samples\", \"uniform\", \"loss\"");
    }
}
