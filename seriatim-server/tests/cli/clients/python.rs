//! The client for Python.

use super::Language;

const LANGUAGE: Language = Language { program: "python3", package: "python3", script: "worker.py" };

super::tests!(LANGUAGE);
