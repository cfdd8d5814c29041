//! What the command line accepts, and what its help says.

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Arguments::try_parse_from(std::iter::once("edge-client").chain(line.split(' '))).map(|all| all.command)
}

fn join(line: &str) -> JoinArguments {
    match parse(line).unwrap() {
        Command::Join(join) => join,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn joining_needs_data() {
    let plain = join("join 127.0.0.1:4433 --data d");
    assert_eq!(plain.server, Some(Target::Addresses(vec!["127.0.0.1:4433".to_owned()])));
    assert!(!plain.json);
    assert_eq!((plain.reading.classes, plain.reading.shape, plain.samples.label), (None, None, None));
    assert_eq!((plain.state.state, plain.server_key, plain.threads), (None, None, None));
    let several = ["lab:1", "[::1]:2", "192.0.2.7:3"].map(str::to_owned).into();
    assert_eq!(join("join lab:1,[::1]:2,192.0.2.7:3 --data d").server, Some(Target::Addresses(several)));
    let hex = "0f".repeat(32);
    let full = join(&format!(
        "join [::1]:1 --data d --state s --server-key {hex} --threads 2 --classes 256 --json -vv"
    ));
    assert_eq!(full.server_key, Some(PublicKey::from_bytes([0x0f; 32])));
    assert_eq!(join("join --data d").server, None);
    assert_eq!((full.threads.map(NonZeroUsize::get), full.json), (Some(2), true));
    assert_eq!(full.reading.classes, Some(Labels::Numbers(256)));
    for line in [
        "join --data d --ticket-file f h:1",
        "doctor --ticket-file f h:1",
        "join h:1",
        "predict --model m",
        "predict --data d",
        "join h:1 --data d x",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn values_that_make_no_sense_are_refused_with_the_reason() {
    let too_many = format!("join {} --data d", ["lab:1"; 65].join(","));
    for (line, reason) in [
        ("join lab --data d", "the port is missing"),
        ("join :1 --data d", "the host is missing"),
        ("join ::1:1 --data d", "in brackets"),
        ("join lab:1,other --data d", "the port is missing"),
        ("join lab:1, --data d", "the port is missing"),
        (&too_many, "at most 64 addresses"),
        ("join lab:0 --data d", "a number from 1 to 65535"),
        ("join lab:65536 --data d", "a number from 1 to 65535"),
        ("join lab:1 --data d --server-key 0f", "64 hexadecimal digits"),
        ("join http://lab:4433 --data d", "leave http:// out and give HOST:PORT, as in lab:4433"),
        ("join https://lab/x --data d", "leave https:// out"),
        ("join quic:// --data d", "as in lab.example:4433"),
        ("join lab:1/x --data d", "an address has no path"),
        ("join lab:1 --data d --threads 0", "at least 1, or leave it out"),
        ("join lab:1 --data d --threads all", "at least 1, or leave it out"),
        ("join lab:1 --data d --classes 65537", "from 1 to 65536"),
        ("join lab:1 --data d --on-error ignore", "possible values: stop, skip"),
        ("join lab:1 --data d --shape 3x", "as in 1x28x28"),
        ("join lab:1 --data d --classes 0", "0"),
        ("join lab:1 --data d --unlabelled --classes 3", "cannot be used with"),
        ("predict --model m --data d --split all", "possible values: train, test"),
        ("predict --model m --data d --limit 0", "at least 1, or leave it out"),
        ("predict --model m --data d --limit -1", "at least 1, or leave it out"),
        ("join lab:1 --data d --threads -1", "at least 1, or leave it out"),
        ("join lab:1 --data d --classes -1", "from 1 to 65536"),
        ("bench --batch -1", "at least 1"),
        ("bench --seconds -1", "from 0.001 to 3600"),
        ("predict --model m --personal --data d", "cannot be used with"),
        ("predict --model m --gate --data d", "cannot be used with"),
        ("evaluate --data d --run 12", "run"),
        ("completions powerhell", "powershell"),
    ] {
        let error = parse(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(reason), "{line}: {error}");
    }
}

#[test]
fn the_long_help_says_what_one_has_to_know() {
    let help = parse("--help").unwrap_err();
    assert_eq!(help.kind(), ErrorKind::DisplayHelp);
    assert_eq!(help.exit_code(), 0);
    let text = help.to_string();
    for part in ["A typical session", "Exit codes", ".local/state/edge-client", "never leave the device"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    for command in ["", "join ", "predict ", "evaluate ", "doctor "] {
        let text = parse(&format!("{command}--help")).unwrap_err().to_string();
        for format in ["IDX", "CIFAR", "images", "CSV", "safetensors", "text"] {
            let said = text.lines().any(|line| line.trim_start().starts_with(&format!("{format}   ")));
            assert!(said, "{command}: {format}\n{text}");
        }
    }
}

#[test]
fn state_lies_where_the_specification_says() {
    let default = |state: Option<&str>, home: Option<&str>| {
        default_state(state.map(OsString::from), home.map(OsString::from)).map_err(|error| error.exit())
    };
    assert_eq!(default(Some("/s"), Some("/h")), Ok("/s/edge-client".into()));
    assert_eq!(default(None, Some("/h")), Ok("/h/.local/state/edge-client".into()));
    assert_eq!(default(Some("s"), Some("/h")), Ok("/h/.local/state/edge-client".into()));
    assert_eq!(default(Some(""), None), Err(Exit::Local));
    assert_eq!(default(None, None), Err(Exit::Local));
}

#[test]
fn there_is_a_page_for_every_command_with_the_exit_codes_in_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("a/man1");
    let pages = |folder: &std::path::Path| {
        Manual::Man { out: Some(folder.to_path_buf()) }.run(Arguments::command()).map_err(CliError::from)
    };
    pages(&man).unwrap();
    for command in ["", "-join", "-predict", "-completions", "-man"] {
        let page = std::fs::read_to_string(man.join(format!("edge-client{command}.1"))).unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(title.contains(&format!("\"edge-client {}\"", env!("CARGO_PKG_VERSION"))), "{title}");
    }
    let main = std::fs::read_to_string(man.join("edge-client.1")).unwrap();
    assert!(main.contains("Exit codes"), "{main}");
    // A directory that cannot be made is for the user to repair.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = pages(&file.join("man1")).unwrap_err();
    assert_eq!(error.exit(), Exit::Local);
    assert!(error.to_string().starts_with("cannot write the manual pages to"), "{error}");
}
