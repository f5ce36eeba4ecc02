//! Who asks.

use axum::http::StatusCode;

use super::{Access, Problem, Result, Scope};
use crate::config::Role;

/// The caller where no token is needed, as deeds name them.
pub(super) const ANYBODY: &str = "anonymous";

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Whether no token is needed.
    Anybody,
    /// The bearer of a token.
    Token { name: String, role: Role, scope: Scope },
}

impl Who {
    /// As deeds name the caller.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Anybody => ANYBODY,
            Self::Token { name, .. } => name,
        }
    }

    pub(super) fn role(&self) -> Option<Role> {
        match self {
            Self::Anybody => None,
            Self::Token { role, .. } => Some(*role),
        }
    }

    /// Whether the caller's role is enough.
    pub(super) fn may(&self, access: Access) -> bool {
        match self {
            Self::Anybody => true,
            Self::Token { role, .. } => access.admits(*role),
        }
    }

    /// What the token is limited to.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Anybody => Scope::default(),
            Self::Token { scope, .. } => scope.clone(),
        }
    }

    /// Refuses callers without permission.
    pub(super) fn admit(&self, access: Access) -> Result<()> {
        if self.may(access) {
            return Ok(());
        }
        let roles: Vec<&str> = access.roles().iter().map(|role| role.name()).collect();
        let detail = format!("this endpoint needs a token with role {}", roles.join(" or "));
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }
}
