#![doc = include_str!(concat!(env!("OUT_DIR"), "/guide.md"))]

#[cfg(test)]
mod examples;
