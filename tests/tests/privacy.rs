//! Differential privacy of devices, in whole runs: noise in the model and its account in the records, a secret that is nowhere else, the
//! same bytes for the same secret in simulation and on devices, and an end before the budget is exceeded.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use aggregator::data::{self, TestSet};
use aggregator::run::Run;
use aggregator::storage::Disk;
use federation_tests::copy_folder::copy_folder;
use federation_tests::planted::plant_secret;
use federation_tests::process::run;
use federation_tests::programs::{programs, simulate};
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use federation_tests::whole_run::{finish, start, whole};
use models::Backend;
use shared::data::View;

const PRIVATE: [&str; 4] =
    ["privacy.clip=0.5", "privacy.noise=0.7", "privacy.delta=1e-3", "aggregation.weights=uniform"];

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&PRIVATE[..], more].concat())
}

fn model(run: &Run) -> Vec<u8> {
    fs::read(run.directory().model()).unwrap()
}

/// The files below `folder` that have these bytes somewhere.
fn having(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(having(&path, bytes));
        } else if fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

#[tokio::test]
async fn every_round_has_its_epsilon_and_the_model_says_what_is_promised() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(&["run.rounds=4"]);
    let promise = scenario.config.promise.unwrap();
    let run = whole(folder.path(), &scenario).await;
    for record in run.records() {
        assert_eq!(record.metrics["epsilon"].to_bits(), promise.epsilon(record.round).to_bits());
    }
    let (_, _, metadata) = models::read_model(&mut &model(&run)[..]).unwrap();
    let stated = &metadata["privacy"];
    assert_eq!(*stated, promise.said(4));
    for part in [
        "after 4 rounds",
        "one device more or less",
        "clipped to 0.5",
        "noise 0.7",
        "the account is that of",
        "the server is trusted",
    ] {
        assert!(stated.contains(part), "{part:?} is not in {stated:?}");
    }
}

#[tokio::test]
async fn noise_is_another_in_every_run_unless_it_is_to_come_from_the_seed() {
    let of = |settings: &[&str]| {
        let scenario = scenario(settings);
        async move {
            let folder = tempfile::tempdir().unwrap();
            model(&whole(folder.path(), &scenario).await)
        }
    };
    assert!(of(&[]).await != of(&[]).await, "the noise is known");
    let repeated = ["simulation.reproducible-noise=true"];
    let (first, second) = (of(&repeated).await, of(&repeated).await);
    assert!(first == second, "the noise is not repeated");
    let (_, _, metadata) = models::read_model(&mut &first[..]).unwrap();
    assert!(metadata["privacy"].starts_with("none, since the noise comes from run.seed"), "{metadata:?}");
}

#[tokio::test]
async fn the_secret_is_in_its_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let run = whole(folder.path(), &scenario(&[])).await;
    let secret = fs::read(run.directory().root().join("state/secret")).unwrap();
    assert_eq!(secret.len(), 32);
    assert_eq!(having(folder.path(), &secret), ["secret"]);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(having(folder.path(), hex.as_bytes()).is_empty());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(run.directory().root().join("state/secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // What is packed for others to see has no secret.
    let packed = folder.path().join("packed.tar.gz");
    let [root, to] = [run.directory().root(), &packed].map(|path| path.display().to_string());
    drop(run);
    let archived =
        federation_tests::process::run(&programs().aggregator, &["runs", "archive", &root, "--to", &to]);
    assert_eq!(archived.code, Some(0), "{}", archived.text);
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(packed).unwrap()).read_to_end(&mut unpacked).unwrap();
    let has = |bytes: &[u8]| unpacked.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(b"model.safetensors") && !has(b"state/secret") && !has(&secret));
}

