//! Figures for Prometheus, made of what is on disk whenever they are asked for. No label has an id or a name of a device.

#[cfg(feature = "cluster")]
mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use shared::calendar::moment;

use super::lab::{Lab, LabError, Run};
use crate::coordinator::WaitingFor;
use crate::enrolment::Device;
use crate::round::RoundRecord;

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// As Prometheus asks for them.
    OpenMetrics,
    /// Its older format, for every other program.
    Text,
}

impl Format {
    /// What a program that accepts this is sent.
    pub(super) fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) fn content(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

type Value = Gauge<f64, AtomicU64>;
type Sum = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRun {
    run: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    run: String,
    state: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WithVerdict {
    run: String,
    verdict: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InDirection {
    run: String,
    direction: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InStage {
    run: String,
    stage: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDevices {
    state: String,
}

/// The metric of a record that says what was spent.
const EPSILON: &str = "epsilon";

/// Everything that is measured.
struct Figures {
    registry: Registry,
    state: Family<InState, Value>,
    round: Family<OfRun, Value>,
    planned: Family<OfRun, Value>,
    accuracy: Family<OfRun, Value>,
    loss: Family<OfRun, Value>,
    failed: Family<OfRun, Sum>,
    updates: Family<WithVerdict, Sum>,
    bytes: Family<InDirection, Sum>,
    round_seconds: Family<OfRun, Histogram>,
    waiting: Family<OfRun, Sum>,
    test: Family<OfRun, Sum>,
    fold: Family<OfRun, Sum>,
    training: Family<OfRun, Sum>,
    connected: Family<OfRun, Value>,
    missing: Family<OfRun, Value>,
    refused: Family<OfRun, Sum>,
    uploads: Family<InStage, Value>,
    dominant: Family<OfRun, Value>,
    epsilon: Family<OfRun, Value>,
    budget: Family<OfRun, Value>,
    devices: Family<OfDevices, Value>,
    database: Value,
    disk: Value,
}

/// From a tenth of a second to a day.
fn round_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 3.0, 13))
}

impl Figures {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("federation");
        macro_rules! figure {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
            ($name:literal, $unit:ident, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, Unit::$unit, metric.clone());
                metric
            }};
        }
        Self {
            state: figure!("run_state", "1 for the state that a run is in", Family::default()),
            round: figure!("round", "Closed rounds of training", Family::default()),
            planned: figure!(
                "planned_rounds",
                "Rounds of training that the run was asked for",
                Family::default()
            ),
            accuracy: figure!(
                "accuracy",
                "Accuracy of the newest tested model, from 0 to 1",
                Family::default()
            ),
            loss: figure!("loss", "Cross-entropy of the newest tested model, in nats", Family::default()),
            failed: figure!("failed_rounds", "Rounds that closed without a result", Family::default()),
            updates: figure!("updates", "Answers of clients by verdict", Family::default()),
            bytes: figure!(
                "bytes",
                "Bytes sent to clients (down) and received from them (up)",
                Family::default()
            ),
            round_seconds: figure!(
                "round",
                Seconds,
                "Time from the opening of a round to its closing",
                Family::new_with_constructor(round_seconds as fn() -> Histogram)
            ),
            waiting: figure!("waiting", Seconds, "Time in which no round was open", Family::default()),
            test: figure!("test", Seconds, "Time in which the server tested models", Family::default()),
            fold: figure!("fold", Seconds, "Time of aggregation and of the disk", Family::default()),
            training: figure!(
                "training",
                Seconds,
                "Time of training on devices, as they say",
                Family::default()
            ),
            connected: figure!(
                "connected_devices",
                "Devices that are connected to the run's server",
                Family::default()
            ),
            missing: figure!(
                "missing_updates",
                "Updates that the open round still waits for",
                Family::default()
            ),
            refused: figure!(
                "refused_connections",
                "Connections refused since the server was started: too many came at once",
                Family::default()
            ),
            uploads: figure!(
                "uploads",
                "Updates on their way: they wait for their turn (waiting), are received (uploading), or are checked and folded (checking)",
                Family::default()
            ),
            dominant: figure!(
                "dominant_device_share",
                "Share of the samples that the device declares which had most of them in the last round; 0 where none stands out",
                Family::default()
            ),
            epsilon: figure!(
                "epsilon",
                "What the rounds of a private run have spent; nothing of runs whose noise comes from their seed, which promise nothing",
                Family::default()
            ),
            budget: figure!(
                "epsilon_budget",
                "What the rounds of a private run may spend, if it has a budget",
                Family::default()
            ),
            devices: figure!("devices", "Known devices by state", Family::default()),
            database: figure!(
                "database",
                Bytes,
                "Size of the server's database with its log",
                Value::default()
            ),
            disk: figure!("disk_free", Bytes, "Room that is left on the disk of the runs", Value::default()),
            registry,
        }
    }

    fn add(&self, run: &Run) {
        let (of, summary) = (&run.overview, run.found.summary());
        let name = || of.run.clone();
        let label = OfRun { run: name() };
        self.state.get_or_create(&InState { run: name(), state: of.state.to_owned() }).set(1.0);
        self.round.get_or_create(&label).set(of.rounds as f64);
        self.planned.get_or_create(&label).set(f64::from(of.planned));
        if let Some((accuracy, _)) = summary.last {
            self.accuracy.get_or_create(&label).set(accuracy);
        }
        if let Some(loss) = run.found.rounds.records.iter().rev().find_map(|record| record.loss) {
            self.loss.get_or_create(&label).set(loss);
        }
        self.privacy(run, &label);
        let dominance = run.found.rounds.records.last().and_then(|record| record.dominance.as_ref());
        self.dominant.get_or_create(&label).set(dominance.map_or(0.0, |of| of.share_of_samples));
        let failed = run.found.rounds.records.iter().filter(|record| record.void).count();
        self.failed.get_or_create(&label).inc_by(failed as f64);
        let arrivals = &summary.arrivals;
        let verdicts = [
            ("accepted", arrivals.accepted),
            ("rejected", arrivals.rejected),
            ("discarded", arrivals.discarded),
            ("failed", arrivals.failed),
            ("not-now", arrivals.not_now),
        ];
        for (verdict, count) in verdicts {
            let label = WithVerdict { run: name(), verdict: verdict.to_owned() };
            self.updates.get_or_create(&label).inc_by(count as f64);
        }
        for (direction, bytes) in [("down", summary.bytes_down), ("up", summary.bytes_up)] {
            let label = InDirection { run: name(), direction: direction.to_owned() };
            self.bytes.get_or_create(&label).inc_by(bytes as f64);
        }
        let rounds = self.round_seconds.get_or_create(&label);
        run.found.rounds.records.iter().for_each(|record| rounds.observe(record.seconds));
        self.waiting.get_or_create(&label).inc_by(summary.times.waiting);
        self.test.get_or_create(&label).inc_by(summary.times.test);
        self.fold.get_or_create(&label).inc_by(summary.times.disk);
        let trained = run.found.devices().filter_map(|device| device.seconds).sum();
        self.training.get_or_create(&label).inc_by(trained);
    }
}

