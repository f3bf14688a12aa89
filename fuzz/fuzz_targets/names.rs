#![no_main]

use key_prefix::{Instance, Keys, Prefix, RoomKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(prefix) = Prefix::parse(text) {
        _ = Keys::new(prefix).kind_of(text.as_bytes());
    }
    _ = Keys::new(Prefix::dev()).kind_of(text.as_bytes());
    if let Ok(room) = RoomKey::from_route(text) {
        assert_eq!(room.route(), text);
    }
    if let Ok(instance) = text.parse::<Instance>() {
        assert_eq!(instance.as_str().parse::<Instance>().as_ref(), Ok(&instance));
    }
    _ = coordinator::cli::duration(text);
});
