//! A real browser: Chromium, driven by the protocol of W3C's web drivers through its own driver.
//!
//! Four calls of the protocol, each a request with JSON: a client library would bring an HTTP stack and TLS.

use std::path::Path;
use std::process::Command;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::http::request;
use crate::process::{Process, until};

/// The driver, as Debian's package `chromium-driver` names it.
const DRIVER: &str = "chromedriver";

/// How a page is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// The colours that the person prefers.
    pub dark: bool,
}

impl View {
    /// A desktop and a phone, in light and dark.
    pub const ALL: [Self; 4] = [
        Self { width: 1280, height: 900, dark: false },
        Self { width: 1280, height: 900, dark: true },
        Self { width: 390, height: 844, dark: false },
        Self { width: 390, height: 844, dark: true },
    ];

    /// `1280-dark`.
    #[must_use]
    pub fn name(self) -> String {
        format!("{}-{}", self.width, if self.dark { "dark" } else { "light" })
    }
}

/// A browser with one window. It ends with this value.
pub struct Browser {
    address: String,
    session: String,
    _driver: Process,
}

impl Browser {
    /// Starts one. `Err` is why there is none.
    ///
    /// # Panics
    /// If the driver is there and does not start a browser.
    pub fn start() -> Result<Self, String> {
        let there = Command::new(DRIVER).arg("--version").output();
        if !there.is_ok_and(|output| output.status.success()) {
            return Err(format!(
                "there is no {DRIVER}: Debian's packages chromium and chromium-driver have it"
            ));
        }
        let mut driver = Process::start("the browser's driver", Command::new(DRIVER).arg("--port=0"));
        let line = driver.line("its port", |line| line.contains("started successfully on port"));
        let port = line.rsplit(' ').next().map_or("", |port| port.trim_end_matches('.'));
        let address = format!("127.0.0.1:{port}");
        // In a container root may not make the sandbox.
        let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let options = json!({ "goog:chromeOptions": { "args": arguments } });
        let asked = json!({ "capabilities": { "alwaysMatch": options } });
        let mut browser = Self { address, session: String::new(), _driver: driver };
        let session = browser.post("", &asked);
        session["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        Ok(browser)
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Panics
    /// If it cannot be opened; so do all others if the browser refuses.
    pub fn open(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Shows pages so from now on.
    pub fn view(&self, View { width, height, dark }: View) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", &media);
    }

    /// What this script returns.
    #[must_use]
    pub fn script(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the page, as a person sees it.
    #[must_use]
    pub fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows this text.
    ///
    /// # Panics
    /// If it never does.
    pub fn shows(&self, text: &str) {
        until(&format!("the page shows {text:?}"), || self.text().contains(text));
    }

    /// Presses the element of this CSS selector, once it is there. In one step: the page's own script may replace it at any moment.
    ///
    /// # Panics
    /// If it never is.
    pub fn press(&self, selector: &str) {
        let script = format!(
            "const found = document.querySelector({}); found?.click(); return !!found",
            json!(selector)
        );
        until(&format!("{selector} is there"), || self.script(&script) == true);
    }

    /// Writes a text into the element of this CSS selector, in place of the former one.
    ///
    /// # Panics
    /// If it never is there.
    pub fn fill(&self, selector: &str, text: &str) {
        let script = format!(
            "const found = document.querySelector({}); if (found) {{ found.focus(); found.value = {}; }} return !!found",
            json!(selector),
            json!(text)
        );
        until(&format!("{selector} is there"), || self.script(&script) == true);
    }

    /// Writes a picture of the whole page.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn picture(&self, file: &Path) {
        let options = json!({ "format": "png", "captureBeyondViewport": true });
        let taken = self.command("Page.captureScreenshot", &options);
        let bytes = BASE64.decode(taken["data"].as_str().expect("a picture").as_bytes()).expect("base64");
        std::fs::write(file, bytes).expect("the folder can be written");
    }

    /// A command of Chromium's own protocol.
    fn command(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let place = if self.session.is_empty() { String::new() } else { format!("/{}", self.session) };
        let path = format!("/session{place}{path}");
        let kind = [("Content-Type", "application/json; charset=utf-8")];
        let answer = request(&self.address, ("POST", &path), &kind, &body.to_string());
        let answer = answer.expect("the driver answers");
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
        let mut object: Value = serde_json::from_str(&answer.body).expect("JSON");
        object["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = request(&self.address, ("DELETE", &format!("/session/{}", self.session)), &[], "");
    }
}
