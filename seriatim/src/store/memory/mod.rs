//! The reference model: a real store that forgets everything when the process ends.
