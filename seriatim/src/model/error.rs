//! One error type with a kind, so that callers branch on the kind and never on a driver's error.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

/// The kind of an error, and so what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is wrong and stays wrong: correct it. Names the field if possible.
    Invalid,
    /// The request names something that does not exist.
    NotFound,
    /// The request contradicts the store (a queue's mode, a lane's route).
    Conflict,
    /// The calling node was declared dead, or never registered: take a new node id.
    NodeGone,
    /// This store, or this build, cannot do that.
    Unsupported,
    /// The store cannot be reached or is busy: the same request may succeed later.
    Unavailable,
    /// The store has no room left (disk full, memory limit).
    Full,
    /// The store can be read but not written.
    ReadOnly,
    /// The store's data cannot be understood.
    Corrupt,
    /// A worker or a hook reported that its process cannot continue.
    Fatal,
    /// A bug in Seriatim.
    Internal,
}

impl ErrorKind {
    /// The kind as a short word, for logs and problem documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::NodeGone => "node_gone",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Corrupt => "corrupt",
            Self::Fatal => "fatal",
            Self::Internal => "internal",
        }
    }
}

/// An error: its kind, the field, and a message that says what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    field: Option<Cow<'static, str>>,
    message: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with a message for users.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, field: None, message: message.into(), source: None }
    }

    /// A wrong value in `field`.
    pub fn invalid(
        field: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(ErrorKind::Invalid, message).in_field(field)
    }

    /// Names the wrong field; an outer name goes in front (`jobs[3]` + `key`).
    #[must_use]
    pub fn in_field(mut self, outer: impl Into<Cow<'static, str>>) -> Self {
        let outer = outer.into();
        self.field = Some(match self.field {
            None => outer,
            Some(inner) => format!("{outer}.{inner}").into(),
        });
        self
    }

    /// Names a queue of a declaration by its name, as configurations do, instead of its place: `queues.orders.mode`
    /// instead of `queues[0].mode`.
    #[must_use]
    pub(crate) fn naming_queues<'q>(mut self, names: impl IntoIterator<Item = &'q str>) -> Self {
        let named = self.field.as_deref().and_then(|field| {
            let (place, rest) = field.strip_prefix("queues[")?.split_once(']')?;
            let name = names.into_iter().nth(place.parse().ok()?)?;
            Some(format!("queues.{name}{rest}").into())
        });
        self.field = named.or(self.field);
        self
    }

    /// Keeps the cause of this error.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts the action that failed in front of the message.
    #[must_use]
    pub fn while_doing(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message).into();
        self
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The wrong field, if the error concerns one.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// The message without the field and the cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same request, unchanged, may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Full)
    }

    /// Whether a store refused what it was asked, and so has changed nothing.
    pub(crate) fn is_refusal(&self) -> bool {
        use ErrorKind::{Conflict, Invalid, NotFound, Unsupported};
        matches!(self.kind, Invalid | NotFound | Conflict | Unsupported)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
