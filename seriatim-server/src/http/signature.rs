//! What an endpoint takes and answers, read from the types of its handler: its documentation cannot differ.

use std::future::Future;

use axum::extract::{OriginalUri, Request};
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;

use super::input::{BulkJson, UntypedJson};
use super::schema::{Make, make};
use super::{Answer, Caller, Connection, Json, Part, Problem, Query, Shared};

#[derive(Default)]
pub(super) struct Signature {
    pub(super) query: Option<Make>,
    pub(super) body: Option<Make>,
    pub(super) answer: Option<Make>,
}

/// A handler; `M` are the types of its parameters.
pub(super) trait Signed<M> {
    fn signature() -> Signature;
}

/// A parameter of a handler.
pub(super) trait Takes {
    fn add_to(_: &mut Signature) {}
}

/// What a handler returns.
pub(super) trait Gives {
    fn add_to(_: &mut Signature) {}
}

macro_rules! signed {
    ($($part:ident)*) => {
        impl<F, R, $($part,)*> Signed<($($part,)*)> for F
        where
            F: Fn($($part),*) -> R,
            R: Future<Output: Gives>,
            $($part: Takes,)*
        {
            fn signature() -> Signature {
                let mut signature = Signature::default();
                $($part::add_to(&mut signature);)*
                R::Output::add_to(&mut signature);
                signature
            }
        }
    };
}

signed!();
signed!(A);
signed!(A B);
signed!(A B C);
signed!(A B C D);
signed!(A B C D E);

impl Takes for Shared {}
impl Takes for Caller {}
impl Takes for Connection {}
impl Takes for HeaderMap {}
impl Takes for OriginalUri {}
impl Takes for Request {}
impl<T> Takes for Part<T> {}

impl<T: JsonSchema> Takes for Query<T> {
    fn add_to(signature: &mut Signature) {
        signature.query = Some(make::<T>());
    }
}

impl<T: JsonSchema> Takes for Json<T> {
    fn add_to(signature: &mut Signature) {
        signature.body = Some(make::<T>());
    }
}

impl<T: JsonSchema> Takes for UntypedJson<T> {
    fn add_to(signature: &mut Signature) {
        signature.body = Some(make::<T>());
    }
}

impl<T: JsonSchema> Takes for BulkJson<T> {
    fn add_to(signature: &mut Signature) {
        signature.body = Some(make::<T>());
    }
}

impl Gives for Response {}

impl<T: JsonSchema> Gives for Answer<T> {
    fn add_to(signature: &mut Signature) {
        signature.answer = Some(make::<T>());
    }
}

impl<T: Gives> Gives for Result<T, Problem> {
    fn add_to(signature: &mut Signature) {
        T::add_to(signature);
    }
}
