//! Statement parameters with their types.
//!
//! A statement with known parameter types is sent in one message with its parameters and without a name: one round
//! trip, and no state that a pooler would have to keep.

use std::borrow::Cow;

use tokio_postgres::types::{ToSql, Type};

/// A parameter of a statement.
pub(crate) trait Param: ToSql + Sync {
    /// The type in the server.
    fn kind(&self) -> Type;
}

/// Parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn Param + 'a)];

/// In the driver's form.
pub(super) fn typed(params: Params<'_>) -> Vec<(&(dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (*param as &(dyn ToSql + Sync), param.kind())).collect()
}

macro_rules! kinds {
    ($($kind:ident: $($type:ty),+;)+) => {$($(
        impl Param for $type {
            fn kind(&self) -> Type {
                Type::$kind
            }
        }
    )+)+};
}

kinds! {
    BOOL: bool;
    BOOL_ARRAY: Vec<bool>;
    INT2: i16, Option<i16>;
    INT2_ARRAY: Vec<i16>, &[i16];
    INT4: i32;
    INT4_ARRAY: Vec<i32>;
    INT8: i64, Option<i64>;
    INT8_ARRAY: Vec<i64>, Vec<Option<i64>>;
    FLOAT8_ARRAY: Vec<Option<f64>>;
    TEXT: String, Option<String>, &str, Option<&str>, Cow<'_, str>, Option<Cow<'_, str>>;
    TEXT_ARRAY: Vec<Option<&str>>, Vec<Option<String>>, Vec<Cow<'_, str>>, Vec<Option<Cow<'_, str>>>;
    BYTEA: Vec<u8>;
    BYTEA_ARRAY: Vec<&[u8]>, Vec<Option<Vec<u8>>>;
}
