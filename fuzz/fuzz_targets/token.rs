#![no_main]

use coordinator::auth::Verifier;
use coordinator::config::{Config, Overrides};
use libfuzzer_sys::fuzz_target;
use std::ffi::OsString;
use std::sync::LazyLock;

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
    let overrides = Overrides { dev: true, ..Overrides::default() };
    let config = Config::from_text("dais.toml", "", &overrides, Vec::<(OsString, OsString)>::new());
    Verifier::new(&config.expect("the dev configuration is sound").apps)
});

fuzz_target!(|token: &str| {
    assert!(VERIFIER.verify(token, 1_800_000_000).is_err(), "nobody guesses a signature");
});
