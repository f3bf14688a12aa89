//! A file system of a few megabytes that can be filled and emptied again.
//!
//! It lives in memory, in a mount namespace of its own: nothing of the machine is touched, and it is gone with the process
//! that holds the namespace. What is to see it is started inside.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::process::Process;
use crate::wait::SOON;

const HOLD: &str =
    "mount -t tmpfs -o size=\"$1\",mode=1777 small \"$2\" && echo mounted && exec tail -f /dev/null";

/// A small file system.
#[derive(Debug)]
pub struct SmallDisk {
    holder: Process,
    path: PathBuf,
}

impl SmallDisk {
    /// Whether this user may have one: root may, and others where they may make user namespaces.
    pub fn is_possible() -> bool {
        let mut try_it = unshare();
        try_it
            .args(["mount", "-t", "tmpfs", "small", "/tmp"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        try_it.status().is_ok_and(|status| status.success())
    }

    /// Mounts one of so many bytes on a folder that is there, for those who are started inside.
    pub async fn on(path: &Path, bytes: u64) -> Self {
        let mut hold = unshare();
        hold.args(["sh", "-c", HOLD, "hold", &bytes.to_string()]).arg(path);
        let holder = Process::start("small-disk", hold);
        holder.line("mounted", 0, SOON, |line| (line == "mounted").then_some(())).await;
        Self { holder, path: path.to_owned() }
    }

    /// What starts a program inside, under the user of the test: the program and its arguments follow.
    pub fn entrance(&self) -> Vec<String> {
        let pid = self.holder.pid().to_string();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        if rustix::process::geteuid().is_root() {
            return words(&["nsenter", "--target", &pid, "--mount", "--"]);
        }
        // Inside it would be root, which database servers refuse to be: one namespace further it is nobody special.
        let enter = ["nsenter", "--target", &pid, "--user", "--preserve-credentials", "--mount", "--"];
        words(&[&enter[..], &["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]].concat())
    }

    /// A command that runs inside, otherwise as it was.
    pub fn inside(&self, command: &Command) -> Command {
        let entrance = self.entrance();
        let mut inside = Command::new(&entrance[0]);
        inside.args(&entrance[1..]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        inside
    }

    /// Where those outside find what is in it.
    pub fn outside(&self) -> PathBuf {
        let inside = self.path.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(self.holder.pid().to_string()).join("root").join(inside)
    }

    /// Takes all the room that there is.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.outside().join("filler")).expect("a file in an own folder");
        let full = io::copy(&mut io::repeat(0), &mut filler).expect_err("a small disk has an end");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull, "{full}");
    }

    /// Gives it back.
    pub fn empty(&self) {
        fs::remove_file(self.outside().join("filler")).expect("it was filled");
    }

    /// Lets nobody write to it, or lets them again. Nobody may have a file open for writing.
    pub fn set_read_only(&self, is_read_only: bool) {
        let option = if is_read_only { "remount,ro" } else { "remount,rw" };
        let pid = self.holder.pid().to_string();
        let mut remount = Command::new("nsenter");
        remount.args(["--target", &pid]);
        if !rustix::process::geteuid().is_root() {
            remount.args(["--user", "--preserve-credentials"]);
        }
        remount.args(["--mount", "--", "mount", "-o", option]).arg(&self.path);
        let done = remount.stdin(Stdio::null()).output().expect("`nsenter` on PATH");
        assert!(done.status.success(), "{option}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--"]);
    unshare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_full_until_it_is_emptied_and_nobody_else_sees_it() {
        if !SmallDisk::is_possible() {
            return eprintln!("SKIPPED: this user may not make namespaces");
        }
        let folder = tempfile::tempdir().unwrap();
        let disk = SmallDisk::on(folder.path(), 1 << 20).await;
        let write = |name: &str| fs::write(disk.outside().join(name), "some");
        disk.fill();
        assert_eq!(write("more").unwrap_err().kind(), io::ErrorKind::StorageFull);
        disk.empty();
        write("more").unwrap();
        disk.set_read_only(true);
        assert_eq!(write("most").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        disk.set_read_only(false);
        let mut list = Command::new("ls");
        let seen = disk.inside(list.arg(folder.path())).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "more\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
