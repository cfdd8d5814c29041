//! The program as a shell sees it: exit codes, what is printed where.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use models::params::codec;
use models::{Architecture, Array, ParamSet, Precision, write_model};
use shared::data::idx::write_split;
use shared::data::{Dataset, Split};
use shared::identity::SecretKey;
use shared::ticket::{Ticket, TicketSecret};

fn edge_client(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edge-client"))
        .args(arguments)
        .env_remove("RUST_LOG")
        .env_remove("XDG_STATE_HOME")
        .env_remove("HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Fails with this code and one line on standard error that holds all of `parts`.
fn assert_fails(arguments: &[&str], code: i32, parts: &[&str]) {
    let output = edge_client(arguments);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    for part in parts {
        assert!(errors.contains(part), "{arguments:?}: no {part:?} in {errors}");
    }
}

/// A linear model of two classes: the first input speaks for class 0, the last for class 1.
fn linear_model(path: &Path, input: &[usize]) {
    let architecture = Architecture::by_name("linear", input, 2).unwrap();
    let inputs = input.iter().product::<usize>();
    let mut weight = vec![0.0; 2 * inputs];
    (weight[0], weight[2 * inputs - 1]) = (10.0, 10.0);
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::new([2, inputs], weight).unwrap());
    params.insert("head.fc.bias", Array::zeros([2]));
    write_model(&architecture, &params, &BTreeMap::new(), &mut File::create(path).unwrap()).unwrap();
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// 25 test samples of 1x1x2 with labels 0, 1, 0, 1, ..., and a model that is right about all but the last.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let labels: Vec<u8> = (0..25).map(|sample| sample % 2).collect();
        let mut pixels: Vec<u8> = labels.iter().flat_map(|&label| [255 * (1 - label), 255 * label]).collect();
        pixels[48..].copy_from_slice(&[0, 255]);
        let data = Dataset::new(vec![1, 1, 2], pixels, labels, 2).unwrap();
        write_split(folder.0.path(), Split::Test, &data).unwrap();
        linear_model(&folder.path("model.safetensors"), &[1, 1, 2]);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn predict(&self, more: &[&str]) -> String {
        let (model, data) = (self.name("model.safetensors"), self.name(""));
        let arguments = [&["predict", "--model", &model, "--data", &data], more].concat();
        let output = edge_client(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(output.stderr.is_empty());
        text(&output.stdout).to_owned()
    }
}

#[test]
fn a_table_for_people_ends_after_twenty_rows_and_the_accuracy_is_of_all() {
    let folder = Folder::new();
    let table = folder.predict(&[]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 1 + 20 + 2, "{table}");
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["sample", "class", "probability", "label"]);
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["1", "1", "1.0000", "1"]);
    assert!(lines[21].contains("5 more"), "{table}");
    assert_eq!(lines[22], "accuracy 96.00 % (24 of 25 samples)");

    let limited = folder.predict(&["--limit", "3"]);
    assert_eq!(limited.lines().count(), 1 + 3 + 1);
    assert!(limited.ends_with("accuracy 100.00 % (3 of 3 samples)\n"), "{limited}");
    let all = folder.predict(&["--limit", "100"]);
    assert_eq!(all.lines().filter(|line| line.ends_with("wrong")).count(), 1);
    assert_eq!(all.lines().count(), 1 + 25 + 1);
}

#[test]
fn programs_get_one_object_per_line() {
    let folder = Folder::new();
    let objects: Vec<serde_json::Value> =
        folder.predict(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 26);
    let last = &objects[24];
    assert_eq!((&last["event"], &last["sample"]), (&"prediction".into(), &24.into()));
    assert_eq!((&last["class"], &last["label"]), (&1.into(), &0.into()));
    assert!(last["probability"].as_f64().unwrap() > 0.99);
    let accuracy = serde_json::json!({ "event": "accuracy", "samples": 25, "correct": 24, "accuracy": 0.96 });
    assert_eq!(objects[25], accuracy);
}

