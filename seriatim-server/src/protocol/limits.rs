//! The limits and groups of a queue, as they are set.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use seriatim::limits::{RUNNING_LIMIT_MAX, WEIGHT_MAX};
use seriatim::{Rate, Share};

use super::schema::Foreign;

/// How many turns may run at once, and how many may start per second, minute or hour, on all nodes together.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "LimitSettings")]
pub(crate) struct Limit {
    /// Maximum turns at once
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    running: Option<u32>,
    /// How many turns may start per second, minute or hour
    #[schemars(with = "Option<Foreign<Rate>>")]
    rate: Option<Rate>,
    /// How many turns may start at once after a pause. Default: what the rate allows in a tenth of a second
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    burst: Option<u32>,
}

/// What one group gets; what is unset is as for each.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GroupSettings")]
pub(crate) struct Group {
    /// Turns for one turn of a group with weight 1. Default: 1
    #[schemars(range(min = 1, max = WEIGHT_MAX))]
    weight: Option<u32>,
    /// Maximum turns at once
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    running: Option<u32>,
    /// How many turns may start per second, minute or hour
    #[schemars(with = "Option<Foreign<Rate>>")]
    rate: Option<Rate>,
    /// How many turns may start at once after a pause
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    burst: Option<u32>,
}

/// Groups of jobs, such as tenants, that take turns: what each gets, and what single ones get instead.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GroupsSettings")]
pub(crate) struct Groups {
    /// Turns for one turn of a group with weight 1. Default: 1
    #[schemars(range(min = 1, max = WEIGHT_MAX))]
    weight: Option<u32>,
    /// Maximum turns of each group at once
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    running: Option<u32>,
    /// How many turns of each group may start per second, minute or hour
    #[schemars(with = "Option<Foreign<Rate>>")]
    rate: Option<Rate>,
    /// How many turns of each group may start at once after a pause
    #[schemars(range(min = 1, max = RUNNING_LIMIT_MAX))]
    burst: Option<u32>,
    /// Groups with settings of their own
    named: BTreeMap<String, Group>,
}

impl From<Limit> for seriatim::Limit {
    fn from(Limit { running, rate, burst }: Limit) -> Self {
        let mut limit = Self::default();
        (limit.running, limit.rate, limit.burst) = (running, rate, burst);
        limit
    }
}

impl From<Group> for Share {
    fn from(Group { weight, running, rate, burst }: Group) -> Self {
        let mut share = Self::default();
        share.weight = weight;
        share.limit = Limit { running, rate, burst }.into();
        share
    }
}

impl From<Groups> for seriatim::Groups {
    fn from(Groups { weight, running, rate, burst, named }: Groups) -> Self {
        let each = Self::each(Group { weight, running, rate, burst }.into());
        named.into_iter().fold(each, |all, (name, group)| all.named(name, group.into()))
    }
}