#[test]
fn the_report_of_a_private_run_has_nothing_of_single_clients() {
    let folder = tempfile::tempdir().unwrap();
    let personal = [
        "run.name=personal",
        "run.rounds=2",
        "data.clients=4",
        "data.max-samples=203",
        "model.name=mlp-2nn",
        "personalisation.method=['fb']",
        "data.partition.dirichlet.alpha=0.5",
    ];
    let runs = |kind: &str| folder.path().join(kind);
    simulate(&runs("open"), &personal);
    simulate(&runs("private"), &[&PRIVATE[..], &personal].concat());
    let of = |kind: &str, file: &str| fs::read_to_string(runs(kind).join("personal").join(file)).unwrap();
    let closing = |kind: &str| -> serde_json::Value {
        serde_json::from_str(of(kind, "rounds.jsonl").lines().last().unwrap()).unwrap()
    };
    let (open, private) = (closing("open"), closing("private"));
    // Means stay, and they are those of the personal models.
    for record in [&open, &private] {
        assert!(record["metrics"]["fb-local-test"].is_f64(), "{record}");
    }
    let clients = open["clients"].as_object().expect("every client's tests");
    assert!(clients.len() == 4 && private.get("clients").is_none(), "{private}");
    // Ids follow from run.seed: they are the same in both.
    let ids: Vec<_> = clients.keys().map(|id| id[..8].to_owned()).collect();
    let pages = ["open", "private"].map(|kind| of(kind, "report.html"));
    let telling = ["client 0", "client 3", "Labels of every client", "own tests", "A dot is a client"];
    for id in &ids {
        assert!(!pages[1].contains(id.as_str()), "{id}");
    }
    for part in telling {
        assert!(pages[0].contains(part), "{part:?} is not in the report of an open run");
        assert!(!pages[1].contains(part), "{part:?} is in the report of a private run");
    }
    let about: serde_json::Value = {
        let bytes = fs::read(runs("private").join("personal/state/about.json")).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        serde_json::from_str(&text[text.find('{').unwrap()..=text.rfind('}').unwrap()]).unwrap()
    };
    for client in about["histograms"].as_array().unwrap() {
        let counts: Vec<u64> =
            client[1].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
        let cells: String = counts.iter().map(|count| format!("<td>{count}</td>")).collect();
        assert!(pages[0].contains(&cells) && !pages[1].contains(&cells), "{cells}");
        let samples = format!("{} sample", counts.iter().sum::<u64>());
        assert!(!pages[1].contains(&samples), "{samples}");
    }
    assert!(pages[1].contains("means over them stand here without noise"), "{}", pages[1]);
}

#[tokio::test]
async fn a_run_that_goes_on_has_the_noise_of_one_that_was_not_interrupted() {
    let [folder, at_once, elsewhere] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let of = |rounds: u32| scenario(&[&format!("run.rounds={rounds}"), "privacy.rate=0.6"]);
    let name = of(1).config.spec.name.clone();
    for runs in [&folder, &at_once] {
        plant_secret(runs.path(), &name, [7; 32]);
    }
    drop(whole(folder.path(), &of(2)).await);
    copy_folder(folder.path(), elsewhere.path());
    let started = start(Arc::new(Disk), folder.path(), &of(4)).unwrap();
    assert!(started.continued);
    let (more, whole_run) = (finish(started, &of(4)).await, whole(at_once.path(), &of(4)).await);
    assert!(model(&more) == model(&whole_run), "another model");
    // A copy that has lost its secret does not go on: with another one a round might be published twice.
    fs::remove_file(elsewhere.path().join(&name).join("state/secret")).unwrap();
    let refused = start(Arc::new(Disk), elsewhere.path(), &of(4)).err().unwrap().to_string();
    assert!(refused.contains("state/secret") && refused.contains("restore"), "{refused}");
}

#[tokio::test]
async fn training_ends_before_the_round_that_would_exceed_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let promise = scenario(&[]).config.promise.unwrap();
    let budget = format!("privacy.epsilon={}", promise.epsilon(3) + 1e-9);
    let run = whole(folder.path(), &scenario(&["run.rounds=50", &budget])).await;
    assert_eq!((run.closed(), run.spent()), (3, true));
    assert!(run.planned_privacy().unwrap().ends_with("allows 3 of 50 rounds"), "{:?}", run.planned_privacy());
}