#[test]
fn each_mistake_about_the_model_or_the_data_is_named() {
    let folder = Folder::new();
    let (model, data) = (folder.name("model.safetensors"), folder.name(""));
    let predict = |model: &str, data: &str, more: &[&str], parts: &[&str]| {
        let arguments = [&["predict", "--model", model, "--data", data], more].concat();
        assert_fails(&arguments, 3, parts);
    };
    let absent = folder.name("absent");
    predict(&absent, &data, &[], &[&absent, "cannot open the model"]);
    fs::write(folder.path("text"), "accuracy,loss\n0.9,0.1\n").unwrap();
    predict(&folder.name("text"), &data, &[], &["text", "not a readable safetensors file"]);
    fs::create_dir(folder.path("empty")).unwrap();
    predict(&folder.name("empty"), &data, &[], &["empty/model.safetensors", "cannot open the model"]);
    let metadata = [("ensemble".to_owned(), "{}".to_owned())].into();
    let mut file = File::create(folder.path("ensemble")).unwrap();
    codec::write(&ParamSet::default(), Precision::F32, &metadata, &mut file).unwrap();
    predict(&folder.name("ensemble"), &data, &[], &["is no ensemble: its `ensemble` cannot be understood"]);
    linear_model(&folder.path("wide"), &[1, 1, 3]);
    predict(&folder.name("wide"), &data, &[], &["1x1x3", "1x1x2"]);

    predict(&model, &absent, &[], &[&absent, "no such directory"]);
    predict(
        &model,
        &data,
        &["--split", "train"],
        &[
            "holds no samples of the train split, but some of the test split; looked for train-images-idx3-ubyte",
            "--split test uses these",
        ],
    );
    let images = folder.path("t10k-images-idx3-ubyte");
    let whole = fs::read(&images).unwrap();
    fs::write(&images, &whole[..whole.len() - 1]).unwrap();
    predict(&model, &data, &[], &["t10k-images-idx3-ubyte", "truncated"]);
    fs::write(&images, &whole).unwrap();
    let three = Dataset::new(vec![1, 1, 2], vec![0; 6], vec![0_u8, 2, 1], 3).unwrap();
    write_split(folder.0.path(), Split::Test, &three).unwrap();
    predict(&model, &data, &[], &["t10k-labels-idx1-ubyte", "label 2"]);
}

#[test]
fn joining_without_data_or_state_says_what_to_mend() {
    let folder = Folder::new();
    let (data, absent) = (folder.name(""), folder.name("absent"));
    let join = |data: &str, more: &[&str], parts: &[&str]| {
        let arguments = [&["join", "127.0.0.1:9", "--data", data], more].concat();
        assert_fails(&arguments, 3, parts);
    };
    let state = folder.name("state");
    join(&absent, &["--state", &state], &[&absent, "no such directory"]);
    join(&data, &["--state", &state], &["train-images-idx3-ubyte"]);
    let train = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
    write_split(folder.0.path(), Split::Train, &train).unwrap();
    join(&data, &["--classes", "1", "--state", &state], &["train-labels-idx1-ubyte", "label 1"]);
    join(&data, &["--shape", "1x2x2", "--classes", "2", "--state", &state], &["1x1x2", "1x2x2 is asked for"]);
    join(&data, &[], &["--state DIR"]);
    let file = folder.name("t10k-labels-idx1-ubyte");
    join(&data, &["--state", &file], &[&file, "in the way"]);
    assert!(!folder.path("state").exists(), "nothing was created before the data was read");

    fs::create_dir(folder.path("state")).unwrap();
    fs::write(folder.path("state/server"), "ff").unwrap();
    join(&data, &["--state", &state], &["server", "join with a new ticket"]);
    let used = edge_client::store::DiskStore::open(&folder.path("state")).unwrap();
    join(&data, &["--state", &state], &["in use by another process"]);
    drop(used);
    // Another one: a process that another test is starting this moment may hold a copy of the lock a little longer.
    fs::create_dir(folder.path("damaged")).unwrap();
    fs::write(folder.path("damaged/identity"), "?").unwrap();
    join(&data, &["--state", &folder.name("damaged")], &["identity", "damaged"]);
}

