//! The form in which payloads are stored: as they were pushed, compressed, or encrypted.

mod form;
mod keys;
mod store;

use std::sync::Arc;

use seriatim::SharedStore;

use crate::base::setup_error::SetupError;
use crate::config::PayloadsConfig;
use keys::Keys;

pub(crate) use form::{Forms, Readable, unreadable};

/// The store, whose payloads are read and written in their stored form. Also without settings: what cannot be read must
/// not be handed to a worker as if it were a payload.
pub(crate) fn wrap(inner: SharedStore, forms: &Arc<Forms>) -> SharedStore {
    Arc::new(store::Formed::new(inner, forms.clone()))
}

/// The forms that a configuration asks for.
pub(crate) fn forms(config: &PayloadsConfig) -> Result<Arc<Forms>, SetupError> {
    Ok(Arc::new(Forms::new(config, Ok(Keys::read(&config.keys)?))))
}

/// The same for a command, which may not have the keys: it does what can be done without them.
pub(crate) fn forms_of_command(config: &PayloadsConfig) -> Arc<Forms> {
    let keys = Keys::read(&config.keys).map_err(|error| error.to_string());
    Arc::new(Forms::new(config, keys))
}