impl Figures {
    /// What a private run has spent, by its newest record that says so, and what it may.
    fn privacy(&self, run: &Run, label: &OfRun) {
        let config = &run.found.config;
        // A run whose noise can be taken away promises nothing, although its records say what it would.
        let Some(promise) = config.promise.filter(|_| config.epsilon_is_called() == EPSILON) else { return };
        let spent = |record: &RoundRecord| record.metrics.get(EPSILON).copied();
        let epsilon = run.found.rounds.records.iter().rev().find_map(spent);
        self.epsilon.get_or_create(label).set(epsilon.unwrap_or(0.0));
        if let Some(budget) = promise.budget {
            self.budget.get_or_create(label).set(budget);
        }
    }
}

/// All figures.
pub(super) fn text(lab: &Lab, format: Format) -> Result<String, LabError> {
    #[cfg_attr(not(feature = "cluster"), expect(unused_mut, reason = "several servers add to it"))]
    let mut figures = Figures::new();
    let (runs, _) = lab.all()?;
    for run in &runs {
        figures.add(run);
    }
    #[cfg(feature = "cluster")]
    {
        let now = moment(SystemTime::now());
        servers::add(&mut figures.registry, &lab.together(), now);
    }
    if let Some(database) = lab.database()? {
        let now = moment(SystemTime::now());
        for state in Device::PRESENCES {
            figures.devices.get_or_create(&OfDevices { state: state.to_owned() }).set(0.0);
        }
        for device in Device::all(&database)? {
            let state = device.presence(now);
            figures.devices.get_or_create(&OfDevices { state: state.to_owned() }).inc();
        }
        for stored in database.runs()? {
            let Some(run) = runs.iter().find(|run| run.overview.id.to_string() == stored.run) else {
                continue;
            };
            let label = OfRun { run: run.overview.run.clone() };
            let Some(status) = stored.status.filter(|_| run.overview.is_worked_on()) else { continue };
            figures.connected.get_or_create(&label).set(status.connected as f64);
            if let WaitingFor::Updates { accepted, cohort, members, more, .. } = status.waiting_for {
                let awaited = members.iter().filter(|member| !member.late).count() + more;
                // Where late updates count, more devices are asked than updates are needed.
                figures
                    .missing
                    .get_or_create(&label)
                    .set(awaited.min(cohort.saturating_sub(accepted)) as f64);
            }
            let load = status.load.unwrap_or_default();
            figures.refused.get_or_create(&label).inc_by(load.refused as f64);
            for (stage, updates) in
                [("waiting", load.waiting), ("uploading", load.uploading), ("checking", load.checking)]
            {
                let label = InStage { run: label.run.clone(), stage: stage.to_owned() };
                figures.uploads.get_or_create(&label).set(updates as f64);
            }
        }
        let mut log = database.path().as_os_str().to_owned();
        log.push("-wal");
        let files = [fs::metadata(database.path()), fs::metadata(log)];
        figures.database.set(files.into_iter().flatten().map(|file| file.len() as f64).sum());
    }
    if let Ok(room) = rustix::fs::statvfs(lab.place()) {
        figures.disk.set(room.f_bavail as f64 * room.f_frsize as f64);
    }
    let mut text = String::new();
    encode(&mut text, &figures.registry).expect("a string takes any text");
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Text => plain(&text),
    })
}