/// Starts a client whose server never answers and sends it a signal; returns the signal that ended it and the events' names.
#[cfg(unix)]
fn stopped_by(signal: &str) -> (Option<i32>, Vec<String>) {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    let folder = Folder::new();
    let train = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
    write_split(folder.0.path(), Split::Train, &train).unwrap();
    // Bound and never read: packets to it vanish.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut client = Command::new(env!("CARGO_BIN_EXE_edge-client"))
        .args(["join", &address, "--json", "--threads", "1"])
        .args([Path::new("--data"), &folder.path(""), Path::new("--state"), &folder.path("state")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut events = vec![lines.next().unwrap().unwrap()];
    let kill = Command::new("kill").args([signal, &client.id().to_string()]).status().unwrap();
    assert!(kill.success());
    events.extend(lines.map(Result::unwrap));
    let name = |line: &String| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        object["event"].as_str().unwrap().to_owned()
    };
    (client.wait().unwrap().signal(), events.iter().map(name).collect())
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_sigterm_end_the_process_once_all_is_safe() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let (ended, events) = stopped_by(signal);
        assert_eq!(ended, Some(number), "{signal}: {events:?}");
        assert_eq!(events, ["started", "connecting", "stopping", "stopped"], "{signal}");
    }
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    for arguments in [&[][..], &["join"], &["predict", "--model", "m"], &["leave"]] {
        let output = edge_client(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    for arguments in [&["--help"][..], &["--version"], &["join", "--help"]] {
        let output = edge_client(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}

#[test]
fn completions_and_the_manual_are_generated() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = edge_client(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("server-key"), "{shell}");
    }
    let manual = edge_client(&["man"]);
    assert_eq!(manual.status.code(), Some(0));
    assert!(text(&manual.stdout).contains("Exit codes"));
}

/// A terminal for the program, as `script` of util-linux makes one: all that it writes there until it is interrupted.
#[cfg(target_os = "linux")]
fn on_a_terminal(arguments: &str, until: &str) -> Option<String> {
    use std::io::Read as _;
    let command = format!("{} {arguments} & echo pid $!; wait", env!("CARGO_BIN_EXE_edge-client"));
    let mut terminal = Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let (mut out, mut seen, mut chunk) = (terminal.stdout.take().unwrap(), String::new(), [0; 4096]);
    let mut interrupted = false;
    loop {
        let read = out.read(&mut chunk).unwrap();
        if read == 0 {
            let ended = terminal.wait().unwrap();
            // Not even the command was started where the system has no terminals to give.
            return (ended.success() || seen.contains("pid ")).then_some(seen);
        }
        seen.push_str(&String::from_utf8_lossy(&chunk[..read]));
        let pid = seen.split_once("pid ").and_then(|(_, rest)| rest.split_once('\r'));
        let far_enough = seen.contains(until) || seen.contains("trying again");
        if let (Some((pid, _)), true, false) = (pid, far_enough, interrupted) {
            let status = Command::new("kill").args(["-TERM", pid]).status().unwrap();
            assert!(status.success());
            interrupted = true;
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_what_the_client_does_in_a_line_that_is_written_over() {
    let folder = Folder::new();
    let train = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
    write_split(folder.0.path(), Split::Train, &train).unwrap();
    let arguments = format!("join 127.0.0.1:9 --data {} --state {}", folder.name(""), folder.name("state"));
    let Some(seen) = on_a_terminal(&arguments, "connecting to") else {
        println!("skipped: no program `script`, or it gives no terminal");
        return;
    };
    assert!(seen.contains("\r\u{1b}[K\u{1b}[?7lconnecting to 127.0.0.1:9\u{1b}[?7h"), "{seen:?}");
    // The time of day stands before it.
    let stopped =
        seen.split("\r\u{1b}[K").find(|line| line.ends_with(" stopped; the same command joins again\r\n"));
    let clock = stopped.and_then(|line| line.get(..8)).unwrap_or_else(|| panic!("{seen:?}"));
    assert!(
        clock.bytes().enumerate().all(|(at, c)| if at % 3 == 2 { c == b':' } else { c.is_ascii_digit() }),
        "{clock}"
    );
    // Where there is none, lines have their whole time instead.
    let mut client = Command::new(env!("CARGO_BIN_EXE_edge-client"))
        .args(arguments.split(' '))
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(client.stderr.take().unwrap()));
    let _started = lines.next().unwrap().unwrap();
    let line = lines.next().unwrap().unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    let (time, said) = line.split_once(' ').unwrap();
    assert_eq!(said, "connecting to 127.0.0.1:9");
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 20, "{time}");
}

#[test]
fn the_doctor_says_what_keeps_a_device_from_taking_part() {
    let folder = tempfile::tempdir().unwrap();
    let (state, data) = (folder.path().join("state"), folder.path().join("data"));
    fs::create_dir(&data).unwrap();
    let names = [state.to_str().unwrap(), data.to_str().unwrap()];
    let doctor = |more: &[&str]| edge_client(&[&["doctor", "--state", names[0]], more].concat());

    let output = doctor(&["--json", "--data", names[1]]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("keeps this device from taking part"));
    let findings: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |subject: &str| findings.iter().rfind(|finding| finding["subject"] == subject).unwrap();
    assert_eq!(of("data")["level"], "problem");
    assert!(of("data")["advice"].as_str().unwrap().contains("--help lists the formats"));
    assert_ne!(of("disk")["level"], "problem", "{findings:?}");
    assert!(!state.exists(), "nothing is changed");

    for (given, environment) in [(&["--state", names[1]][..], None), (&[], Some("relative"))] {
        fs::write(data.join("identity"), "?").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_edge-client"))
            .args(["doctor", "--json"])
            .args(given)
            .env("HOME", environment.unwrap_or("/"))
            .env_remove("XDG_STATE_HOME")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let mut problems = said.lines().filter(|line| line.contains("\"problem\""));
        assert!(problems.any(|problem| problem.contains("\"state\"")), "{said}");
        assert!(said.contains("\"clock\""), "all else is told as well: {said}");
        fs::remove_file(data.join("identity")).unwrap();
    }

    fs::write(data.join("train.csv"), "a,label\n1,0\n2,1\n").unwrap();
    let output = doctor(&["--data", names[1], "--classes", "2", "--json"]);
    let findings: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let data: Vec<_> = findings.iter().filter(|finding| finding["subject"] == "data").collect();
    assert!(data.iter().all(|finding| finding["level"] == "ok"), "{data:?}");
    assert!(data.iter().any(|finding| finding["found"].as_str().unwrap().contains("2 samples of shape 1")));
    // One that this runs on can take part, unless it is this very moment too hot or too full for it.
    let problems: Vec<_> = findings.iter().filter(|finding| finding["level"] == "problem").collect();
    assert_eq!(output.status.code(), Some(if problems.is_empty() { 0 } else { 3 }), "{problems:?}");
    let passing = ["memory", "disk", "temperature", "battery"];
    assert!(
        problems.iter().all(|problem| passing.contains(&problem["subject"].as_str().unwrap())),
        "{problems:?}"
    );
    assert!(text(&doctor(&[]).stdout).contains("the samples (--data DIR)"));
}

/// A ticket of a server that listens at this address.
fn ticket(address: &str) -> String {
    let server = SecretKey::from_bytes([7; 32]).public();
    let secret = TicketSecret::from_bytes([9; 16]);
    Ticket { server, secret, addresses: vec![address.to_owned()] }.to_string()
}

#[test]
fn the_doctor_takes_a_ticket_as_joining_does() {
    let folder = tempfile::tempdir().unwrap();
    let (state, file) = (folder.path().join("state"), folder.path().join("ticket"));
    let (state, name) = (state.to_str().unwrap(), file.to_str().unwrap());
    // No server can be reached there, which is found out at once.
    let text_of_it = ticket("127.0.0.1:0");
    fs::write(&file, format!("{text_of_it}\n")).unwrap();
    for given in [&["--ticket-file", name][..], &[&text_of_it], &["--", &text_of_it]] {
        let output = edge_client(&[&["doctor", "--state", state, "--json"], given].concat());
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        let server = text(&output.stdout).lines().find(|line| line.contains("\"server\"")).unwrap();
        assert!(server.contains("cannot reach 127.0.0.1:0: "), "{server}");
        assert!(!server.contains("127.0.0.1:0: 127.0.0.1:0"), "it is said once: {server}");
        assert!(!Path::new(state).exists(), "nothing is changed");
    }
    fs::write(&file, &text_of_it[..text_of_it.len() - 1]).unwrap();
    assert_fails(&["doctor", "--ticket-file", name], 2, &["is no ticket", "mistyped or not whole"]);
    assert_fails(&["doctor", &text_of_it[..40]], 2, &["mistyped or not whole"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_ticket_given_to_the_doctor_does_not_stay_in_the_list_of_processes() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let text = ticket(&silent.local_addr().unwrap().to_string());
    let folder = tempfile::tempdir().unwrap();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_edge-client"))
        .args(["doctor", &text, "--state", "absent", "--json"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let list = format!("/proc/{}/cmdline", doctor.id());
    // While it starts anew the list is empty, or breaks off anywhere (a file of /proc is read in pieces); once it has ended it is
    // empty for good, and that takes a while where no server answers.
    while !fs::read_to_string(&list).unwrap().contains("--ticket-file\0-") {
        assert!(
            doctor.try_wait().unwrap().is_none(),
            "it has ended, and was not seen taking its ticket elsewhere"
        );
    }
    let anew = fs::read_to_string(&list).unwrap();
    assert!(!anew.contains(&text), "{anew:?}");
    doctor.kill().unwrap();
    doctor.wait().unwrap();
}
