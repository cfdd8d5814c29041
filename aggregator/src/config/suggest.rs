//! "Did you mean ...?"

use shared::settings::Key;

use super::keys::KEYS;

/// The candidate closest to `given`, if it is close enough to be what was meant: at most a third of the letters
/// differ.
pub(crate) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    // What is far longer than any name is no misspelling of one, and need not be compared.
    let given = Some(given).filter(|given| given.len() <= 64)?;
    let scored = candidates.into_iter().map(|candidate| (distance(given, candidate), candidate));
    let (edits, best) = scored.min_by_key(|&(edits, _)| edits)?;
    (edits <= given.chars().count().max(best.chars().count()).div_ceil(3)).then(|| best.to_owned())
}

/// The `count` candidates that are closest to `given`, the closest first, however far they are.
pub(crate) fn nearest_of<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    let mut scored: Vec<_> =
        candidates.into_iter().map(|candidate| (distance(given, candidate), candidate)).collect();
    scored.sort_unstable();
    scored.into_iter().take(count).map(|(_, candidate)| candidate).collect()
}

/// What to write for the name of a method that is no algorithm of its own but another choice on an axis of the
/// configuration.
pub(super) fn axis(name: &str) -> Option<&'static str> {
    Some(match name {
        "fedavgm" => "fedavg with aggregation.server-optimizer.sgd.momentum",
        "fedadagrad" => "fedavg with [aggregation.server-optimizer.adagrad]",
        "fedadam" => "fedavg with [aggregation.server-optimizer.adam]",
        "fedyogi" => "fedavg with [aggregation.server-optimizer.yogi]",
        "fedloss" => "fedavg with aggregation.weights = \"loss\"",
        "median" => "fedavg with [aggregation.rule.median]",
        "trimmed-mean" => "fedavg with [aggregation.rule.trimmed-mean]",
        "fedma" => "fedavg with [aggregation.rule.fedma]",
        "krum" => "fedavg with [aggregation.rule.krum]",
        "multi-krum" => "fedavg with [aggregation.rule.multi-krum]",
        "bulyan" => "fedavg with [aggregation.rule.bulyan]",
        _ => return None,
    })
}

/// The key that was meant by the unknown `name` in the table `path`, in which `siblings` are known: one of just this name
/// elsewhere, or else a similar one beside it. Who writes into a table of a table knows the section: no other one is looked into.
pub(super) fn key(path: &str, name: &str, siblings: &[&str]) -> Option<String> {
    let section = path.split_once('.').map(|(section, _)| section);
    let named = |key: &&Key| {
        let mut parts = key.path.split('.');
        let above = parts.next();
        section.is_none_or(|section| above == Some(section)) && parts.any(|part| part == name)
    };
    let elsewhere = KEYS.iter().find(named).map(|key| {
        let above = key.path.split('.').take_while(|&part| part != name);
        above.chain([name]).collect::<Vec<_>>().join(".")
    });
    elsewhere.or_else(|| nearest(name, siblings.iter().copied()))
}

/// The whole name of the first key, not a table, whose last part is `name`.
pub(crate) fn meant_key(name: &str) -> Option<&'static str> {
    let named = KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(name));
    named.map(|key| key.path.as_str())
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("epoch", "epochs", 1),
            ("fedvag", "fedavg", 1),
            ("rate", "seed", 4),
        ];
        for (a, b, edits) in cases {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_what_is_close_is_suggested() {
        let names = ["epochs", "batch", "optimizer"];
        assert_eq!(nearest("epoch", names).as_deref(), Some("epochs"));
        assert_eq!(nearest("optimiser", names).as_deref(), Some("optimizer"));
        assert_eq!(nearest("alpha", names), None);
        assert_eq!(nearest(&"x".repeat(1000), names), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn keys_in_the_wrong_table_are_found() {
        assert_eq!(key("", "rounds", &["run", "round"]).as_deref(), Some("run.rounds"), "not `round`");
        assert_eq!(key("", "round", &["run", "rounds"]).as_deref(), Some("rounds"));
        assert_eq!(key("", "epochs", &["run", "data"]).as_deref(), Some("training.epochs"));
        assert_eq!(
            key("training", "momentum", &["epochs", "batch"]).as_deref(),
            Some("training.optimizer.sgd.momentum")
        );
        assert_eq!(key("run", "partition", &["name"]).as_deref(), Some("data.partition"));
        assert_eq!(key("", "entirely-else", &["name"]), None);
        assert_eq!(key("data.partition.dirichlet", "beta", &["alpha"]), None, "not that of a trimmed mean");
        let sgd = ["learning-rate", "momentum"];
        assert_eq!(key("training.optimizer.sgd", "epochs", &sgd).as_deref(), Some("training.epochs"));
    }
}