/// The older format: what is said of a counter stands under the name of its series, and of units and the end nothing is said.
fn plain(open_metrics: &str) -> String {
    let name = |line: &str| line.split(' ').nth(2).unwrap_or_default().to_owned();
    let is_counter = |line: &&str| line.starts_with("# TYPE ") && line.ends_with(" counter");
    let counters: BTreeSet<String> = open_metrics.lines().filter(is_counter).map(name).collect();
    let mut plain = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let name = name(line);
        if line.starts_with("# ") && counters.contains(&name) {
            plain.push_str(&line.replacen(&name, &(name.clone() + "_total"), 1));
        } else {
            plain.push_str(line);
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all series, with one of each.
    #[cfg(feature = "cluster")]
    fn names() -> BTreeSet<String> {
        let mut figures = Figures::new();
        servers::add(&mut figures.registry, &[crate::leaves::shown::Together::example()], 0);
        let run = OfRun::default();
        let Figures { round, planned, accuracy, loss, connected, missing, .. } = &figures;
        let Figures { dominant, epsilon, budget, .. } = &figures;
        for values in [round, planned, accuracy, loss, connected, missing, dominant, epsilon, budget] {
            values.get_or_create(&run).set(1.0);
        }
        let Figures { failed, waiting, test, fold, training, refused, .. } = &figures;
        for sums in [failed, waiting, test, fold, training, refused] {
            sums.get_or_create(&run).inc();
        }
        figures.state.get_or_create(&InState::default()).set(1.0);
        figures.uploads.get_or_create(&InStage::default()).set(1.0);
        figures.updates.get_or_create(&WithVerdict::default()).inc();
        figures.bytes.get_or_create(&InDirection::default()).inc();
        figures.devices.get_or_create(&OfDevices::default()).set(1.0);
        figures.round_seconds.get_or_create(&run).observe(1.0);
        let mut text = String::new();
        encode(&mut text, &figures.registry).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_older_format_names_counters_by_their_series() {
        let open = "# HELP federation_bytes Sent.\n# TYPE federation_bytes counter\nfederation_bytes_total{a=\"b\"} 1.0\n\
                    # HELP federation_round_seconds Time.\n# TYPE federation_round_seconds histogram\n\
                    # UNIT federation_round_seconds seconds\nfederation_round_seconds_sum 2.0\n# EOF\n";
        let expected = "# HELP federation_bytes_total Sent.\n# TYPE federation_bytes_total counter\n\
                        federation_bytes_total{a=\"b\"} 1.0\n# HELP federation_round_seconds Time.\n\
                        # TYPE federation_round_seconds histogram\nfederation_round_seconds_sum 2.0\n";
        assert_eq!(plain(open), expected);
        assert_eq!(
            Format::accepted("application/openmetrics-text;version=1.0.0,*/*;q=0.1"),
            Format::OpenMetrics
        );
        assert_eq!(Format::accepted("*/*"), Format::Text);
    }

    /// The names that begin as ours do.
    #[cfg(feature = "cluster")]
    fn named(text: &str) -> BTreeSet<&str> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !word(c)).filter(|name| name.starts_with("federation_")).collect()
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn the_dashboard_and_the_rules_name_series_that_there_are() {
        let names = names();
        let files =
            [include_str!("../../packaging/grafana.json"), include_str!("../../packaging/alerts.yml")];
        for file in files {
            let used = named(file);
            assert!(used.len() > 4, "{used:?}");
            for name in used {
                assert!(names.contains(name), "{name} is none of {names:#?}");
            }
        }
        let dashboard: serde_json::Value = serde_json::from_str(files[0]).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()));
        let shown = named(files[0]);
        let unseen: Vec<_> = names
            .iter()
            .filter(|name| !name.ends_with("_bucket") && !shown.contains(name.as_str()))
            .collect();
        assert_eq!(unseen, ["federation_run_state"], "it is a word, and no curve");
    }
}
