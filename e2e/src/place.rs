//! Where things are: the repository, the build, the cache of test servers, the logs.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace").to_owned()
}

/// The folder of the running test's build profile, such as `target/debug`.
pub fn profile() -> PathBuf {
    let exe = env::current_exe().expect("the system names the running executable");
    let folder = exe.parent().expect("an executable is in a folder");
    let is_deps = folder.file_name().is_some_and(|name| name == "deps");
    if is_deps { folder.parent().expect("deps is in a profile") } else { folder }.to_owned()
}

/// Where the running test's logs are kept: the thread of a test has the test's name.
pub fn logs() -> PathBuf {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed").replace("::", ".");
    profile().parent().map_or_else(profile, Path::to_owned).join("e2e-logs").join(test)
}

/// Where `deploy/setup.sh` puts the test servers.
pub fn cached_binary(name: &str) -> Option<PathBuf> {
    let cache = env::var_os("DAIS_CACHE").map(PathBuf::from).or_else(|| {
        let user = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let user = user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
        Some(user?.join("dais"))
    })?;
    Some(cache.join("bin").join(name)).filter(|path| path.is_file())
}

static FOLDERS: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

/// Notes the folder of the Redis at `url`: what else belongs to a cluster lies in it and goes with it.
pub fn cluster_folder(url: &str, folder: &Path) {
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    folders.insert(url.to_owned(), folder.to_owned());
}

/// The URL of the SQLite ledger of the cluster with this Redis and key prefix.
pub fn ledger_url(redis_url: &str, key_prefix: &str) -> String {
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folders.get(redis_url).cloned().unwrap_or_else(env::temp_dir);
    let name = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let file = match folders.get(redis_url) {
        Some(_) => format!("ledger-{}.db", name(key_prefix)),
        // No Redis of ours: a test of what happens without.
        None => format!("dais-{}-{}.db", std::process::id(), name(redis_url)),
    };
    format!("sqlite://{}", folder.join(file).display())
}

/// The first program of this name on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}
