//! Pages of a headless Chromium with a fake microphone and camera: `e2e/node/browser.mjs`.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use crate::json_lines::JsonLines;

pub use crate::json_lines::Failure;

/// The running browser. Pages are called by names that the test gives; each has its own storage.
#[derive(Debug)]
pub struct Browser {
    lines: JsonLines,
}

impl Browser {
    /// Starts its driver; Chromium itself starts with the first page.
    #[expect(clippy::unused_async, reason = "it needs a runtime, and starts like everything else here")]
    pub async fn start() -> Self {
        Self { lines: JsonLines::start("browser.mjs") }
    }

    /// Any command of `e2e/node/README.md` with its fields.
    pub async fn ask(&self, op: &str, fields: Value) -> Result<Value, Failure> {
        self.lines.ask(op, fields).await
    }

    /// Opens a page at `url`.
    pub async fn open(&self, page: &str, url: &str) -> Result<(), Failure> {
        self.ask("open", json!({ "page": page, "url": url })).await.map(drop)
    }

    /// Loads a page again.
    pub async fn reload(&self, page: &str) -> Result<(), Failure> {
        self.ask("reload", json!({ "page": page })).await.map(drop)
    }

    /// Closes a page.
    pub async fn close(&self, page: &str) -> Result<(), Failure> {
        self.ask("closePage", json!({ "page": page })).await.map(drop)
    }

    /// Clicks what `selector` finds.
    pub async fn click(&self, page: &str, selector: &str) -> Result<(), Failure> {
        self.ask("click", json!({ "page": page, "selector": selector })).await.map(drop)
    }

    /// Types `text` into what `selector` finds.
    pub async fn fill(&self, page: &str, selector: &str, text: &str) -> Result<(), Failure> {
        self.ask("fill", json!({ "page": page, "selector": selector, "text": text })).await.map(drop)
    }

    /// The text of what `selector` finds.
    pub async fn text(&self, page: &str, selector: &str) -> Result<String, Failure> {
        let reply = self.ask("text", json!({ "page": page, "selector": selector })).await?;
        Ok(reply["text"].as_str().unwrap_or_default().to_owned())
    }

    /// What an expression gives in the page.
    pub async fn eval(&self, page: &str, expression: &str) -> Result<Value, Failure> {
        let mut reply = self.ask("eval", json!({ "page": page, "expression": expression })).await?;
        Ok(reply["value"].take())
    }

    /// Waits until an expression is truthy in the page, and panics with what the page said when `within` is over.
    pub async fn wait_for(&self, page: &str, expression: &str, within: Duration) -> Value {
        let fields = json!({ "page": page, "expression": expression, "timeoutMs": within.as_millis() });
        match self.ask("waitFor", fields).await {
            Ok(mut reply) => reply["value"].take(),
            Err(failure) => panic!("{page}: {failure:?}\n{}", self.console(page).await.join("\n")),
        }
    }

    /// What a page wrote to its console.
    pub async fn console(&self, page: &str) -> Vec<String> {
        let Ok(reply) = self.ask("console", json!({ "page": page })).await else { return Vec::new() };
        let lines = reply["lines"].as_array().into_iter().flatten();
        lines.map(|line| format!("{}: {}", line["type"].as_str().unwrap_or_default(), line["text"])).collect()
    }

    /// Writes a picture of the page.
    pub async fn screenshot(&self, page: &str, path: &Path) -> Result<(), Failure> {
        self.ask("screenshot", json!({ "page": page, "path": path })).await.map(drop)
    }
}
