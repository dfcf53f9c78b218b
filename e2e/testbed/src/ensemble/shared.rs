//! One ensemble for all tests of a program that run at the same time.

use std::sync::{Arc, Mutex, Weak};

use super::{Config, Ensemble};

/// Servers that tests share while they run at the same time; the last test ends them.
///
/// # Panics
/// When the servers do not start.
pub fn shared() -> Arc<Ensemble> {
    static SHARED: Mutex<Weak<Ensemble>> = Mutex::new(Weak::new());
    crate::shared::shared(&SHARED, || {
        let config = Config {
            // Some tests need a session that outlives what a busy machine does meanwhile.
            extra: vec![("maxSessionTimeout".to_owned(), "60000".to_owned())],
            ..Config::default()
        };
        Ensemble::start(config).expect("the servers start")
    })
}
