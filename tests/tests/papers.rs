//! Experiments of papers: small ones of every kind are run, and the shipped ones planned.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use federation_tests::process::Process;
use federation_tests::programs::programs;

/// The row of a table that begins with this.
fn row<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let row = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
    row.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// What a small experiment prints, and its page.
fn both(text: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, out) = (folder.path().join("small.toml"), folder.path().join("out"));
    fs::write(&file, text).expect("written");
    let mut command = Command::new(&programs().aggregator);
    let ended = Process::start("compare", command.arg("compare").arg(&file).arg("--out").arg(&out)).wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    (ended.text, fs::read_to_string(out.join("report.html")).expect("a page"))
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

const LABELS: &str = r#"
title = "Labels at the server"
seeds = 2
baseline = "sl"
[base]
data = { clients = 4, limit = 400, labels = "server", labelled = 40 }
model.name = "linear"
run.rounds = 2
algorithm.fedmix = { gate = 0.2 }
[variants.sl]
server.mixing = { clients = 0.0, server = 1.0, previous = 0.0 }
training.epochs = 0
[variants.fedmix]
aggregation.weights = "loss"
[forms.reduced]
[forms.full]
[paper]
source = "Wang et al. 2022 (FedMix)"
accuracy = { sl = 19.3, fedmix = 48.0 }
"#;

#[test]
fn labels_at_the_server_are_compared_with_the_paper() {
    let (text, page) = both(LABELS);
    let head = row(&text, "variant");
    assert_eq!(head[..5], ["variant", "final accuracy", "against sl", "bytes (up)", "paper (full setup)"]);
    assert!(head.contains(&"coverage") && head.contains(&"server-loss"), "{head:?}");
    let [sl, fedmix] = ["sl ", "fedmix "].map(|name| row(&text, name));
    assert_eq!((sl[4], fedmix[4], sl[2]), ("19.3 %", "48 %", "baseline"));
    assert_eq!(fedmix.len(), head.len(), "{fedmix:?}");
    contains(&text, &["sl: nothing that clients learn counts", "server-loss: means over the rounds"]);
    contains(
        &page,
        &["<td>48 %</td>", "Paper: Wang et al. 2022 (FedMix).", "<th scope=\"col\">coverage</th>"],
    );
}

const PERSONAL: &str = r#"
title = "Personal models"
seeds = 2
[base]
data = { clients = 3, limit = 120, partition.dirichlet.alpha = 0.5 }
model.name = "cnn-small"
run.rounds = 1
evaluate.hold-out = 0.25
personalisation = { method = ["mfe", "ft", "fb"], head.epochs = 2, whole.epochs = 1, gate.epochs = 2 }
[variants.fedavg]
[variants.local]
algorithm.local = {}
personalisation.method = "none"
[paper]
source = "Guo et al. 2021"
[paper.metrics]
fedavg = { local-test = 90.0, mfe-local-test = 92.89, ft-global-test = 83.35 }
"#;

#[test]
fn personal_models_are_compared_with_the_paper() {
    let (text, page) = both(PERSONAL);
    let rows = ["fedavg, as it is", "fedavg, FT", "fedavg, FB", "fedavg, MFE", "local, as it is"];
    let rows = rows.map(|name| row(&text, name));
    assert_eq!(rows[0][2], "90.00 %", "{rows:?}");
    assert_eq!((rows[1][3], rows[3][2]), ("83.35 %", "92.89 %"), "{rows:?}");
    assert!(rows.iter().all(|row| row[1].contains(" +- ") && row[1].ends_with(" %")), "{rows:?}");
    assert!(rows[3].last().is_some_and(|gate| gate.starts_with("0.")), "{rows:?}");
    contains(
        &text,
        &["local: the accuracy is the mean over the clients' own models", "Paper: Guo et al. 2021."],
    );
    for title in ["<h3>Local tests of all clients</h3>", "<h3>Global tests of all clients</h3>"] {
        assert_eq!(page.matches(title).count(), 1, "{title}");
    }
    contains(&page, &["<td>92.89 %</td>", "Paper: Guo et al. 2021.", "A dot is a client of one seed"]);
    assert!(!page.contains("client by client"), "nothing is drawn twice");
}

