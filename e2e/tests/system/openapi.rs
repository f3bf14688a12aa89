//! The document of the HTTP API against the instance that serves it, judged by tools that know neither.

use e2e::coordinator::CoordinatorOptions;
use e2e::http;
use e2e::place;
use e2e::process::Process;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::http_api::{BackEnd, KEY, with_keys};
use crate::stage::Stage;

const SECRET: &str = "a secret of the media server, long enough";
/// It makes some thousand calls, on a machine that may be busy with other tests.
const EXAMINED: Duration = Duration::from_secs(300);

fn tool(name: &str) -> PathBuf {
    let found = place::cached_binary(name).or_else(|| place::on_path(name));
    found.unwrap_or_else(|| panic!("{name} is not there; `deploy/setup.sh test` puts it into the tool cache"))
}

/// Runs a tool to its end, and panics with all that it said unless it is content.
async fn content(name: &str, folder: &Path, set: impl FnOnce(&mut Command)) -> Vec<String> {
    let mut command = Command::new(tool(name));
    command.current_dir(folder).env("PYTHONDONTWRITEBYTECODE", "1");
    set(&mut command);
    let process = Process::start(name, command);
    let ended = process.exit(EXAMINED).await;
    let said = process.log_lines();
    assert!(ended.success(), "{name}: {ended}:\n{}", said.join("\n"));
    said
}

#[tokio::test]
async fn the_document_is_valid_and_the_calls_are_as_it_says() {
    let generic =
        |options: CoordinatorOptions| with_keys(options).text("app", "callbacks.generic.secret", SECRET);
    let stage = Stage::start_with(1, generic).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("{}/openapi.json", stage.cluster[0].url());
    let document = http::get(&url).await.expect("the document");
    assert_eq!(document.header("content-type"), Some("application/json"));
    fs::write(folder.path().join("openapi.json"), &document.body).expect("an own folder");
    let of_media_servers = place::repository().join("docs/media/generic.openapi.json");
    content("openapi-spec-validator", folder.path(), |command| {
        _ = command.arg("openapi.json").arg(of_media_servers);
    })
    .await;

    // The people of the examples are in the rooms that are called, so that calls succeed.
    let back_end = BackEnd::new(&stage);
    for room in ["maths-1", "maths-2"] {
        let made = back_end.send(0, "PUT", &format!("/rooms/{room}"), &[], r#"{"seats":8}"#).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    for user in ["ann", "bob"] {
        stage.connect(user, user, "guest", 0).await;
        for room in ["maths-1", "maths-2"] {
            stage.ask(user, "room:join", json!({ "room": room })).await;
        }
    }
    let config = place::repository().join("e2e/openapi");
    let said = content("schemathesis", folder.path(), |command| {
        command.arg("--config-file").arg(config.join("schemathesis.toml"));
        command.args([
            "run",
            &url,
            "--phases",
            "examples,coverage,fuzzing",
            "--continue-on-failure",
            "--no-color",
        ]);
        command.env("SCHEMATHESIS_HOOKS", config.join("hooks.py"));
        command.env("DAIS_API_KEY", KEY).env("DAIS_CALLBACK_SECRET", SECRET);
    })
    .await;
    assert!(said.iter().any(|line| line.contains("test cases") || line.contains("Test cases")), "{said:#?}");
    assert_eq!(stage.cluster[0].process().exit_status(), None);
    let log = stage.cluster[0].log_lines();
    let bad: Vec<_> =
        log.iter().filter(|line| line.contains("panicked") || line.contains("\"level\":\"ERROR\"")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
