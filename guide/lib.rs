#![doc = include_str!(concat!(env!("OUT_DIR"), "/guide.md"))]

#[doc = include_str!("../README.md")]
pub mod readme {}

#[cfg(test)]
mod examples;
