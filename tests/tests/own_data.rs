//! The user's own data, from the folder to the answers, in the commands of the README.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use federation_tests::process::{INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;

/// Two colours, told apart at once.
fn photos(folder: &Path) {
    for (split, count) in [("train", 12_u8), ("test", 4)] {
        for (class, colour) in [("blue", [20, 20, 200]), ("red", [200, 20, 20])] {
            let place = folder.join(split).join(class);
            fs::create_dir_all(&place).unwrap();
            for at in 0..count {
                let colour = image::Rgb(colour.map(|value: u8| value + 3 * at));
                let image = image::RgbImage::from_pixel(40 + u32::from(at), 40, colour);
                image.save(place.join(format!("{at}.png"))).unwrap();
            }
        }
    }
    fs::write(folder.join("train/red/Thumbs.db"), "x").unwrap();
}

#[test]
fn from_a_folder_of_images_to_answers() {
    let testbed = Testbed::new(1, &[]);
    let at = |name: &str| testbed.name(name);
    photos(&testbed.path("photos"));
    let (aggregator, client) = (&programs().aggregator, &programs().edge_client);
    let succeeds = |program: &Path, arguments: &[&str]| {
        let ended = run(program, arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.text);
        ended.text
    };
    let (config, runs) = (at("photos.toml"), at("runs"));
    let found = succeeds(aggregator, &["init", &at("photos"), "--out", &config]);
    for part in ["24 samples of shape 3x32x32", "classes blue, red", "aggregator simulate"] {
        assert!(found.contains(part), "{found}");
    }
    let refused = run(aggregator, &["init", &at("photos"), "--out", &config]);
    assert!(refused.code == Some(3) && refused.text.contains("--force"), "{}", refused.text);
    let set = ["--set", "run.rounds=6", "--set", "model.name=linear", "--set", "data.clients=2"];
    succeeds(aggregator, &[&["simulate", &config, "--runs", &runs], &set[..]].concat());
    let model = at("runs/photos");
    let tested = succeeds(aggregator, &["evaluate", "--model", &model]);
    assert!(tested.contains("(8 of 8)") && tested.contains("samples of each class"), "{tested}");

    // For other programs.
    let said =
        succeeds(aggregator, &["export", "--model", &model, "--to", "torch", "--out", &at("exported")]);
    assert!(said.contains("network.py") && said.contains("network.safetensors"), "{said}");
    let source = fs::read_to_string(testbed.path("exported/network.py")).unwrap();
    assert!(source.contains("CLASSES = (\"blue\", \"red\")\n"), "{source}");

    // A flat folder of images, one image and standard input, without labels.
    fs::create_dir(testbed.path("flat")).unwrap();
    fs::copy(testbed.path("photos/test/red/1.png"), testbed.path("flat/holiday.png")).unwrap();
    fs::write(testbed.path("flat/readme.txt"), "notes").unwrap();
    for program in [aggregator, client] {
        for place in ["flat", "flat/holiday.png"] {
            let said = succeeds(program, &["predict", "--model", &model, "--data", &at(place), "--json"]);
            assert!(said.contains("holiday.png") && said.contains("\"name\":\"red\""), "{said}");
            assert!(!said.contains("accuracy"), "{said}");
        }
    }
    let mut piped = Command::new(client);
    piped.args(["predict", "--model", &model, "--data", "-", "--csv"]);
    piped.stdin(fs::File::open(testbed.path("photos/test/blue/0.png")).unwrap());
    let said = String::from_utf8(piped.output().unwrap().stdout).unwrap();
    assert!(said.starts_with("sample,file,class,name,probability\n0,-,0,blue,"), "{said}");

    // A model that stays loaded.
    let socket = at("socket");
    let mut serving = Command::new(client);
    serving.args(["predict", "--model", &model, "--listen", &format!("unix:{socket}")]);
    let serving = Process::start("edge-client", &mut serving);
    until("the socket", || UnixStream::connect(&socket).is_ok());
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"{\"id\": 1, \"values\": [0.5]}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    assert!(answer.contains("the model takes 3072 values, of shape 3x32x32"), "{answer}");
    serving.interrupt();
    assert_eq!(serving.wait().code, Some(INTERRUPTED));
    assert!(!testbed.path("socket").exists());
}

#[test]
fn a_device_needs_no_options_for_its_own_table() {
    let testbed = Testbed::new(1, &[]);
    let folder = testbed.path("table");
    fs::create_dir(&folder).unwrap();
    let rows: String =
        (0..20).map(|row| format!("{},0.{row},1.5\n", if row % 2 == 0 { "oak" } else { "elm" })).collect();
    fs::write(folder.join("train.csv"), format!("kind,width,height\n{rows}")).unwrap();
    let data = folder.display().to_string();
    let config = format!(
        "data.set = \"csv\"\ndata.path = {data:?}\ndata.clients = 1\ndata.shape = \"2\"\ndata.label = \"kind\"\n\
         data.class-names = [\"oak\", \"elm\"]\nmodel.name = \"linear\"\nevaluate.every = 0\nrun.rounds = 2\n"
    );
    fs::write(testbed.path("run.toml"), config).unwrap();
    let server = testbed.serve();
    let (address, state) = (testbed.address(), testbed.name("state"));
    let joined = run(&programs().edge_client, &["join", &address, "--data", &data, "--state", &state]);
    assert_eq!(joined.code, Some(0), "{}", joined.text);
    assert!(joined.text.contains("20 training samples of shape 2 from a CSV table"), "{}", joined.text);
    assert_eq!(server.wait().code, Some(0));
}
