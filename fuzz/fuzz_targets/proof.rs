#![no_main]

use coordinator::store::proof::prove;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|info: &str| {
    for dev in [false, true] {
        _ = prove(info, dev);
    }
});
