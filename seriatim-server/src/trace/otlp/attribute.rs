//! Names of attributes: those of OpenTelemetry's conventions for messaging, and our own.

pub(super) const SYSTEM: &str = "messaging.system";
pub(super) const SYSTEM_NAME: &str = "seriatim";
/// The queue.
pub(super) const DESTINATION: &str = "messaging.destination.name";
pub(super) const OPERATION_NAME: &str = "messaging.operation.name";
pub(super) const OPERATION_TYPE: &str = "messaging.operation.type";
/// The job, where there is one only.
pub(super) const MESSAGE_ID: &str = "messaging.message.id";
/// The jobs, where there are several.
pub(super) const MESSAGE_COUNT: &str = "messaging.batch.message_count";
pub(super) const ERROR_TYPE: &str = "error.type";
/// Lanes of a call that has several, and those of them that failed.
pub(super) const LANES: &str = "seriatim.lanes";
pub(super) const LANES_FAILED: &str = "seriatim.lanes.failed";
/// The attempt of a call with one lane.
pub(super) const ATTEMPT: &str = "seriatim.attempt";
/// The worst outcome of the call's lanes.
pub(super) const OUTCOME: &str = "seriatim.outcome";
