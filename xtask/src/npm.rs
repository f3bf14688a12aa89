//! The JavaScript side: installed and built only where something changed.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::steps::run;

/// Holds the digest of what was last installed or built; inside `node_modules`, so that it goes with it.
const LOCK_STAMP: &str = "node_modules/.installed";
const BUILD_STAMP: &str = "node_modules/.built";

/// Installs and builds the pages that the instance serves.
pub(crate) fn console(root: &Path) -> anyhow::Result<()> {
    let client = root.join("client");
    install(&client)?;
    let digest = digest(&sources(&client)?)?;
    let stamp = client.join(BUILD_STAMP);
    if is_stamped(&stamp, &digest) && client.join("console/dist").is_dir() {
        return Ok(());
    }
    run(&client, "npm", &["run", "--silent", "build"])?;
    fs::write(&stamp, digest).context("cannot note the build")
}

/// Installs the server that the load bench compares with.
pub(crate) fn peer(root: &Path) -> anyhow::Result<()> {
    install(&root.join("e2e/peer"))
}

/// `npm ci` in `folder`, unless its lock file is the one last installed.
pub(crate) fn install(folder: &Path) -> anyhow::Result<()> {
    install_with(folder, &[])
}

/// The same for reading the packages' types alone: what they would run, fetch or compile when they are installed is
/// left out, and the versions of Node.js that they run on do not matter.
pub(crate) fn install_types(folder: &Path) -> anyhow::Result<()> {
    install_with(folder, &["--ignore-scripts", "--loglevel=error"])
}

fn install_with(folder: &Path, options: &[&str]) -> anyhow::Result<()> {
    let digest = digest(&[folder.join("package-lock.json")])?;
    let stamp = folder.join(LOCK_STAMP);
    if is_stamped(&stamp, &digest) {
        return Ok(());
    }
    run(folder, "npm", &[&["ci", "--no-audit", "--no-fund"], options].concat())?;
    fs::write(&stamp, digest).context("cannot note the installation")
}

fn is_stamped(stamp: &Path, digest: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|noted| noted == digest)
}

/// Everything in `folder` that a build can depend on.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let name = entry.file_name();
            if kind.is_dir() && name != "node_modules" && name != "dist" {
                waiting.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn digest(files: &[PathBuf]) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.hash(&mut hasher);
        fs::read(file).with_context(|| format!("cannot read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_changes_with_sources_and_not_with_what_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let now = || digest(&sources(folder.path()).unwrap()).unwrap();
        write("console/src/a.ts", "1");
        let first = now();
        write("console/dist/a.js", "1");
        write("node_modules/b/c.js", "1");
        assert_eq!(now(), first);
        write("console/src/a.ts", "2");
        assert_ne!(now(), first);
    }
}
