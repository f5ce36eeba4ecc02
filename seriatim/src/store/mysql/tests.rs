//! Cases of this store alone.
