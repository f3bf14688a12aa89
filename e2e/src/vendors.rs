//! A stand-in for TRTC and Agora: their APIs, and what their clients and consoles do.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{ChildStdin, Command};
use tokio::time::timeout;

use crate::process::Process;
use crate::wait::SOON;
use crate::{http, place};

/// The application at TRTC.
pub const SDK_APP_ID: u32 = 1_400_000_000;
/// Its key.
pub const SECRET_KEY: &str = "the key of the test's TRTC application";
/// Name of the key of TRTC's API.
pub const SECRET_ID: &str = "AKIDTESTS";
/// The key of TRTC's API.
pub const API_SECRET_KEY: &str = "the key of the test's TRTC account";
/// What TRTC signs callbacks with.
pub const CALLBACK_KEY: &str = "trtcCallbacks";
/// The project at Agora.
pub const APP_ID: &str = "0123456789abcdef0123456789abcdef";
/// Its certificate.
pub const APP_CERTIFICATE: &str = "fedcba9876543210fedcba9876543210";
/// Name of the key of Agora's API.
pub const CUSTOMER_ID: &str = "the test's customer";
/// The key of Agora's API.
pub const CUSTOMER_SECRET: &str = "the secret of the test's customer";
/// What Agora signs notifications with.
pub const NOTIFICATION_SECRET: &str = "the secret of the test's notifications";

/// The stand-in; both vendors' APIs begin at its URL. It refuses what is not signed as the vendor wants it.
#[derive(Debug)]
pub struct Vendors {
    port: u64,
    process: Process,
    // It ends with its input.
    _input: ChildStdin,
}

impl Vendors {
    /// Starts it, and waits until it says its port.
    pub async fn start() -> Self {
        let mut command = Command::new("python3");
        command.arg("-I").arg(place::repository().join("e2e/vendors/stand_in.py"));
        let (process, mut input, mut lines) = Process::converse("vendors", command);
        let config = json!({
            "trtc": {
                "sdkAppId": SDK_APP_ID, "secretKey": SECRET_KEY, "secretId": SECRET_ID,
                "apiSecretKey": API_SECRET_KEY, "callbackKey": CALLBACK_KEY, "privateMapKey": true,
            },
            "agora": {
                "appId": APP_ID, "appCertificate": APP_CERTIFICATE, "customerId": CUSTOMER_ID,
                "customerSecret": CUSTOMER_SECRET, "notificationSecret": NOTIFICATION_SECRET,
            },
        });
        let written = writeln!(input, "{config}");
        let line = timeout(SOON, lines.recv()).await.ok().flatten().unwrap_or_default();
        let port = serde_json::from_str::<Value>(&line).ok().and_then(|said| said["port"].as_u64());
        let Some(port) = port.filter(|_| written.is_ok()) else {
            panic!("the stand-in says {line:?}:\n{}", process.log_lines().join("\n"));
        };
        Self { port, process, _input: input }
    }

    /// `http://127.0.0.1:{port}`
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The process, for its log.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// What a client or a console does, as the stand-in describes it; or why it is refused.
    pub async fn control(&self, what: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/control/{what}", self.url());
        let method = if body.is_null() { "GET" } else { "POST" };
        let answer = http::request(method, &url, &[], &body.to_string()).await.expect("an answer").json();
        answer["error"].as_str().map_or_else(|| Ok(answer.clone()), |error| Err(error.to_owned()))
    }

    /// Who is in each room or channel of a vendor.
    pub async fn rooms(&self, vendor: &str) -> Value {
        self.control("state", &Value::Null).await.expect("the state")[vendor].take()
    }
}