const ONE_SHOT: &str = r#"
title = "One round"
seeds = 2
target = "fafi"
[base]
data = { clients = 3, limit = 120 }
model.name = "mlp-2nn"
run.rounds = 1
augment.random-shift = 1
[variants.fafi]
algorithm.fafi = {}
[variants.fedavg]
run.rounds = 2
[paper]
source = "Zeng et al. 2025"
accuracy = { fafi = 80.4 }
"#;

#[test]
fn one_round_is_compared_with_many() {
    let (text, page) = both(ONE_SHOT);
    let head = row(&text, "variant");
    let beginning = [
        "variant",
        "final accuracy",
        "steps a round",
        "rounds to fafi's accuracy",
        "bytes to target (up)",
        "bytes (up)",
        "paper",
    ];
    assert_eq!(head[..7], beginning);
    let fused = head.iter().position(|name| *name == "fused-informative").expect("a column");
    let fafi = row(&text, "fafi ");
    // 40 samples of a client in batches of 16.
    assert_eq!((fafi[2], fafi[3], fafi[6]), ("3", "1 +- 0", "80.4 %"), "{fafi:?}");
    // The same model under two names.
    let share =
        |cell: &str| cell.split(' ').next().and_then(|share| share.parse::<f64>().ok()).expect("a number");
    assert!((share(fafi[1]) - 100.0 * share(fafi[fused])).abs() < 0.11, "{fafi:?}");
    contains(&text, &["fused-uniform, mean-member, members: of the last test."]);
    contains(&page, &["rounds to fafi's accuracy", "<td>80.4 %</td>", "Paper: Zeng et al. 2025."]);
}

/// Every experiment that ships.
const SHIPPED: [&str; 27] = [
    "fafi-cifar10",
    "fafi-fashion",
    "fedavg-cifar",
    "fedavg-epochs",
    "fedavg-interpolation",
    "fedavg-rates",
    "fedavg-shakespeare",
    "fedavg-table1",
    "fedavg-table2",
    "fedavg-table4",
    "fedmix-cifar10",
    "fedmix-fashion-streaming",
    "fedmix-fedloss",
    "fedmix-labels",
    "fedmix-mu",
    "fedmix-weights",
    "moon-beta",
    "moon-cifar10",
    "moon-cifar100",
    "moon-fashion",
    "moon-parties",
    "pfl-cifar10",
    "pfl-fashion",
    "privacy-mnist",
    "robust-aggregation",
    "server-optimisers",
    "update-bits",
];

/// Their forms beside the reduced and the full one.
const MORE_FORMS: [(&str, &[&str]); 9] = [
    ("fafi-cifar10", &["ablation", "lenet"]),
    ("fafi-fashion", &["ablation", "batch", "inconsistency", "others"]),
    ("fedavg-table1", &["2nn", "brief", "rates"]),
    ("fedavg-table2", &["iid", "rates"]),
    ("fedavg-table4", &["iid"]),
    ("moon-fashion", &["mu5"]),
    ("pfl-cifar10", &["vgg"]),
    ("privacy-mnist", &["adaptive", "cohort", "devices"]),
    ("update-bits", &["cnn", "moon", "sparse"]),
];

/// The sources of a file's published numbers, by their names.
fn sources(file: &toml::Table) -> impl Iterator<Item = (&str, &toml::Value)> {
    let one = file.get("paper").map(|paper| ("paper", paper));
    let several = file.get("papers").and_then(toml::Value::as_table).into_iter().flatten();
    one.into_iter().chain(several.map(|(name, paper)| (name.as_str(), paper)))
}

/// The cells and variants for which a form of an experiment's file has published numbers.
fn published_in(file: &toml::Table, form: &str) -> BTreeSet<String> {
    let of_form = sources(file).map(|(_, paper)| paper).filter(|paper| match paper.get("form") {
        None => form == "full",
        // The others may have some of the cells alone.
        Some(toml::Value::Array(forms)) => forms.first().and_then(toml::Value::as_str) == Some(form),
        Some(one) => one.as_str() == Some(form),
    });
    let named = of_form.flat_map(|paper| {
        ["rounds", "accuracy", "metrics"].into_iter().filter_map(|key| paper.get(key)?.as_table())
    });
    named.flat_map(|table| table.keys().cloned()).collect()
}

