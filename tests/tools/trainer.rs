//! `federation-lab trainer`: a trainer as users write them, which can also do everything wrong that one can do wrong.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use models::{Array, ParamSet, Precision, codec};
use serde_json::{Value, json};

/// A trainer for `edge-client join --trainer` and `simulation.trainer`, for tests: it moves each value of the model towards the number of
/// its client
#[derive(Args)]
pub(crate) struct Arguments {
    /// The client that it trains for, where the one who asks does not say
    #[arg(long, default_value_t = 0)]
    client: u64,
    /// What it does wrong
    #[arg(long, value_enum)]
    fault: Option<Fault>,
    /// Finish no update before this file is there
    #[arg(long)]
    until: Option<PathBuf>,
    /// In which round
    #[arg(long, default_value_t = 2)]
    round: u64,
    /// Write the initial model to this file, and end
    #[arg(long)]
    init: Option<String>,
}

/// What a trainer does wrong.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// It ends.
    Ends,
    /// It kills itself.
    Dies,
    /// It says nothing any more.
    Hangs,
    /// It writes values that are no numbers.
    Nan,
    /// It writes a tensor of another shape.
    Shape,
    /// It writes a tensor that the model does not have.
    More,
    /// It writes to its standard output what is no answer.
    Garbage,
    /// It writes a line without end.
    Floods,
    /// It says that it cannot.
    Fails,
}

pub(crate) fn run(arguments: &Arguments) {
    if let Some(path) = &arguments.init {
        let mut model = ParamSet::new();
        model.insert("layer.weight", Array::new([2, 3], vec![0.5; 6]).expect("six values"));
        model.insert("layer.running_mean", Array::zeros([3]));
        model.insert("scale", Array::new([0; 0], vec![1.0]).expect("a value"));
        return write(Path::new(path), &model);
    }
    loop {
        let mut line = String::new();
        if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let request: Value = serde_json::from_str(&line).expect("a request is JSON");
        let (kind, content) =
            request.as_object().and_then(|request| request.iter().next()).expect("one request");
        let client = content["client"].as_u64().unwrap_or(arguments.client);
        let samples = 10 * (client + 1);
        match kind.as_str() {
            "describe" => say(&json!({ "described": { "samples": samples } })),
            "train" => {
                let is_round = content["round"] == arguments.round;
                if let Some(file) = arguments.until.as_ref().filter(|_| is_round) {
                    wait_for(file);
                }
                train(content, client, arguments.fault.filter(|_| is_round));
            }
            "test" => {
                let model = read(content["model"].as_str().unwrap_or_default());
                let sum: f32 = model.iter().flat_map(|(_, array)| array.values()).sum();
                say(&json!({ "tested": { "samples": samples, "loss": sum, "accuracy": 0.5 } }));
            }
            _ => {}
        }
    }
}

/// Says that it gets on until the file is there, or its client is not there any more.
fn wait_for(file: &Path) {
    let alive = format!("{}\n", json!({ "progress": { "done": 0, "total": 1 } }));
    while !file.exists() {
        if print(&alive).is_err() {
            std::process::exit(1);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn train(content: &Value, client: u64, fault: Option<Fault>) {
    let mut model = read(content["model"].as_str().unwrap_or_default());
    match fault {
        Some(Fault::Ends) => {
            eprintln!("the card was pulled out");
            std::process::exit(3);
        }
        Some(Fault::Dies) => {
            let own = std::process::id().to_string();
            let killed = Command::new("kill").args(["-9", &own]).status();
            unreachable!("nothing survives this signal: {killed:?}");
        }
        Some(Fault::Hangs) => {
            // Until its client has ended.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            return;
        }
        Some(Fault::Garbage) => return print_all("Epoch 1: loss 0.3\n"),
        Some(Fault::Floods) => return print_all(&"x".repeat(1 << 20)),
        Some(Fault::Fails) => return say(&json!({ "failed": { "reason": "the camera is covered" } })),
        Some(Fault::Nan) => drop(model.insert("scale", Array::new([0; 0], vec![f32::NAN]).expect("a value"))),
        Some(Fault::Shape) => drop(model.insert("layer.weight", Array::zeros([3, 2]))),
        Some(Fault::More) => drop(model.insert("layer.bias", Array::zeros([2]))),
        None => {}
    }
    let rate = content["learning_rate"].as_f64().unwrap_or_default() as f32;
    let epochs = content["training"]["epochs"].as_u64().unwrap_or_default();
    for epoch in 0..epochs {
        let names: Vec<String> = model.names().map(str::to_owned).collect();
        for name in names {
            let mut array = model.remove(&name).expect("it is there");
            array.values_mut().iter_mut().for_each(|value| *value += rate * (client as f32 - *value));
            model.insert(name, array);
        }
        say(&json!({ "progress": { "done": epoch + 1, "total": epochs } }));
    }
    write(Path::new(content["out"].as_str().unwrap_or_default()), &model);
    say(
        &json!({ "finished": { "loss": 1.0 / (client + 1) as f64, "steps": epochs, "metrics": { "accuracy": 0.25 } } }),
    );
}

fn read(path: &str) -> ParamSet {
    let bytes = fs::read(path).expect("the model's file");
    codec::read(&mut &bytes[..], models::Limits::default()).expect("a model").0
}

fn write(path: &Path, model: &ParamSet) {
    let bytes = codec::to_bytes(model, Precision::F32, &BTreeMap::new()).expect("no metadata");
    fs::write(path, bytes).expect("written");
}

fn say(answer: &Value) {
    print_all(&format!("{answer}\n"));
}

/// The client may have ended, which ends this process next.
fn print_all(text: &str) {
    let _ = print(text);
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}
