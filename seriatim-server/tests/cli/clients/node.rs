//! The client for Node.

use super::Language;

const LANGUAGE: Language = Language { program: "node", package: "nodejs", script: "worker.mjs" };

super::tests!(LANGUAGE);
