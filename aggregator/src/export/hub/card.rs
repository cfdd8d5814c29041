//! The card: what people want to know before they use a model.

use std::fmt::Write as _;

use models::Task;
use models::shape::spelled;
use shared::cli::measure_text;

use super::super::onnx::outputs_in_words;
use super::super::samples::Kind;
use super::{Model, Tested, Training};
use crate::report::units::{bytes, counted, grouped};

/// The card, in Markdown with the header that the hub reads.
pub(super) fn card(model: &Model<'_>, parameters: usize, has_onnx: bool) -> String {
    let mut text = header(model);
    let title = model.training.map_or(&model.architecture.name, |training| &training.run);
    let _ = writeln!(text, "# {title}\n");
    let _ = writeln!(text, "{}\n", summary(model, parameters));
    if let Some(training) = model.training {
        text.push_str(&trained(model, training));
        text.push_str(&results(model, training));
    }
    text.push_str(&usage(model, has_onnx));
    text.push_str(LIMITS);
    text
}

const LIMITS: &str = "\
## Limits

The figures are those of one run on one test set. What the model does on other data, and whether its errors fall on some people more
than on others, was not examined. A model can give away something of the samples that it was trained on: that they have not left their
devices does not make it anonymous.
";

/// What the hub's programs read: YAML, whose strings are written as those of JSON, which it contains.
fn header(model: &Model<'_>) -> String {
    let task = task(model);
    let mut text = String::from("---\n");
    if let Some(licence) = model.licence {
        let _ = writeln!(text, "license: {}", quoted(licence));
    }
    text.push_str("tags:\n- federated-learning\n- safetensors\n");
    if let Some(training) = model.training {
        let _ = writeln!(text, "- {}", quoted(&training.algorithm));
    }
    let _ = writeln!(text, "pipeline_tag: {task}");
    if let Some((training, tested)) = model.training.and_then(|of| Some((of, of.tested.as_ref()?))) {
        let (run, data) = (quoted(&training.run), quoted(&training.data));
        let _ = write!(
            text,
            "model-index:\n- name: {run}\n  results:\n  - task:\n      type: {task}\n    dataset:\n      name: {data}\n      \
             type: {data}\n    metrics:\n"
        );
        let figures = [("accuracy", tested.accuracy), ("loss", tested.loss)];
        let figures = figures.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let measures = tested.measures.iter().map(|&(measure, value)| (measure.name(), value));
        for (name, value) in figures.chain(measures) {
            let _ = writeln!(text, "    - type: {name}\n      value: {value}");
        }
    }
    text + "---\n\n"
}

