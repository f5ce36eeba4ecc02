//! Shows that a store keeps the contract, and that what was promised held: for those who write a store, and for
//! Seriatim's own tests. No part of an application.

#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod broken;
pub mod checker;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
pub mod limit;
#[cfg(feature = "simulation")]
pub mod simulation;
