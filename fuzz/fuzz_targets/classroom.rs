#![no_main]

use coordinator::classroom::guest::GuestPatch;
use coordinator::classroom::patch;
use coordinator::classroom::settings::SettingsPatch;
use coordinator::room::projection::StateChange;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|text: &str| {
    _ = serde_json::from_str::<StateChange>(text);
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(text) else { return };
    _ = SettingsPatch::validate(fields.clone(), 16);
    _ = GuestPatch::validate(fields.clone(), false, 16);
    let mut document = Map::new();
    patch::apply_fields(&mut document, &fields);
    let mut again = document.clone();
    patch::apply_fields(&mut again, &fields);
    assert_eq!(document, again, "a merge patch applied twice changes nothing more");
});