/// The hub's name of what the model does.
fn task(model: &Model<'_>) -> &'static str {
    let is_regression = matches!(model.architecture.task, Task::Regression { .. });
    match model.kind() {
        Kind::Table if is_regression => "tabular-regression",
        _ if is_regression => "other",
        Kind::Image => "image-classification",
        Kind::Table => "tabular-classification",
        Kind::Bytes => "text-classification",
        Kind::Tokens if model.architecture.predictions() == Ok(1) => "text-classification",
        Kind::Text | Kind::Tokens => "text-generation",
        Kind::Array => "other",
    }
}

fn summary(model: &Model<'_>, parameters: usize) -> String {
    let architecture = model.architecture;
    let shape = model.samples.map_or(&architecture.input, |samples| &samples.shape);
    let takes = match model.kind() {
        Kind::Image => format!("images of shape {} (channels, height, width)", spelled(shape)),
        Kind::Table => format!("rows of {}", counted(shape.iter().product(), "number")),
        Kind::Text => format!("texts, {} at a time", counted(shape.iter().product(), "character")),
        Kind::Bytes => format!("texts, of which the first {} count", counted(shape.iter().product(), "byte")),
        Kind::Tokens => format!("{} at a time", counted(shape.iter().product(), "token")),
        Kind::Array => format!("arrays of shape {}", spelled(shape)),
    };
    let names = model.class_names();
    let count = grouped(architecture.classes);
    let (does, what) = match architecture.task {
        Task::Classification => ("tells", format!("{count} classes apart")),
        Task::MultiLabel => ("tells which apply of", counted(architecture.classes, "class")),
        Task::Regression { .. } => ("predicts", counted(architecture.classes, "number")),
    };
    let classes = if names.is_empty() || names.len() > MOST_NAMED {
        what
    } else {
        let named: Vec<String> = names.iter().map(|name| plain(name)).collect();
        format!("{what}: {}", named.join(", "))
    };
    format!(
        "A `{}` of {} parameters, trained by federated learning. It takes {takes}, and {does} {classes}.",
        architecture.name,
        grouped(parameters)
    )
}

/// More classes than this are not named one by one.
const MOST_NAMED: usize = 20;

fn trained(model: &Model<'_>, training: &Training) -> String {
    let clients = &training.clients;
    let kind = if clients.simulated { "simulated client" } else { "device" };
    let mut rows = vec![
        ("algorithm", format!("`{}`", training.algorithm)),
        ("data", plain(&training.data)),
        ("clients", counted(clients.count as usize, kind)),
    ];
    if let Some(samples) = &clients.samples {
        let all = counted(samples.iter().sum(), "training sample");
        let each = samples.iter().enumerate();
        let each = each.map(|(class, &count)| format!("{} {}", class_name(model, class), grouped(count)));
        let by_class = if samples.len() > MOST_NAMED || !model.architecture.task.is_classification() {
            String::new()
        } else {
            format!(": {}", each.collect::<Vec<_>>().join(", "))
        };
        rows.push(("samples", all + &by_class));
    }
    rows.push(("round", training.round.to_string()));
    if let Some((updates, sent)) = training.sent {
        rows.extend([("updates that counted", grouped(updates)), ("sent by clients", bytes(sent))]);
    }
    rows.extend(training.begun.iter().map(|begun| ("begun", plain(begun))));
    rows.extend(training.version.iter().map(|version| ("aggregator", plain(version))));
    let mut text = String::from(
        "## Training\n\nSamples stayed with the clients; what they sent are changes of parameters.\n\n| | |\n|---|---|\n",
    );
    for (name, value) in rows {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    if let Some(devices) = training.hidden_among {
        let _ = write!(
            text,
            "\nSecure aggregation: the server has learned sums of the updates of at least {devices} {kind}s, and no single update.\n"
        );
    }
    if let Some(privacy) = &training.privacy {
        let _ = write!(text, "\nDifferential privacy of {kind}s: {}.\n", plain(privacy));
    }
    if !training.changed.is_empty() {
        text.push_str("\nSettings that differ from the defaults:\n\n| key | value |\n|---|---|\n");
        for (key, value) in &training.changed {
            let _ = writeln!(text, "| `{key}` | {} |", plain(value));
        }
    }
    text + "\n"
}

fn results(model: &Model<'_>, training: &Training) -> String {
    let Some(tested) = &training.tested else {
        return "## Results\n\nThe model was not tested on a test set of the server.\n\n".to_owned();
    };
    let Tested { accuracy, loss, measures, by_class } = tested;
    let on = by_class
        .as_ref()
        .map_or_else(String::new, |(evaluation, _)| format!(" ({})", counted(evaluation.samples, "sample")));
    let named = match model.architecture.task {
        Task::Classification => ("cross-entropy", " nats"),
        Task::MultiLabel => ("binary cross-entropy", " nats"),
        Task::Regression { huber: None } => ("mean squared error", ""),
        Task::Regression { huber: Some(_) } => ("Huber's loss", ""),
    };
    let share = accuracy.map(|share| format!("accuracy {:.2} %", 100.0 * share));
    let loss = loss.map(|loss| format!("{} {loss:.4}{}", named.0, named.1));
    let measures = measures.iter().map(|&(measure, value)| measure_text(measure, value));
    let figures: Vec<String> = share.into_iter().chain(loss).chain(measures).collect();
    let mut text = format!("## Results\n\nOn the server's test set{on}: {}.\n\n", figures.join(", "));
    if let Some((_, found)) = by_class {
        let _ = write!(
            text,
            "Balanced accuracy {:.2} %, expected calibration error {:.2} %.\n\n| class | samples | precision | recall | F1 |\n|---|--:|--:|--:|--:|\n",
            100.0 * found.balanced_accuracy(),
            100.0 * found.calibration_error()
        );
        let share = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.1} %", 100.0 * value))
        };
        for class in 0..found.classes() {
            let of = found.class(class);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                class_name(model, class),
                grouped(of.samples as usize),
                share(of.precision()),
                share(of.recall()),
                share(of.f1())
            );
        }
        text.push('\n');
    }
    text
}

fn usage(model: &Model<'_>, has_onnx: bool) -> String {
    let question = match model.kind() {
        Kind::Image => "--data IMAGE.png",
        Kind::Table | Kind::Bytes => "--data TABLE.csv",
        Kind::Text => "--text \"To be or not to b\"",
        Kind::Tokens | Kind::Array => "--data FOLDER",
    };
    let program = if model.kind() == Kind::Text { "edge-client" } else { "aggregator" };
    let mut text = format!(
        "## Use\n\n```sh\n{program} predict --model . {question}\naggregator export --model . --to torch --out exported\naggregator serve run.toml --from .\n```\n\n"
    );
    text.push_str("`model.safetensors` has the parameters by their names, `config.json` the layers, the names of the classes and the preparation of samples.\n");
    if has_onnx {
        text.push_str("`onnx/model.onnx` is the same model for runtimes of ONNX: from samples as they are, with crop and normalisation inside, to ");
        text.push_str(&outputs_in_words(model.architecture.task));
        text.push_str(".\n");
    }
    text + "\n"
}

/// What a class is called, or else its number.
fn class_name(model: &Model<'_>, class: usize) -> String {
    model.class_names().get(class).map_or_else(|| class.to_string(), |name| plain(name))
}

/// A string of YAML.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is JSON")
}

/// Text that is no Markdown and no HTML, in one line of a table.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        match character {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => plain.extend(['\\', character]),
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            character if character.is_control() => plain.push(' '),
            character => plain.push(character),
        }
    }
    plain
}