#[tokio::test]
async fn devices_take_part_as_often_as_they_may_also_where_a_run_was_interrupted() {
    let [at_once, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let of = |rounds: u32| {
        let rounds = format!("run.rounds={rounds}");
        let bounded = ["privacy.sampling=none", "privacy.max-participations=2", "privacy.rate=0.6", &rounds];
        scenario(&bounded)
    };
    let name = of(1).config.spec.name.clone();
    for runs in [&at_once, &folder] {
        plant_secret(runs.path(), &name, [7; 32]);
    }
    let run = whole(at_once.path(), &of(40)).await;
    let accepted: usize = run.records().iter().map(|record| record.accepted).sum();
    assert_eq!(accepted, 4 * 2, "four devices, two rounds each");
    assert!(run.closed() < 40, "training ends when all are done");
    let promise = of(40).config.promise.unwrap();
    let epsilons: Vec<f64> = run.records().iter().map(|record| record.metrics["epsilon"]).collect();
    assert!(
        epsilons[0] < epsilons[1]
            && epsilons[1..].iter().all(|spent| spent.to_bits() == promise.epsilon(2).to_bits())
    );
    assert!(run.privacy().unwrap().contains("in at most 2 rounds"), "{:?}", run.privacy());
    for rounds in [1, 2, 3] {
        drop(whole(folder.path(), &of(rounds)).await);
    }
    let started = start(Arc::new(Disk), folder.path(), &of(40)).unwrap();
    assert!(started.continued);
    let more = finish(started, &of(40)).await;
    assert!(more.closed() == run.closed() && model(&more) == model(&run), "another model");
}

#[tokio::test]
async fn rounds_count_with_any_number_of_devices() {
    let folder = tempfile::tempdir().unwrap();
    // Rounds open with three devices connected, and count with any number of updates.
    let scenario = scenario(&["run.rounds=30", "privacy.rate=0.3", "round.min-updates=3"]);
    let run = whole(folder.path(), &scenario).await;
    let sizes: Vec<usize> = run.records().iter().map(|record| record.accepted).collect();
    assert!(
        run.records().iter().all(|record| !record.void && record.sampled == record.accepted),
        "{sizes:?}"
    );
    assert!(
        sizes.contains(&0) && sizes.contains(&1),
        "30 rounds of 4 devices with probability 0.3: {sizes:?}"
    );
    assert_eq!(run.closed(), 30);
}

/// The share of pairs, a sample that was learned from and one that was not, of which the first has the smaller loss: 1/2 is chance.
/// (Yeom et al. 2018, arXiv 1709.01604, the attack by loss.)
async fn membership(scenario: &Scenario) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let run = whole(folder.path(), scenario).await;
    let params = run.current_model().unwrap();
    let losses = |view: &View| -> Vec<f64> {
        let one = |position: u32| {
            let sample =
                TestSet::new(view.part(&[position]), scenario.config.spec.data.preparation.clone(), 1);
            let found = sample.evaluate(&scenario.config.spec.architecture, &params, &Backend::cpu());
            found.unwrap().loss
        };
        (0..view.len().min(300) as u32).map(one).collect()
    };
    let members: Vec<f64> = scenario.shares.iter().flat_map(losses).collect();
    let others = losses(data::test_set(&scenario.config).unwrap().unwrap().view());
    let pairs = members.iter().flat_map(|member| others.iter().map(move |other| (member, other)));
    let smaller = pairs.map(|(member, other)| f64::from(u8::from(member < other))).sum::<f64>();
    smaller / (members.len() * others.len()) as f64
}

