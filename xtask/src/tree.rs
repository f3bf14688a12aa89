//! The files a check looks at: what git tracks or would track.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// Folders that hold nothing of ours, for a tree that is not a git checkout.
const NOT_OURS: [&str; 6] = ["target", "node_modules", "dist", ".git", ".data", "logs"];

/// One file. `text` is `None` where it is not UTF-8 text.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) text: Option<String>,
}

impl File {
    pub(crate) fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(self.path.as_str(), |(_, name)| name)
    }

    /// Written by a package manager, not by us.
    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.name(), "Cargo.lock" | "package-lock.json")
    }
}

/// A snapshot of the tree, in order of path.
pub(crate) struct Tree {
    files: Vec<File>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root, "")?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let full = root.join(&path);
            // A path deleted but not yet committed is still listed.
            let Ok(metadata) = fs::symlink_metadata(&full) else { continue };
            if !metadata.is_file() {
                continue;
            }
            let content = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            let text = String::from_utf8(content).ok().filter(|text| !text.contains('\0'));
            files.push(File { path, bytes: metadata.len(), text });
        }
        Ok(Self { files })
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Text files with their text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| file.text.as_deref().map(|text| (file, text)))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|&(path, text)| File {
                path: path.to_owned(),
                bytes: text.len() as u64,
                text: Some(text.to_owned()),
            })
            .collect();
        Self { files }
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let listed = String::from_utf8(output.stdout).ok()?;
    Some(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path, folder: &str) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder}"))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            paths.extend(walked(root, &path)?);
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_leaves_out_what_is_not_ours_and_reads_text_and_binary() {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in
            [("src/a.rs", &b"fn a() {}\n"[..]), ("target/b.rs", b"x"), ("image.bin", &[0, 159, 146])]
        {
            let full = folder.path().join(path);
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(full, content).unwrap();
        }
        let tree = Tree::read(folder.path()).unwrap();
        let seen: Vec<_> = tree.files().map(|file| (file.path.as_str(), file.text.is_some())).collect();
        assert_eq!(seen, [("image.bin", false), ("src/a.rs", true)]);
    }
}
