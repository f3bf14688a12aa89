//! What `make lint` and `make test` run. The first step that fails ends it.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::problem::Problem;
use crate::tree::Tree;
use crate::{lua, npm, tidy};

const CORE_WITHOUT_IO: &str = "wasm32-unknown-unknown";
/// The example in TypeScript, with packages of its own.
const EXAMPLE: &str = "docs/media/mediasoup";

/// Everything that reads the code without running it, cheapest first.
pub(crate) fn lint(root: &Path) -> anyhow::Result<()> {
    step("cargo fmt", || run(root, "cargo", &["fmt", "--all", "--check"]))?;
    step("tidy", || none(&tidy::problems(&Tree::read(root)?)))?;
    step("check-lua", || none(&lua::problems(&Tree::read(root)?)))?;
    step("cargo deny", || {
        run(root, "cargo", &["deny", "--all-features", "check", "bans", "licenses", "sources"])
    })?;
    step("advisories", || advisories(root))?;
    // The pages are part of the binary: without them nothing below compiles.
    step("console", || npm::console(root))?;
    step("client", || run(&root.join("client"), "npm", &["run", "--silent", "check"]))?;
    step("e2e/node", || {
        let folder = root.join("e2e/node");
        npm::install(&folder)?;
        run(&folder, "npm", &["run", "--silent", "check"])
    })?;
    step(EXAMPLE, || {
        let folder = root.join(EXAMPLE);
        npm::install_types(&folder)?;
        run(&folder, "npm", &["run", "--silent", "check"])
    })?;
    step("cargo clippy", || {
        run(root, "cargo", &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    })?;
    step("cargo doc", || {
        let mut command = command(root, "cargo", &["doc", "--workspace", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "--deny warnings");
        succeed(&mut command)
    })?;
    step("room-cell without IO", || core_without_io(root))
}

/// Every test. The harness finds the instance's binary beside its own, so all is built before any runs;
/// built as tests are, because a smaller selection would compile shared crates again with other features.
pub(crate) fn test(root: &Path) -> anyhow::Result<()> {
    step("cargo build", || run(root, "cargo", &["build", "--workspace", "--all-targets"]))?;
    step("cargo test", || run(root, "cargo", &["test", "--workspace"]))
}

/// Every language into its usual form.
pub(crate) fn format(root: &Path) -> anyhow::Result<()> {
    run(root, "cargo", &["fmt", "--all"])?;
    for folder in ["client", "e2e/node"].map(|folder| root.join(folder)) {
        npm::install(&folder)?;
        run(&folder, "npm", &["run", "--silent", "format"])?;
    }
    let example = root.join(EXAMPLE);
    npm::install_types(&example)?;
    run(&example, "npm", &["run", "--silent", "format"])
}

/// The list of advisories is on the network; without it the rest is still worth having.
fn advisories(root: &Path) -> anyhow::Result<()> {
    let fetched = command(root, "cargo", &["deny", "fetch", "db"]).stderr(Stdio::null()).status();
    if !fetched.context("cannot run cargo deny")?.success() {
        println!("   NOT CHECKED: the advisory database cannot be fetched from here");
        return Ok(());
    }
    run(root, "cargo", &["deny", "--all-features", "check", "advisories"])
}

/// A target with no files, sockets or clock compiles `room-cell`, where the target is installed.
fn core_without_io(root: &Path) -> anyhow::Result<()> {
    let sysroot = command(root, "rustc", &["--print", "sysroot"]).output().context("cannot run rustc")?;
    let sysroot = String::from_utf8(sysroot.stdout)?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(CORE_WITHOUT_IO).is_dir() {
        println!("   NOT CHECKED: `rustup target add {CORE_WITHOUT_IO}` makes it possible");
        return Ok(());
    }
    run(root, "cargo", &["check", "--package", "room-cell", "--target", CORE_WITHOUT_IO])
}

/// Runs `program` in `folder`, its output going where ours goes.
pub(crate) fn run(folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    succeed(&mut command(folder, program, arguments))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        bail!("`{program} {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// A command without what `cargo run` told this process about its own package: build scripts watch those
/// variables, and would run again each time they differ from those of a plain `cargo build`.
fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let ours = name.to_str().is_some_and(|name| {
            ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
        });
        if ours {
            command.env_remove(name);
        }
    }
    command
}

fn none(problems: &[Problem]) -> anyhow::Result<()> {
    for problem in problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problem(s)", problems.len());
    }
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("== {name}");
    let began = Instant::now();
    work().with_context(|| format!("{name} failed"))?;
    println!("   {name}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}
