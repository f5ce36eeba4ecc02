//! The client for Ruby.

use super::Language;

const LANGUAGE: Language = Language { program: "ruby", package: "ruby", script: "worker.rb" };

super::tests!(LANGUAGE);
