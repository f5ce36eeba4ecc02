//! Seriatim.
