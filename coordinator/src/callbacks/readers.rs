//! The readers of each app's callbacks, made once of the configuration.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use media_bridge::CallbackReader;

use crate::config::App;

/// What proves and reads callbacks, by app and vendor.
#[derive(Default)]
pub struct Readers {
    by_app: HashMap<String, Vec<Arc<dyn CallbackReader>>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendors = |readers: &Vec<Arc<dyn CallbackReader>>| -> Vec<&'static str> {
            readers.iter().map(|reader| reader.vendor()).collect()
        };
        f.debug_map().entries(self.by_app.iter().map(|(app, readers)| (app, vendors(readers)))).finish()
    }
}

impl Readers {
    /// The readers that the apps' secrets make.
    pub fn new(apps: &[App]) -> Self {
        let by_app = apps.iter().map(|app| (app.code.to_string(), app.callbacks.readers()));
        Self { by_app: by_app.collect() }
    }

    /// The reader of an app's callbacks by this vendor; `None`: it takes none.
    pub fn of(&self, app: &str, vendor: &str) -> Option<&Arc<dyn CallbackReader>> {
        self.by_app.get(app)?.iter().find(|reader| reader.vendor() == vendor)
    }
}