#[tokio::test]
async fn who_has_taken_part_can_be_told_without_noise_and_not_with_it() {
    let overfitted = |privacy: &[&str]| {
        let settings = ["model.name=mlp-2nn", "data.clients=8", "training.epochs=20", "run.rounds=8"];
        Scenario::small(
            &[&settings[..], &["aggregation.weights=uniform", "evaluate.every=100"], privacy].concat(),
        )
    };
    let open = membership(&overfitted(&[])).await;
    assert!(open > 0.6, "{open}");
    // The attack finds more or less of one run by chance, according to its noise: it is the mean of several that tells.
    let private = ["run.seed=1", "run.seed=2", "run.seed=3", "run.seed=4"].map(|seed| {
        let settings = ["privacy.clip=1", "privacy.noise=1.5", "privacy.delta=1e-2"];
        overfitted(&[&settings[..], &["simulation.reproducible-noise=true", "data.seed=1", seed]].concat())
    });
    let epsilon = private[0].config.promise.unwrap().epsilon(8);
    let mut hidden = 0.0;
    for scenario in &private {
        hidden += membership(scenario).await / private.len() as f64;
    }
    println!("without noise {open:.3}, with epsilon {epsilon:.1} {hidden:.3}");
    assert!((hidden - 0.5).abs() < 0.06, "{hidden}");
}

#[test]
fn devices_give_the_bytes_of_the_simulation() {
    for more in [&[][..], &["update.precision=int8", "privacy.rate=0.7"]] {
        let testbed = Testbed::new(4, &[&PRIVATE[..], more].concat());
        let name = testbed.run().file_name().unwrap().to_string_lossy().into_owned();
        plant_secret(testbed.run().parent().unwrap(), &name, [9; 32]);
        plant_secret(&testbed.path("simulated"), &name, [9; 32]);
        let server = testbed.serve();
        let devices: Vec<_> = (0..4).map(|index| testbed.join(index)).collect();
        if more.is_empty() {
            testbed.assert_completed(server, devices);
            continue;
        }
        let ended = server.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        assert!(testbed.model() == testbed.simulated(), "the model is not the simulation's");
    }
}

