//! Tests whether a store keeps the contract and whether the guarantees held in a run: for authors of stores, and for
//! Seriatim's own tests. Not part of an application.

#![forbid(unsafe_code)]

#[cfg(feature = "simulation")]
pub mod broken;
pub mod checker;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis", feature = "sqlite"))]
pub mod limit;
mod lock;
#[cfg(feature = "simulation")]
pub mod simulation;
