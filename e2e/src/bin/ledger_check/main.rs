//! Checks a ledger against what clients were told and what a sink received.
//!
//! `ledger_check LEDGER_URL JOURNALS RECEIVED` reads the SQL tables by itself, a folder of journals that clients
//! wrote after each acknowledgement, and the file in which a sink noted each arrival. It prints what it counted, and
//! ends with 1 where something contradicts, after the first contradictions.

mod commands;
mod events;
mod evidence;
mod findings;
mod implied;
mod positions;
mod tables;
#[cfg(test)]
mod tests;

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use evidence::Evidence;
use findings::Findings;
use tables::Tables;

type Error = Box<dyn std::error::Error>;

/// Contradictions that are printed.
const SHOWN: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, journals, received] = arguments.as_slice() else {
        _ = writeln!(io::stderr(), "ledger_check LEDGER_URL JOURNALS RECEIVED");
        return ExitCode::from(2);
    };
    match check(url, Path::new(journals), Path::new(received)).await {
        Ok(findings) => print(&findings),
        Err(error) => {
            _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}

async fn check(url: &str, journals: &Path, received: &Path) -> Result<Findings, Error> {
    let evidence = Evidence::read(journals, received)?;
    let tables = Tables::read(url).await?;
    let mut findings = Findings::default();
    positions::check(&tables, &mut findings);
    commands::check(&tables, &evidence.acknowledged, &mut findings);
    events::check(&tables, &evidence.arrivals, &mut findings);
    implied::check(&tables, &mut findings);
    Ok(findings)
}

fn print(findings: &Findings) -> ExitCode {
    let mut out = io::stdout().lock();
    for (what, count) in &findings.counts {
        _ = writeln!(out, "{what}: {count}");
    }
    for contradiction in findings.contradictions.iter().take(SHOWN) {
        _ = writeln!(out, "- {contradiction}");
    }
    _ = writeln!(out, "contradictions: {}", findings.contradictions.len());
    if findings.contradictions.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
