//! The documentation says what the binary says.

use crate::config::Config;
use crate::error;

#[test]
fn the_table_of_keys_is_the_binarys() {
    assert!(include_str!("../../docs/keys.md").ends_with(&key_prefix::markdown()), "coordinator keys");
}

#[test]
fn the_table_of_codes_is_the_binarys() {
    assert!(include_str!("../../docs/errors.md").ends_with(&error::markdown()), "coordinator errors");
}

#[test]
fn the_clients_table_of_codes_is_the_binarys() {
    let table = include_str!("../../client/sdk/src/errors.generated.ts");
    assert_eq!(table, error::typescript(), "coordinator errors --typescript");
}

#[test]
fn the_reference_is_the_binarys() {
    assert!(
        include_str!("../../docs/configuration.md").contains(&Config::reference()),
        "coordinator reference"
    );
}

#[test]
fn the_calls_are_the_binarys() {
    assert!(include_str!("../../docs/http.md").ends_with(&crate::http::api::markdown()), "coordinator calls");
}

#[test]
fn every_metric_is_in_the_documentation() {
    let page = include_str!("../../docs/operations.md");
    let source = include_str!("metrics.rs");
    let mut found = 0;
    for start in ["gauge(\"", "counter(\"", "counters(\"", "HistogramOpts::new(\""] {
        for name in source.split(start).skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(page.contains(&format!("`{name}")), "{name}");
            found += 1;
        }
    }
    assert!(found > 15, "{found}");
}
