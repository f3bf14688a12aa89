//! Expands the includes of `lua/*.lua` and drops their comments.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=lua");
    let out = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    for entry in fs::read_dir("lua")? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "lua") {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            fs::write(Path::new(&out).join(name), expand(&path)?)?;
        }
    }
    Ok(())
}

fn expand(path: &Path) -> io::Result<String> {
    let mut out = String::new();
    let mut in_header = false;
    for line in fs::read_to_string(path)?.lines() {
        let code = line.trim_start();
        if code.starts_with("--[[") {
            in_header = true;
        }
        if in_header {
            in_header = !code.starts_with("]]");
        } else if let Some(include) = code.strip_prefix("--%include ") {
            out.push_str(&expand(&Path::new("lua/includes").join(include).with_extension("lua"))?);
        } else if !code.is_empty() && !code.starts_with("--") {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}
