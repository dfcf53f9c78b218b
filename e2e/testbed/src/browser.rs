//! A real browser without a window, Chromium, driven by the W3C's WebDriver protocol
//! (<https://www.w3.org/TR/webdriver2/>). Four of its commands are enough here, and curl sends them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::Unsupported;
use crate::cluster::find_program;

/// What the browser is started with. As root Chromium has no sandbox of its own; it only opens pages of the tests.
const ARGUMENTS: [&str; 4] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
];

/// Keys as WebDriver names them (section "Keyboard actions").
pub mod key {
    pub const TAB: &str = "\u{e004}";
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
}

/// A browser with one page. Drop ends it.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// The driver's URL of this browser.
    session: String,
}

impl Browser {
    /// # Errors
    /// [`Unsupported`] where a program is missing; otherwise why the browser does not start.
    pub fn start() -> anyhow::Result<Self> {
        can_start()?;
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start chromedriver")?;
        let output = driver.stdout.take().context("the command has a pipe")?;
        let port = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| port(&line))
            .context("chromedriver has ended before it listened")?;
        let mut browser = Self {
            driver,
            session: format!("http://127.0.0.1:{port}/session"),
        };
        let options = json!({ "args": ARGUMENTS });
        let wanted = json!({ "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } });
        let made = browser.post("", &json!({ "capabilities": wanted }))?;
        let id = made["sessionId"].as_str().context("the session has no ID")?;
        browser.session += &format!("/{id}");
        Ok(browser)
    }

    /// Opens a page, and waits until it is loaded.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self, url: &str) -> anyhow::Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// What a script returns that runs in the page.
    ///
    /// # Errors
    /// What it throws.
    pub fn run(&self, script: &str) -> anyhow::Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Presses keys, one after the other.
    ///
    /// # Errors
    /// When the browser is gone.
    pub fn press(&self, keys: &[&str]) -> anyhow::Result<()> {
        let steps = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|step| json!({ "type": step, "value": key })));
        let steps: Vec<_> = steps.collect();
        let actions = json!([{ "type": "key", "id": "keyboard", "actions": steps }]);
        self.post("/actions", &json!({ "actions": actions })).map(drop)
    }

    fn post(&self, command: &str, body: &Value) -> anyhow::Result<Value> {
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"])
            .args([
                "--header",
                "Content-Type: application/json",
                "--data-binary",
                "@-",
            ])
            .arg(format!("{}{command}", self.session))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run curl")?;
        let mut stdin = curl.stdin.take().context("the command has a pipe")?;
        stdin.write_all(body.to_string().as_bytes())?;
        drop(stdin);
        let answer = curl.wait_with_output()?;
        ensure!(answer.status.success(), "curl ended with {}", answer.status);
        let mut answer: Value = serde_json::from_slice(&answer.stdout)?;
        let value = answer["value"].take();
        // An error has a word for the kind, and a sentence.
        ensure!(
            value.get("error").is_none(),
            "the browser refuses: {}",
            value["message"]
        );
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser when it is asked to end itself.
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--noproxy",
            "*",
            "--max-time",
            "20",
            "--request",
            "DELETE",
            &self.session,
        ]);
        let _ = curl.stdout(Stdio::null()).status();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Where the driver listens: `ChromeDriver was started successfully on port 40123.`
fn port(line: &str) -> Option<u16> {
    let (_, port) = line
        .trim_end_matches('.')
        .split_once(" started successfully on port ")?;
    port.parse().ok()
}

fn can_start() -> Result<(), Unsupported> {
    for (program, package) in [
        ("chromium", "chromium"),
        ("chromedriver", "chromium-driver"),
        ("curl", "curl"),
    ] {
        if find_program(program).is_none() {
            return Err(Unsupported::new(format!(
                "a browser needs {program}, which is missing: apt-get install {package}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_the_driver_says_at_its_start() {
        assert_eq!(
            port("ChromeDriver was started successfully on port 40123."),
            Some(40123)
        );
        assert_eq!(port("Starting ChromeDriver 156.0 on port 0"), None);
        assert_eq!(port("Only local connections are allowed."), None);
    }
}
