//! A Redis whose memory is full. Whatever an operation is, it is either refused before it changes anything, or it is
//! carried out completely; only those that bring something new may be refused.

use std::future::Future;
use std::sync::Arc;

use seriatim::store::*;
use seriatim::{Error, ErrorKind, SharedStore};
use seriatim_testkit::Redis;

/// Every operation begins on a full server. One that may be refused is then repeated with room: had it left a part, the
/// repetition would differ from what the suite expects.
pub(crate) struct Full {
    inner: SharedStore,
    server: Redis,
}

impl Full {
    pub(crate) fn around(inner: SharedStore, server: Redis) -> SharedStore {
        Arc::new(Self { inner, server })
    }

    /// In bytes; 0 is no limit.
    fn limit(&self, bytes: &str) {
        self.server.send(&["CONFIG", "SET", "maxmemory", bytes]).expect("the limit is set");
    }

    /// Carries out an operation that may be refused.
    async fn fill<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Error> {
        self.limit("1");
        let mut answer = call().await;
        // Another operation at the same time may fill the server again.
        while answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
            self.limit("0");
            answer = call().await;
        }
        answer
    }
}

impl Wrapper for Full {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        self.limit("1");
        let answer = call.await;
        if let Err(error) = &answer {
            assert_ne!(
                error.kind(),
                ErrorKind::Full,
                "{operation} works on a full server: {error}"
            );
        }
        answer
    }

    async fn migrate(&self) -> Result<(), Error> {
        self.fill(|| self.inner.migrate()).await
    }

    async fn secret(&self, offered: Secret) -> Result<Secret, Error> {
        self.fill(|| self.inner.secret(offered)).await
    }

    async fn declare(&self, request: Declare) -> Result<(), Error> {
        self.fill(|| self.inner.declare(request.clone())).await
    }

    async fn declare_new(&self, request: Declare) -> Result<(), Error> {
        self.fill(|| self.inner.declare_new(request.clone())).await
    }

    async fn push(&self, request: Push) -> Result<Vec<Pushed>, Error> {
        self.fill(|| self.inner.push(request.clone())).await
    }

    async fn write_notes(&self, notes: Vec<Note>) -> Result<(), Error> {
        self.fill(|| self.inner.write_notes(notes.clone())).await
    }
}