#[test]
fn the_shipped_experiments_are_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/experiments");
    let there = fs::read_dir(&folder).expect("experiments").map(|entry| entry.expect("an entry").path());
    let mut there: Vec<PathBuf> = there.collect();
    there.sort();
    let expected: Vec<PathBuf> =
        SHIPPED.iter().map(|name| folder.join(name).with_extension("toml")).collect();
    assert_eq!(there, expected);
    for path in there {
        let text = fs::read_to_string(&path).expect("an experiment");
        let file: toml::Table = text.parse().expect("TOML");
        let forms = file.get("forms").and_then(toml::Value::as_table).expect("forms");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let more =
            MORE_FORMS.iter().find(|(experiment, _)| *experiment == name).map_or(&[][..], |(_, more)| more);
        let expected: BTreeSet<&str> = ["reduced", "full"].iter().chain(more).copied().collect();
        assert_eq!(forms.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{name}");
        for form in forms.keys() {
            let out = tempfile::tempdir().expect("a temporary folder");
            let mut command = Command::new(&programs().aggregator);
            // Where its data lies is not looked at before a run begins.
            command.args(["compare", "--plan", "--form", form, "--set", "data.path=nowhere", "--out"]);
            let ended = Process::start("compare", command.arg(out.path()).arg(&path)).wait();
            assert_eq!(ended.code, Some(0), "{}, form {form}: {}", path.display(), ended.text);
            assert_eq!(fs::read_dir(out.path()).expect("a folder").count(), 0, "nothing is made");
            for variant in published_in(&file, form) {
                let planned = [format!(" {variant}, seed "), format!(" {variant} with ")];
                let is_there = planned.iter().any(|run| ended.text.contains(run));
                assert!(is_there, "{name}, form {form}: {variant} is not in {}", ended.text);
            }
        }
    }
}

/// One published number: experiment, source, variant, figure and who has it from where.
type Number = [String; 5];

/// The numbers of the sources of a file.
fn numbers(experiment: &str, file: &toml::Table) -> Vec<(Number, f64)> {
    let mut found = Vec::new();
    for (source, paper) in sources(file) {
        let from = paper.get("from").and_then(toml::Value::as_str).unwrap_or("paper");
        let mut add = |variant: &str, figure: &str, value: &toml::Value| {
            let value = value.as_float().or(value.as_integer().map(|value| value as f64)).expect("a number");
            let names = [experiment, source, variant, figure, from].map(str::to_owned);
            found.push((names, value));
        };
        let table = |key: &str| paper.get(key).and_then(toml::Value::as_table).into_iter().flatten();
        for figure in ["rounds", "accuracy"] {
            table(figure).for_each(|(variant, value)| add(variant, figure, value));
        }
        for (variant, metrics) in table("metrics") {
            let metrics = metrics.as_table().expect("figures by their names");
            metrics.iter().for_each(|(figure, value)| add(variant, figure, value));
        }
    }
    found
}

#[test]
fn every_published_number_has_its_place_in_the_list_of_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let list = fs::read_to_string(folder.join("published.csv")).expect("the list");
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("experiment,source,variant,figure,value,from,where"));
    let mut listed: Vec<(Number, f64)> = lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let [experiment, source, variant, figure, value, from, place] = cells[..] else {
                panic!("seven cells: {line}")
            };
            assert!(!place.is_empty(), "where does it stand? {line}");
            ([experiment, source, variant, figure, from].map(str::to_owned), value.parse().expect("a number"))
        })
        .collect();
    let mut shown = Vec::new();
    for file in fs::read_dir(folder.join("experiments")).expect("a folder") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        shown.extend(numbers(&name, &text.parse().expect("TOML")));
    }
    let order = |a: &(Number, f64), b: &(Number, f64)| a.0.cmp(&b.0);
    listed.sort_by(order);
    shown.sort_by(order);
    assert!(shown.len() > 100, "{}", shown.len());
    for number in &shown {
        assert!(listed.contains(number), "{number:?} is in an experiment and not in published.csv");
    }
    for number in &listed {
        assert!(shown.contains(number), "{number:?} is in published.csv and in no experiment");
    }
}
