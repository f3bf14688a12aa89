//! What `make lint` and `make test` run. The first step that fails ends it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::problem::Problem;
use crate::tree::Tree;
use crate::{instructions, lua, npm, performance, tidy};

const CORE_WITHOUT_IO: &str = "wasm32-unknown-unknown";
/// The example in TypeScript, with packages of its own.
const EXAMPLE: &str = "docs/media/mediasoup";
/// What the tests, and the load bench, run with Node.js.
const DRIVERS_AND_PEER: [&str; 2] = ["e2e/node", PEER];
/// The server that the load bench compares with.
const PEER: &str = "e2e/peer";

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
    for folder in DRIVERS_AND_PEER {
        step(folder, || {
            let folder = root.join(folder);
            npm::install(&folder)?;
            run(&folder, "npm", &["run", "--silent", "check"])
        })?;
    }
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
    step("room-cell without IO", || core_without_io(root))?;
    step("instructions", || instructions_of_core(root))
}

/// Every test. The harness finds the instance's binary beside its own, so all is built before any runs;
/// built as tests are, because a smaller selection would compile shared crates again with other features.
pub(crate) fn test(root: &Path) -> anyhow::Result<()> {
    step("the peer's tests", || run(&root.join(PEER), "npm", &["test", "--silent"]))?;
    step("the client's tests", || run(&root.join("client"), "npm", &["test", "--silent"]))?;
    step("cargo build", || run(root, "cargo", &["build", "--workspace", "--all-targets"]))?;
    step("cargo test", || run(root, "cargo", &["test", "--workspace"]))?;
    step("a quick load bench", || quick_bench(root))
}

/// Shows that the load bench and its page work; what it measures of an unoptimised build says nothing. The whole
/// workspace is named so that what the tests were built of serves here, too.
fn quick_bench(root: &Path) -> anyhow::Result<()> {
    let target = target_folder()?;
    let mut bench = command(root, "cargo", &["bench", "--profile", "dev", "--workspace", "--bench", "load"]);
    bench.env("DAIS_LOAD_QUICK", "1").env("DAIS_COORDINATOR", target.join("debug/coordinator"));
    succeed(&mut bench)?;
    let folder = target.join("bench");
    performance::write(root, &folder.join("load.json"), &performance::Into::Folder(folder.clone()))?;
    Ok(())
}

fn target_folder() -> anyhow::Result<PathBuf> {
    let own = env::current_exe()?;
    own.ancestors().nth(2).map(Path::to_path_buf).context("not in a target folder")
}

/// The load bench, then the page of its figures: in the target folder, or with `record` in `docs/`. The load is as the tests
/// have built it, the server under it a release: there is no time for both.
pub(crate) fn bench(root: &Path, record: bool) -> anyhow::Result<()> {
    run(root, "cargo", &["bench", "--profile", "dev", "--workspace", "--bench", "load"])?;
    let target = target_folder()?;
    let figures = target.join("bench/load.json");
    let into = if record { performance::Into::Docs } else { performance::Into::Folder(target.join("bench")) };
    let page = performance::write(root, &figures, &into)?;
    println!("\nDais : the Node.js server, median of the pairs (lowest-highest)");
    print!("{}", performance::ratios(&figures)?);
    println!("\nthe page: {}", page.display());
    Ok(())
}

/// Every language into its usual form.
pub(crate) fn format(root: &Path) -> anyhow::Result<()> {
    run(root, "cargo", &["fmt", "--all"])?;
    for folder in ["client"].into_iter().chain(DRIVERS_AND_PEER).map(|folder| root.join(folder)) {
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

/// What the core paths execute has not grown, where it can be counted.
fn instructions_of_core(root: &Path) -> anyhow::Result<()> {
    if !instructions::can_count() {
        println!("   NOT CHECKED: there is no valgrind here");
        return Ok(());
    }
    instructions::check(root, false)
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
pub(crate) fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
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
