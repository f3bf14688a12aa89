#![no_main]

use coordinator::config::{Config, Overrides};
use libfuzzer_sys::fuzz_target;
use std::ffi::OsString;

fuzz_target!(|text: &str| {
    for dev in [false, true] {
        let overrides = Overrides { dev, ..Overrides::default() };
        _ = Config::from_text("dais.toml", text, &overrides, Vec::<(OsString, OsString)>::new());
    }
});