#[test]
fn the_plan_is_said_and_nonsense_is_refused() {
    let plan = |arguments: &[&str]| run(&programs().aggregator, &[&["privacy", "plan"], arguments].concat());
    let asked = ["--devices", "1000", "--cohort", "100", "--rounds", "100", "--delta", "1e-5"];
    // Noise 1 is epsilon 7.0472, and 7.046603 by the golden number of the account; what is printed is rounded up.
    let said = plan(&[&asked[..], &["--epsilon", "7.05"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert!(said.text.contains("   100    0.100000    0.9999  0.01000 x clip"), "{}", said.text);
    assert!(said.text.contains("noise = 0.9999\nrate = 0.1\ndevices = 1000"), "{}", said.text);
    // The number of updates within a bound that adapts takes 1 / (2 * 5)^2 of 1 / 0.9999^2.
    assert!(said.text.contains("that of the mean is 0.01005 x clip"), "{}", said.text);
    let json = plan(&[&asked[..], &["--epsilon", "7.05", "--json"]].concat());
    let rows: serde_json::Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!((rows[0]["noise"].as_f64(), rows[3]["cohort"].as_u64()), (Some(0.9999), Some(800)));
    // What is printed can be run, also where rates have no end of digits.
    for (devices, cohort, epsilon) in [("49", "1", "8"), ("1000", "100", "1000000"), ("103", "3", "0.5")] {
        let delta = ["--delta", "1e-4", "--devices", devices, "--cohort", cohort];
        let said = plan(&[&delta[..], &["--rounds", "10", "--epsilon", epsilon]].concat());
        let (_, toml) = said.text.split_once("[aggregation]").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        fs::write(&file, format!("[aggregation]{toml}")).unwrap();
        let file = file.display().to_string();
        let config = run(&programs().aggregator, &["config", &file]);
        assert_eq!(config.code, Some(0), "{devices} {cohort} {epsilon}: {}", config.text);
    }
    // Without sampling: 20 rounds that ask all, z = 5 and delta 1e-5 are epsilon 3.848610, and a little less is a little more.
    let bounded = ["--max-participations", "20", "--epsilon", "3.855"];
    let said = plan(
        &[&["--devices", "1000", "--cohort", "100", "--rounds", "900", "--delta", "1e-5"], &bounded[..]]
            .concat(),
    );
    for part in
        ["at most 20\n", "noise = 4.993\n", "rate = 0.1\n", "sampling = \"none\"\nmax-participations = 20"]
    {
        assert!(said.text.contains(part), "{part:?} is not in {}", said.text);
    }
    for (arguments, part) in [
        (
            &["--devices", "10", "--cohort", "11", "--rounds", "1", "--epsilon", "1"][..],
            "--cohort 11 is more",
        ),
        (
            &["--devices", "100", "--cohort", "1", "--rounds", "1", "--epsilon", "1", "--delta", "0.01"],
            "not less than 1 in 100 devices",
        ),
    ] {
        let refused = plan(arguments);
        assert_eq!(refused.code, Some(2), "{}", refused.text);
        assert!(refused.text.contains(part), "{}", refused.text);
    }
}

#[test]
fn the_length_of_the_noise_is_said_beside_the_clip() {
    let plan = |more: &[&str]| {
        let asked =
            ["privacy", "plan", "--devices", "1000", "--cohort", "250", "--rounds", "30", "--delta", "1e-5"];
        run(&programs().aggregator, &[&asked[..], &["--epsilon", "8"], more].concat())
    };
    let without = plan(&[]);
    assert!(!without.text.contains("its length"), "{}", without.text);
    // Deviation times the root of the parameters: of 10,000 it is a hundred.
    let said = plan(&["--parameters", "10000", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&said.text).unwrap();
    let of = |row: &serde_json::Value, name: &str| row[name].as_f64().unwrap();
    let cohorts: Vec<f64> = rows.iter().map(|row| of(row, "cohort")).collect();
    assert_eq!(cohorts, [250.0, 500.0, 1000.0]);
    let mut before = f64::INFINITY;
    for row in &rows {
        let length = of(row, "noise_length_of_mean");
        let expected = 100.0 * of(row, "noise") / of(row, "cohort");
        assert!((length / expected - 1.0).abs() < 1e-12 && length < before, "{row}");
        before = length;
    }
    let said = plan(&["--parameters", "10000"]).text;
    for part in [
        "noise of the mean  its length\n".to_owned(),
        format!(" x clip     {:.3} x clip\n", of(&rows[0], "noise_length_of_mean")),
        "no mean of updates is longer than 1 x clip".to_owned(),
    ] {
        assert!(said.contains(&part), "{part:?} is not in {said}");
    }
    // That of a configuration is of what devices learn and send.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    fs::write(&file, "model.name = \"linear\"\n").unwrap();
    let linear = Scenario::small(&[]).config.spec.architecture.parameters().unwrap().to_string();
    let file = file.display().to_string();
    assert_eq!(plan(&["--config", &file]).text, plan(&["--parameters", &linear]).text);
}

#[test]
fn the_epsilon_of_a_noise_is_that_of_a_run() {
    let spent =
        |more: &[&str]| run(&programs().aggregator, &[&["privacy", "spent", "--json"], more].concat());
    let found = |more: &[&str]| -> serde_json::Value {
        let ended = spent(more);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        serde_json::from_str(&ended.text).unwrap()
    };
    let promise = scenario(&["privacy.rate=0.6"]).config.promise.unwrap();
    let of = ["--noise", "0.7", "--delta", "1e-3", "--rounds", "9"];
    let sampled = found(&[&of[..], &["--rate", "0.6"]].concat());
    assert_eq!(
        (sampled["epsilon"].as_f64(), &sampled["account"]),
        (Some(promise.epsilon(9)), &"losses".into())
    );
    assert!(
        sampled["renyi"].as_f64() > sampled["epsilon"].as_f64() && sampled["interval"].is_f64(),
        "{sampled}"
    );
    let all = found(&of);
    assert_eq!((&all["account"], all["interval"].is_null()), (&"closed-form".into(), true));
    let by_devices = found(&[&of[..], &["--secure-aggregation", "4"]].concat());
    assert!(by_devices["epsilon"].as_f64() > all["epsilon"].as_f64(), "{by_devices} {all}");
    let refused = spent(&["--noise", "0", "--rounds", "1"]);
    assert!(refused.code == Some(2) && refused.text.contains("above 0"), "{}", refused.text);
}
