//! The live page with other people's programs beside it: Prometheus, its checker, and nginx with TLS in front.
//!
//! They are looked for in the path, and where `.ci/run` puts those of Debian.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use federation_tests::http;
use federation_tests::process::{PATIENCE, Process, run, until};
use federation_tests::programs::simulate;
use federation_tests::testbed::free_port;
use federation_tests::visitor::Visitor;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A program of another package; says so where it is not there.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = Path::new(ROOT).join("target/tools/debian/usr");
    let places =
        std::env::split_paths(&path).chain([unpacked.join("bin"), unpacked.join("sbin"), "/usr/sbin".into()]);
    let found = places.map(|place| place.join(name)).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("not tested: {name} is not installed");
    }
    found
}

/// A folder with a run of three rounds.
fn simulated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sets =
        ["run.name=first", "model.name=linear", "data.clients=2", "data.max-samples=200", "run.rounds=3"];
    simulate(&folder.path().join("runs"), &sets);
    folder
}

/// What a program that checks its standard input says; it must be content.
fn is_content(program: &Path, arguments: &[&str], input: &str) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn prometheus_takes_the_figures_and_knows_the_rules_and_the_panels() {
    let (Some(prometheus), Some(promtool)) = (program("prometheus"), program("promtool")) else { return };
    let folder = simulated();
    let visitor = Visitor::of_page(&["--runs", &folder.path().join("runs").display().to_string()]);
    let rules = format!("{ROOT}/aggregator/packaging/alerts.yml");
    is_content(&promtool, &["check", "rules", &rules], "");
    is_content(&promtool, &["check", "metrics"], &visitor.sees("/metrics").body);

    let settings = folder.path().join("prometheus.yml");
    let scraped = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules:?}]\nscrape_configs:\n  \
         - job_name: federation\n    static_configs: [{{ targets: [{:?}] }}]\n",
        visitor.address
    );
    fs::write(&settings, scraped).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(prometheus);
    command
        .arg(format!("--config.file={}", settings.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("figures").display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null());
    let server = Process::start("prometheus", &mut command);
    let asks = |path: &str| -> Option<Value> {
        let answer = http::request(&address, ("GET", path), &[], "").ok()?;
        serde_json::from_str(&answer.body).ok()
    };
    let query = |expression: &str| asks(&format!("/api/v1/query?query={}", escaped(expression)));
    until("it has scraped the page", || {
        let found = query("federation_round{run=\"first\"}");
        found.is_some_and(|found| found["data"]["result"][0]["value"][1] == "3")
    });
    let dashboard = fs::read_to_string(format!("{ROOT}/aggregator/packaging/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap().replace("$run", ".*");
        let found = query(&expression).unwrap();
        assert_eq!(found["status"], "success", "{expression}: {found}");
    }
    until("all rules were evaluated", || {
        let groups = asks("/api/v1/rules").unwrap_or_default();
        let all = groups["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        assert!(all.iter().all(|rule| rule["health"] != "err"), "{groups}");
        !all.is_empty() && all.iter().all(|rule| rule["health"] == "ok")
    });
    server.kill();
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The page behind nginx, as the manual configures it.
struct Proxied {
    openssl: PathBuf,
    address: String,
    certificate: String,
    _nginx: Process,
}

impl Proxied {
    fn start(folder: &Path, page: &str) -> Option<Self> {
        let (nginx, openssl) = (program("nginx")?, program("openssl")?);
        let place = |name: &str| folder.join(name).display().to_string();
        let (certificate, key) = (place("certificate.pem"), place("key.pem"));
        let made =
            ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=lab.example"];
        let files = ["-addext", "subjectAltName=DNS:lab.example", "-keyout", &key, "-out", &certificate];
        let ended = run(&openssl, &[&made[..], &files].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        let manual = fs::read_to_string(format!("{ROOT}/aggregator/manual/live-page.md")).unwrap();
        let (_, block) = manual.split_once("```nginx\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let block =
            block.replace("listen 443 ssl", &format!("listen {address} ssl")).replace("127.0.0.1:8420", page);
        assert!(block.contains(&address) && block.contains(page), "{block}");
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {};\n", place(kind)))
            .collect();
        let settings = format!(
            "daemon off;\nmaster_process off;\npid {};\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}\
             ssl_certificate {certificate};\nssl_certificate_key {key};\n{block}}}\n",
            place("nginx.pid")
        );
        fs::write(place("nginx.conf"), settings).unwrap();
        let mut command = Command::new(nginx);
        command.args(["-p", &folder.display().to_string(), "-c", &place("nginx.conf")]);
        Some(Self { openssl, address, certificate, _nginx: Process::start("nginx", &mut command) })
    }

    /// Sends a request over TLS. The lines of the answer come as they are received.
    fn asks(&self, head: &str, body: &str) -> Answered {
        let mut child = Command::new(&self.openssl)
            .args(["s_client", "-quiet", "-connect", &self.address, "-servername", "lab.example"])
            .args(["-CAfile", &self.certificate, "-verify_return_error", "-verify_hostname", "lab.example"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let length = body.len();
        let sent = format!(
            "{head}\r\nHost: lab.example\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        // Without a connection it has ended, and there is no answer either.
        let _ = child.stdin.as_mut().unwrap().write_all(sent.as_bytes());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, receiver) = channel();
        // It ends with the child, or when the receiver is dropped.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Answered { child, lines: receiver }
    }

    /// The head of the answer.
    fn head(&self, head: &str, body: &str) -> String {
        let answered = self.asks(head, body);
        answered.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

/// An answer over TLS, line by line.
struct Answered {
    child: Child,
    lines: Receiver<String>,
}

impl Iterator for Answered {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line.trim_end().to_owned()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more has come for {PATIENCE:?}"),
        }
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn behind_nginx_the_page_is_served_with_tls() {
    let folder = simulated();
    let (token, secret) = (folder.path().join("token"), "0123456789abcdef0123456789abcdef");
    fs::write(&token, secret).unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let visitor = Visitor::of_page(&[
        "--runs",
        &runs,
        "--token-file",
        &token.display().to_string(),
        "--host",
        "lab.example",
    ]);
    let Some(proxied) = Proxied::start(folder.path(), &visitor.address) else { return };
    until("nginx answers", || !proxied.head("GET /style.css HTTP/1.1", "").is_empty());
    let sent = proxied.head("GET /runs/first HTTP/1.1", "");
    assert!(sent.starts_with("HTTP/1.1 303") && sent.contains("location: /login"), "{sent}");
    let form = "POST /login HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nOrigin: https://";
    let told = format!("token={secret}");
    let elsewhere = proxied.head(&format!("{form}evil.example"), &told);
    assert!(elsewhere.starts_with("HTTP/1.1 403"), "{elsewhere}");
    let opened = proxied.head(&format!("{form}lab.example"), &told);
    let cookie = opened
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap_or_else(|| panic!("{opened}"));
    let cookie = cookie.split(';').next().unwrap();
    let seen: String = proxied.asks(&format!("GET /runs/first HTTP/1.1\r\nCookie: {cookie}"), "").collect();
    assert!(seen.starts_with("HTTP/1.1 200") && seen.contains("<h1>first</h1>"), "{seen}");
    // What changes is told at once: nothing is held back until there is more.
    let mut changes = proxied.asks(&format!("GET /changes HTTP/1.1\r\nCookie: {cookie}"), "");
    assert!(changes.any(|line| line == "event: rounds"));
    simulate(&folder.path().join("runs"), &["run.name=second", "model.name=linear", "run.rounds=1"]);
    assert!(changes.any(|line| line == "event: rounds"));
}
